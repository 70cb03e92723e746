"""Numbers for the cases of a model's kernels, and how far off float32 may be.

The references are the array versions in `minidist.ops`, on the same numbers cast to float64.

u = 2^-24 is the error of one rounding, relative to its result. A sum of n terms in any order, with
or without fused multiply-adds, is off by at most n u times the sum of the terms' absolute values.
CUDA documents expf with 2 ulp = 4 u, logf with 1 ulp; square roots and divisions are rounded right.
Each bound adds these up, rounded up a little, and TINY for what a GPU flushes to zero. That is the
worst case; a wrong formula misses it by far.
"""

from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda.kernel_cases import UB16

BF16 = np.dtype(ml_dtypes.bfloat16)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    """Return normal numbers, other ones for each seed."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(dtype)


def unaligned(x: np.ndarray) -> np.ndarray:
    """Return the same numbers, one element behind where an array begins."""
    room = np.zeros(x.size + 2, x.dtype)
    room[1:-1] = x.reshape(-1)
    return room[1:-1].reshape(x.shape)


def unaligned_at(at: int | None, arguments: list[Any]) -> list[Any]:
    """Return the arguments with one array unaligned, or with none."""
    return [unaligned(x) if i == at else x for i, x in enumerate(arguments)]


def unset(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return an array for results: what a kernel forgets to write stays NaN."""
    return np.full(shape, np.nan, dtype)


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [x.astype(np.float64) for x in arrays]


def rounding(dtype: Any) -> float:
    """Return the error of rounding a float32 result to the type of storage."""
    return UB16 if dtype == BF16 else 0.0


def over(count: int, size: int) -> int:
    """Return how many pieces of ``size`` hold ``count``; a grid has at least one block."""
    return max(1, -(-count // size))
