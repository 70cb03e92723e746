"""Rotary positions: turn pairs of channels by an angle that grows with the position.

Channel i is paired with channel i + H/2 (the "half-split" layout of Llama and SmolLM2 files), and
the pair turns by position * base^(-2i/H). The product of a turned query and a turned key depends
on the *difference* of their positions only, so nothing is learned and nothing is stored.

Source: Su et al., "RoFormer", arXiv 2104.09864, section 3.4.2.

Suffixes: T positions, N heads, H head size, F = H/2 frequencies.
"""

from typing import Any

import numpy as np

from minidist.ops.arrays import Array, namespace


def rope_angles(positions_T: Array, head_size: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """Return cosine and sine of the angles, each (T, 1, F), for every head of each position.

    The angles are computed in float64: at position 100,000 a float32 angle is off by 0.004.
    """
    xp = namespace(positions_T)
    half = head_size // 2
    frequency_F = base ** (xp.arange(half, dtype=np.float64) * (-1.0 / max(half, 1)))
    angle_T1F = positions_T.astype(np.float64)[:, None, None] * frequency_F
    return xp.cos(angle_T1F).astype(dtype), xp.sin(angle_T1F).astype(dtype)


def rope(x_TNH: Array, cos_T1F: Array, sin_T1F: Array) -> Array:
    """Turn ``x`` (..., T, N, H) forward by the angles."""
    return _turn(x_TNH, cos_T1F, sin_T1F)


def rope_backward(dy_TNH: Array, cos_T1F: Array, sin_T1F: Array) -> Array:
    """Turn the gradient back: a rotation's transpose is the rotation by minus the angle."""
    return _turn(dy_TNH, cos_T1F, -sin_T1F)


def _turn(x_TNH: Array, cos_T1F: Array, sin_T1F: Array) -> Array:
    xp = namespace(x_TNH)
    half = x_TNH.shape[-1] // 2
    a, b = x_TNH[..., :half], x_TNH[..., half:]
    y_TNH = xp.empty(x_TNH.shape, x_TNH.dtype)
    left, right = y_TNH[..., :half], y_TNH[..., half:]
    xp.multiply(a, cos_T1F, out=left)
    left -= b * sin_T1F
    xp.multiply(a, sin_T1F, out=right)
    right += b * cos_T1F
    return y_TNH
