"""Rotary positions: turn pairs of channels by an angle that grows with the position.

Channel i is paired with channel i + H/2 (the "half-split" layout of Llama and SmolLM2 files), and
the pair turns by position * base^(-2i/H). The product of a turned query and a turned key depends
on the *difference* of their positions only, so nothing is learned and nothing is stored.

Source: Su et al., "RoFormer", arXiv 2104.09864, section 3.4.2.

Suffixes: T positions, N heads, H head size, F = H/2 frequencies.
"""

from typing import Any

import numpy as np

from minidist.arrays import Array, namespace
from minidist.ops import half, kernels


def rope_angles(positions_T: Array, head_size: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """Return the factors (cosine, signed sine) of `rope`, each (T, 1, H), alike for all heads.

    The angles are computed in float64: at position 100,000 a float32 angle is off by 0.004. The
    factors for arrays of a half ``dtype`` are float32: they enter an operation, and are not stored.
    """
    xp, dtype = namespace(positions_T), half.wide(dtype)
    pairs = head_size // 2
    frequency_F = base ** (xp.arange(pairs, dtype=np.float64) * (-1.0 / max(pairs, 1)))
    angle_T1F = positions_T.astype(np.float64)[:, None, None] * frequency_F
    cos, sin = xp.cos(angle_T1F).astype(dtype), xp.sin(angle_T1F).astype(dtype)
    return xp.concatenate([cos, cos], -1), xp.concatenate([-sin, sin], -1)


@half.stored(1)
def rope(x_TNH: Array, cos_T1H: Array, sin_T1H: Array) -> Array:
    """Turn ``x`` (..., T, N, H) forward by the angles.

        left  = a cos - b sin             with a and b the halves of the last axis
        right = b cos + a sin

    that is, x times cosine plus x with its halves swapped times the signed sine.
    """
    one_head = (*x_TNH.shape[-3:-2], 1, *x_TNH.shape[-1:])
    fits = cos_T1H.shape == sin_T1H.shape == one_head
    if kernels.chosen(x_TNH, cos_T1H, sin_T1H, fits=fits):
        return kernels.rope(x_TNH, cos_T1H, sin_T1H)
    # The same factors for each head, written out: one long loop instead of one for each head.
    xp, pairs = namespace(x_TNH), x_TNH.shape[-1] // 2
    cos_TNH, sin_TNH = (xp.broadcast_to(a, x_TNH.shape[-3:]).copy() for a in (cos_T1H, sin_T1H))
    swapped = x_TNH.reshape(*x_TNH.shape[:-1], 2, pairs)[..., ::-1, :]
    turned = swapped * sin_TNH.reshape(*sin_TNH.shape[:-1], 2, pairs)
    y_TNH = x_TNH * cos_TNH
    y_TNH += turned.reshape(x_TNH.shape)
    return y_TNH


@half.stored(1)
def rope_backward(dy_TNH: Array, cos_T1H: Array, sin_T1H: Array) -> Array:
    """Turn the gradient back: a rotation's transpose is the rotation by minus the angle."""
    return rope(dy_TNH, cos_T1H, -sin_T1H)
