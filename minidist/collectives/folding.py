"""A power of two of workers from any number of ranks: the others hand their array in, and wait.

    5 ranks = 4 workers + 1 extra        0 -> 1     then 1 2 3 4 work as workers 0 1 2 3,
                                                    then 1 -> 0 sends the result back

With E ranks more than a power of two, the first 2 E ranks form pairs, and the odd rank of each
works for both (Thakur, Rabenseifner and Gropp, 2005, section 4.5).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from minidist.arrays import Array
from minidist.collectives.steps import Exchange, Steps
from minidist.ops.reduce import combine


class Workers(NamedTuple):
    """The ranks that work, as one of them sees them: its number, how many, and who is who."""

    me: int
    power: int
    rank: Callable[[int], int]


def split_ranks(size: int) -> tuple[int, int]:
    """Return P, the largest power of two up to ``size``, and E, the ranks beyond it."""
    power = 1 << (size.bit_length() - 1)
    return power, size - power


def folded(comm: Any, result: Array, op: str, work: Callable[..., Steps]) -> Steps:
    """All-reduce ``result`` in place by ``work(comm, result, room, op, workers)`` on P ranks.

    ``room`` is a work array as large as ``result``. Costs a paired rank one message of the whole
    array to its partner, besides what the work costs.
    """
    power, extra = split_ranks(comm.size)
    paired = comm.rank < 2 * extra
    if paired and comm.rank % 2 == 0:
        yield Exchange(comm, send=result, to=comm.rank + 1)
        yield Exchange(comm, recv=result, source=comm.rank + 1)
        return

    def rank(worker: int) -> int:
        return 2 * worker + 1 if worker < extra else worker + extra

    me = comm.rank // 2 if paired else comm.rank - extra
    with comm.scratch(result.size if comm.size > 1 else 0, like=result) as room:
        if paired:
            yield Exchange(comm, recv=room, source=comm.rank - 1)
            combine(op, room, result, out=result)
        yield from work(comm, result, room, op, Workers(me, power, rank))
    if paired:
        yield Exchange(comm, send=result, to=comm.rank - 1)
