"""SwiGLU: one projection opens or closes the gate of another.

    h = silu(gate) * up          silu(g) = g * sigmoid(g) = g / (1 + exp(-g))

Source: Shazeer, "GLU variants improve transformer", arXiv 2002.05202.
"""

import numpy as np

from minidist.ops.arrays import Array, namespace, pieces


def swiglu(gate: Array, up: Array) -> Array:
    """Return silu(gate) * up, elementwise. The backward pass needs the two inputs only."""
    h = namespace(gate).empty(gate.shape, gate.dtype)
    flat_h, flat_gate, flat_up = _flat(h, gate, up)
    for here in pieces(flat_h):
        part = _sigmoid(flat_gate[here])
        part *= flat_gate[here]
        part *= flat_up[here]
        flat_h[here] = part
    return h


def swiglu_backward(dh: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Return (dgate, dup).

    With s = sigmoid(g): silu(g) = g s and silu'(g) = s + silu(g) (1 - s). The sigmoid is computed
    again, not kept, as fused kernels do.
    """
    xp = namespace(gate)
    dgate, dup = xp.empty(gate.shape, gate.dtype), xp.empty(gate.shape, gate.dtype)
    flat_dgate, flat_dup, flat_dh, flat_gate, flat_up = _flat(dgate, dup, dh, gate, up)
    for here in pieces(flat_dgate):
        s, d = _sigmoid(flat_gate[here]), flat_dh[here]
        silu = s * flat_gate[here]
        flat_dup[here] = d * silu
        slope = s - s * silu
        slope += silu
        slope *= flat_up[here]
        slope *= d
        flat_dgate[here] = slope
    return dgate, dup


def _flat(*arrays: Array) -> list[Array]:
    return [x.reshape(x.size) for x in arrays]


def _sigmoid(x: Array) -> Array:
    """Return a new array 1 / (1 + exp(-x)). exp may overflow to inf: 1 / inf = 0 is then right."""
    xp = namespace(x)
    s = -x
    with np.errstate(over="ignore"):
        xp.exp(s, out=s)
    s += 1.0
    return xp.divide(1.0, s, out=s)
