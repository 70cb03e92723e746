"""Which library an array belongs to. The backend follows the arrays: nothing here is a setting.

The same source line runs on NumPy on a laptop and on CuPy on a GPU, since both have the same
functions: ``xp = namespace(x); xp.exp(x)``. A test namespace that refuses everything a real device
would refuse proves this where there is no GPU.
"""

import sys
from collections.abc import Iterator
from math import prod
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A NumPy or CuPy array, or any array with ``__array_namespace__``; docstrings give the shapes."""


def namespace(x: Array) -> Any:
    """Return the module whose functions work on ``x``: numpy, cupy, or what the array says."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    if type(x).__module__.partition(".")[0] == "cupy":
        return sys.modules["cupy"]
    return x.__array_namespace__()


def asarray_like(host: Any, like: Array) -> Array:
    """Return the host value as an array where ``like`` lives: a copy to the device if need be."""
    return namespace(like).asarray(host)


def to_host(x: Array) -> np.ndarray:
    """Return ``x`` as a NumPy array. On a device this copies and waits for the current stream."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    return x.get()  # type: ignore[no-any-return]


def as_rows(x: Array) -> Array:
    """Return ``x`` (..., D) as (N, D), its leading axes joined.

    The sizes are written out, since -1 is ambiguous where another axis is empty.
    """
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


PIECE = 1 << 15
"""Elements worked on at a time on the host: a few arrays of this size fit a second-level cache."""


def pieces(x: Array) -> Iterator[slice]:
    """Yield the slices of a flat array in which a chain of elementwise steps should be done.

    On the host memory is slow, so all steps are done on a piece that fits the cache before the next
    piece. On a device each step is a launch, and there is one piece. The results are the same.
    """
    step = PIECE if isinstance(x, np.ndarray) else max(x.size, 1)
    for start in range(0, x.size, step):
        yield slice(start, min(start + step, x.size))
