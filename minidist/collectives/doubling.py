"""Recursive doubling: the fewest rounds, each of them with the whole array. Right for small arrays.

    round   partner     rank 0     rank 1     rank 2     rank 3
    start               0          1          2          3
    1       r ^ 1       0+1        0+1        2+3        2+3
    2       r ^ 2       0..3       0..3       0..3       0..3

After round k every rank has the sum of its 2**k neighbours: log2 N rounds, half as many as
`halving`, for log2 N times the array instead of less than 2 (Thakur, Rabenseifner and Gropp, 2005,
Int. J. High Perform. Comput. Appl. 19(1), section 4.5).

Both partners add the part of the lower ranks to that of the higher ones, in this order, so all
ranks compute the same sums along the same tree, to the last bit.
"""

from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import working_array
from minidist.collectives.folding import Workers, folded
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.ops.reduce import combine


@Collective
def all_reduce(comm: Any, x: Array, out: Array | None = None, op: str = "sum") -> Steps:
    """Combine ``x`` over all ranks, so that every rank has the same result, and return it.

    In place without ``out``; any shape, size, and number of ranks. All ranks call it.

    Let P be the largest power of two up to N, and S the bytes of ``x``. A working rank sends log2 P
    messages of S. With E = N - P > 0, the first 2 E ranks are pairs as in `halving.all_reduce`.
    float16 and bfloat16 are rounded once a round.
    """
    result = working_array(comm, x, out, op)
    yield from folded(comm, result, op, double)
    return x if out is None else out


def double(comm: Any, result: Array, room: Array, op: str, workers: Workers) -> Steps:
    """All-reduce ``result`` in place among a power of two of workers."""
    me, power, rank = workers
    width = 1
    while width < power:
        partner = rank(me ^ width)
        yield Exchange(comm, result, partner, room, partner)
        lower, upper = (room, result) if me & width else (result, room)
        combine(op, lower, upper, out=result)
        width *= 2
