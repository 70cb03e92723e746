"""Rules written down as the papers have them: slow, without state, on whole arrays.

What changes arrays in place, piece by piece, is held to these.
"""

from collections.abc import Sequence

import numpy as np

from minidist.arrays import Array
from minidist.train.precision import MOST


def adamw(
    x: Array, gradients: Array, lr: float, b1: float, b2: float, eps: float, decay: float
) -> list[tuple[Array, Array, Array]]:
    """Return (m, v, x) after each step; x is not changed, and is best float64.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2.
    """
    m, v, after = 0 * x, 0 * x, []
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * decay * x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        after.append((m, v, x))
    return after


def loss_scales(verdicts: Sequence[bool], every: int, scale: float) -> list[float | str]:
    """Return the loss scale after each step from the verdicts, or "DivergedError" as the last."""
    scales: list[float | str] = []
    since = 0  # the step after which the scale last changed
    for i, good in enumerate(verdicts, 1):
        if not good:
            scale, since = scale / 2, i
        elif i - since == every:
            scale, since = min(2 * scale, MOST), i
        if scale < 1:
            return [*scales, "DivergedError"]
        scales.append(scale)
    return scales
