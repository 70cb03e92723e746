"""Arrays for cases as parts of longer ones: where they begin matters, and what lies around them.

``start`` says how many elements behind the begin of its memory an array begins: 1 makes it
unaligned for float4 and for pairs.

A GPU may contract a * b + c to one rounding (FMA), which is no more than two, and flush what is
smaller than 2^-126 to zero. So a bound is the number of roundings times u = 2^-24 times the size of
what is rounded, plus `TINY` for each; results that are rounded once, or sums of small integers, are
exact everywhere.
"""

import zlib
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda.kernel_cases import TINY, U16, U32, UB16, Want

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}
MARGIN = 3  # elements behind each array that must stay as they are


UNIT = {np.dtype(np.float32): U32, np.dtype(np.float16): U16, np.dtype(bfloat16): UB16}
SMALLEST = {np.dtype(np.float32): TINY, np.dtype(np.float16): 2.0**-25, np.dtype(bfloat16): TINY}
"""The absolute error of a rounding where numbers get too small for a relative one."""

Results = dict[Any, Want]


def view(values: Any, dtype: Any, start: int = 0) -> np.ndarray:
    """Return values as a part of a longer array, which begins ``start`` elements before them."""
    values = np.asarray(values)
    owner = np.full(start + values.size + MARGIN, 77).astype(dtype)
    owner[start : start + values.size] = values.astype(dtype).reshape(-1)
    return owner[start : start + values.size].reshape(values.shape)


def unset(n: int, dtype: Any, start: int = 0) -> np.ndarray:
    """Return an array for results, as a part of a longer one: what is not written stays NaN."""
    return view(np.full(n, np.nan), dtype, start)


def draw(name: str) -> np.random.Generator:
    """Return random numbers that depend on the name of a case alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def blocks(n: int, block: int) -> tuple[int]:
    """Return a grid with a thread for each element; CUDA refuses a grid of 0 blocks."""
    return (max(1, -(-n // block)),)


def single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)
