"""SwiGLU: one projection opens or closes the gate of another.

    h = silu(gate) * up          silu(g) = g * sigmoid(g) = g / (1 + exp(-g))

Source: Shazeer, "GLU variants improve transformer", arXiv 2002.05202.
"""

import numpy as np

from minidist.ops.arrays import Array, namespace


def swiglu(gate: Array, up: Array) -> Array:
    """Return silu(gate) * up, elementwise. The backward pass needs the two inputs only."""
    h = _sigmoid(gate)
    h *= gate
    h *= up
    return h


def swiglu_backward(dh: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Return (dgate, dup).

    silu'(g) = s + g s (1 - s) with s = sigmoid(g): computed again, not kept, as in fused kernels.
    """
    s = _sigmoid(gate)
    silu = gate * s
    dup = dh * silu
    silu *= 1.0 - s
    silu += s
    silu *= up
    silu *= dh
    return silu, dup


def _sigmoid(x: Array) -> Array:
    """Return a new array 1 / (1 + exp(-x)). exp may overflow to inf: 1 / inf = 0 is then right."""
    xp = namespace(x)
    s = -x
    with np.errstate(over="ignore"):
        xp.exp(s, out=s)
    s += 1.0
    return xp.divide(1.0, s, out=s)
