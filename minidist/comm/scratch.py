"""Work buffers that collectives borrow and give back.

A ring needs room for one incoming piece. Allocating it on every call costs more than the sum itself
for large arrays: the operating system hands out fresh pages, one page fault each. So a rank keeps
what it once allocated and lends it again.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minidist.arrays import Array, namespace


class Scratch:
    """The free work buffers of one rank, by array library and dtype."""

    def __init__(self) -> None:
        self._free: defaultdict[Any, list[Array]] = defaultdict(list)

    @contextmanager
    def lend(self, size: int, like: Array) -> Iterator[Array]:
        """Lend a flat, uninitialised array of ``size`` elements of the kind and dtype of ``like``.

        It goes back when the ``with`` block ends, also when a collective is abandoned half-way.
        Two collectives in flight never share one.
        """
        xp = namespace(like)
        free = self._free[xp, like.dtype]
        buffer = free.pop() if free else None
        if buffer is None or buffer.size < size:
            buffer = xp.empty(size, like.dtype)
        try:
            yield buffer[:size]
        finally:
            free.append(buffer)

    @property
    def nbytes(self) -> int:
        """Bytes held now by buffers that nobody has borrowed."""
        return sum(buffer.nbytes for free in self._free.values() for buffer in free)
