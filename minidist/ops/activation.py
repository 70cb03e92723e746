"""SwiGLU: one projection opens or closes the gate of another.

    h = silu(gate) * up          silu(g) = g * sigmoid(g) = g / (1 + exp(-g))

Source: Shazeer, "GLU variants improve transformer", arXiv 2002.05202.
"""

import numpy as np

from minidist.arrays import Array, namespace, pieces
from minidist.ops import half, kernels


@half.stored(1)
def swiglu(gate: Array, up: Array) -> Array:
    """Return silu(gate) * up, elementwise. The backward pass needs the two inputs only."""
    if kernels.chosen(gate, up, fits=gate.shape == up.shape):
        return kernels.swiglu(gate, up)
    xp = namespace(gate)
    h = xp.empty(gate.shape, gate.dtype)
    flat_h, flat_gate, flat_up = _flat(h, gate, up)
    for here in pieces(flat_h):
        part = _one_plus_exp_minus(flat_gate[here], flat_h[here])
        xp.divide(flat_gate[here], part, out=part)
        part *= flat_up[here]
    return h


@half.stored(2)
def swiglu_backward(dh: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Return (dgate, dup).

    With s = sigmoid(g): silu(g) = g s and silu'(g) = s + silu(g) (1 - s). The sigmoid is computed
    again, not kept, as fused kernels do.
    """
    if kernels.chosen(dh, gate, up, fits=dh.shape == gate.shape == up.shape):
        return kernels.swiglu_backward(dh, gate, up)
    xp = namespace(gate)
    dgate, dup = xp.empty(gate.shape, gate.dtype), xp.empty(gate.shape, gate.dtype)
    flat_dgate, flat_dup, flat_dh, flat_gate, flat_up = _flat(dgate, dup, dh, gate, up)
    for here in pieces(flat_dgate):
        g, d = flat_gate[here], flat_dh[here]
        s, silu = flat_dgate[here], flat_dup[here]  # worked out where the results will stand
        xp.divide(1.0, _one_plus_exp_minus(g, s), out=s)
        xp.multiply(g, s, out=silu)
        s += silu - silu * s
        s *= flat_up[here]
        s *= d
        silu *= d
    return dgate, dup


def _flat(*arrays: Array) -> list[Array]:
    return [x.reshape(x.size) for x in arrays]


def _one_plus_exp_minus(x: Array, out: Array) -> Array:
    """Return 1 + exp(-x) in ``out``. It may overflow to inf, and dividing by it is then right."""
    xp = namespace(x)
    xp.negative(x, out=out)
    with np.errstate(over="ignore"):
        xp.exp(out, out=out)
    out += 1.0
    return out
