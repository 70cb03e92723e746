"""float16 and bfloat16: types to store and to send numbers in, never to compute in.

                bits of exponent, fraction   unit roundoff u   largest   smallest
    float32               8        23              2**-24        3e38      1e-45
    bfloat16              8         7              2**-8         3e38      1e-40
    float16               5        10              2**-11       65504      6e-8

Both take half the bytes. bfloat16 is float32 cut short: it has the range, but 2.4 decimal digits.
float16 has 3.3 digits, and overflows. A sum formed in either stops growing as soon as the next term
is below half a step: 100,000 times 0.01 in bfloat16 is 4.

So an operation takes its arguments `up` to float32, computes, and rounds what is stored `down`,
once: an error of at most u |y| in a result y, however many terms the sum had. `stored` makes such
an operation of any function of arrays; with float32 and float64 it does nothing.

Matrix units of GPUs do the same inside: 16-bit factors, sums in float32. What they save besides,
reading the factors in 16 bits, array code does not: it makes float32 copies for the time of one
operation.

Where the types live: NumPy has float16, and bfloat16 by the package ml_dtypes. CuPy has float16;
bfloat16 "in most places" from version 14 on, with ml_dtypes. bfloat16 on a device was not tried
here; all that would be asked of it is to allocate, copy and convert.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from minidist.arrays import Array
from minidist.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

NAMES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
HALF = ("bfloat16", "float16")


def named(name: str) -> np.dtype[Any]:
    """Return the dtype of a name; NumPy does not know that of bfloat16. Raises ConfigError."""
    if name not in NAMES:
        raise ConfigError(f"dtype {name!r}: choose one of {', '.join(NAMES)}")
    return NAMES[name]


def is_half(dtype: Any) -> bool:
    """Return whether this is float16 or bfloat16."""
    dtype = np.dtype(dtype)
    return bool(dtype.itemsize == 2 and dtype.name in HALF)


def wide(dtype: Any) -> np.dtype[Any]:
    """Return the type that arithmetic on this one is done in: float32 for a half type."""
    return NAMES["float32"] if is_half(dtype) else np.dtype(dtype)


def up(x: Array) -> Array:
    """Return a float32 copy of a half array, and any other array as it is. Exact."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def down(x: Array, dtype: Any) -> Array:
    """Return ``x`` rounded to ``dtype``, or as it is if it has that type.

    What is too large for float16 becomes inf, silently: the norm of the gradients tells.
    """
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def stored(results: int) -> Callable[[F], F]:
    """Make an operation one on half arrays too: all arguments up, the first ``results`` down.

    They are rounded to the dtype of the first argument. Further results are as computed: statistics
    that the backward pass needs, and gradients of weights, which are rounded where they are added
    up.
    """

    def decorate(operation: F) -> F:
        @functools.wraps(operation)
        def on_any_arrays(*args: Any) -> Any:
            if not any(_is_half_array(x) for x in args):
                return operation(*args)
            found = operation(*(up(x) if _is_half_array(x) else x for x in args))
            if not isinstance(found, tuple):
                return down(found, args[0].dtype) if results else found
            kept = tuple(down(x, args[0].dtype) for x in found[:results])
            return kept + found[results:]

        return cast(F, on_any_arrays)

    return decorate


def _is_half_array(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype is not None and dtype.itemsize == 2 and dtype.name in HALF
