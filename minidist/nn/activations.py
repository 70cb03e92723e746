"""How many bytes a forward pass keeps alive for its backward.

A ctx is tuples of arrays, and many of them are views of others: the output of attention and the
input of its last projection are one storage, which an allocator gives out, and frees, as a whole.
So storages are counted, not arrays.

The numbers of samples and positions in `At` belong to the batch and not to a layer; they do not
count, wherever they stand. Parameters would, but no ctx holds one: see `minidist.nn.layer`.
PyTorch's hooks for saved tensors see the same arrays, for any model.
"""

from typing import Any

import numpy as np

from minidist.arrays import Array
from minidist.nn.at import At


def alive(*contexts: Any, besides: Any = ()) -> int:
    """Return the bytes of the arrays in these ctx: each storage once, as a whole.

    ``besides``: other ctx that are alive too; what they hold is not counted. Tuples, lists and
    dictionaries are looked into. Takes about a microsecond for each array; touches no data.
    """
    found: dict[int, int] = {}
    elsewhere: dict[int, int] = {}
    _collect(contexts, found, elsewhere)
    _collect(besides, elsewhere, elsewhere)
    return sum(nbytes for storage, nbytes in found.items() if storage not in elsewhere)


def _collect(value: Any, found: dict[int, int], batch: dict[int, int]) -> None:
    """Enter the bytes of each storage in ``value`` into ``found``, those of an `At` in ``batch``.

    The key is the id of the array that has the memory: it lives as long as its views.
    """
    if isinstance(value, (tuple, list)):
        for part in value:
            _collect(part, found, batch)
    elif isinstance(value, dict):
        _collect(tuple(value.values()), found, batch)
    elif isinstance(value, At):
        _collect((value.samples, value.positions), batch, batch)
    elif hasattr(value, "nbytes") and not isinstance(value, np.generic):
        owner = _owner(value)
        found[id(owner)] = owner.nbytes


def _owner(x: Array) -> Array:
    """Return the array whose memory ``x`` shows."""
    while hasattr(getattr(x, "base", None), "dtype"):
        x = x.base
    return x
