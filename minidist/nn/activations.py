"""How many bytes a forward pass keeps alive for its backward."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist.arrays import Array


def alive(*contexts: Any) -> int:
    """Return the bytes of the arrays in these ctx, each storage once, views as what they view.

    Tuples, lists and dictionaries are looked into; records such as `At` are not: their arrays are
    numbers of samples and positions, which belong to the batch.
    """
    bases = {id(b): b.nbytes for b in map(_base, _arrays(contexts))}
    return sum(bases.values())


def _arrays(value: Any) -> Iterator[Array]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, dict):
        yield from _arrays(tuple(value.values()))
    elif hasattr(value, "nbytes") and not isinstance(value, np.generic):
        yield value


def _base(x: Array) -> Array:
    """Return the array whose memory `x` shows."""
    while getattr(x, "base", None) is not None and hasattr(x.base, "nbytes"):
        x = x.base
    return x
