"""Elementwise combination of two pieces: what a reduction does with what it has just received."""

from typing import Any

import numpy as np

from minidist.arrays import Array, namespace, pieces
from minidist.errors import ConfigError
from minidist.ops import half, kernels

OPS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""The reductions, and the array function of each."""


def check_op(op: str, dtype: Any) -> None:
    """Raise ConfigError unless ``op`` is a reduction of this dtype."""
    if not isinstance(op, str) or op not in OPS:
        raise ConfigError(f"unknown reduction {op!r}; choose one of {', '.join(OPS)}")
    if op == "sum" and dtype.kind == "b":
        raise ConfigError(
            "a sum of bool is no number; take max (any), min (all), or int64 to count"
        )
    if dtype.kind in "SUO" or dtype.type is np.void or (op == "sum" and dtype.kind == "M"):
        raise ConfigError(f"there is no {op} of {dtype}; reduce arrays of numbers")


def combine(op: str, a: Array, b: Array, out: Array) -> None:
    """Write ``a op b`` into ``out``; all of one shape and dtype, and ``out`` may be ``a`` or ``b``.

    float16 and bfloat16 are types of storage and of the wire: they are added in float32 and rounded
    once.
    """
    fits = op in kernels.COMBINE and out.shape == a.shape == b.shape and out.flags.c_contiguous
    if kernels.chosen(out, a, b, dtypes=tuple(kernels.DTYPES), fits=fits):
        return kernels.combine(op, a, b, out)
    function = getattr(namespace(out), OPS[op])
    if half.is_half(out.dtype):
        out[...] = half.down(function(half.up(a), half.up(b)), out.dtype)
    else:
        function(a, b, out=out)
    return None


def sum_of_squares(x: Array) -> Array:
    """Return the sum of the squares of a flat array as a 0-d float64 array where ``x`` lives."""
    if kernels.chosen(x):
        return kernels.sum_of_squares(x)
    xp = namespace(x)
    total = xp.zeros((), np.float64)
    for here in pieces(x):
        part = x[here].astype(np.float64)
        total = total + part @ part
    return total
