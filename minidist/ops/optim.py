"""The arithmetic of one optimiser step on a flat piece of a parameter, in place.

A piece is whatever range this rank owns: both rules are elementwise, so cutting the state anywhere
changes nothing.
"""

from math import sqrt

from minidist.arrays import Array, namespace, pieces
from minidist.ops import kernels


def sgd(data: Array, grad: Array, lr: float, weight_decay: float = 0.0) -> None:
    """Take lr * (grad + weight_decay * data) away from ``data``, in place; both are flat."""
    lr = float(lr)
    for here in pieces(data):
        if weight_decay:
            data[here] *= 1.0 - lr * weight_decay
        data[here] -= grad[here] * lr


def adamw(
    data: Array,
    grad: Array,
    m: Array,
    v: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    t: int,
) -> None:
    """Update ``data``, ``m`` and ``v`` in place; all arrays are flat and equally long.

    ``t`` counts the steps from 1. Adam keeps running means of the gradient and of its square; both
    start at 0, and dividing by 1 - beta^t corrects for that. The decay is decoupled: it shrinks the
    weight itself and never enters m and v (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).
    """
    lr = float(lr)  # a NumPy float64 scalar would turn float32 arithmetic into float64
    step, root = lr / (1.0 - beta1**t), 1.0 / sqrt(1.0 - beta2**t)
    keep = 1.0 - lr * weight_decay
    fits = data.shape == grad.shape == m.shape == v.shape and data.ndim == 1
    fits = fits and all(x.flags.c_contiguous for x in (data, grad, m, v))
    if kernels.chosen(data, grad, m, v, fits=fits):
        return kernels.adamw(data, grad, m, v, keep, 1.0 - beta1, 1.0 - beta2, root, eps, step)
    xp = namespace(data)
    for here in pieces(data):
        x, g, m_, v_ = data[here], grad[here], m[here], v[here]
        if weight_decay:
            x *= keep
        m_ += (g - m_) * (1.0 - beta1)
        v_ += (g * g - v_) * (1.0 - beta2)
        below = xp.sqrt(v_)
        below *= root
        below += eps
        xp.divide(m_, below, out=below)
        below *= step
        x -= below
    return None
