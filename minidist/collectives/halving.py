"""Recursive halving and doubling: the bytes of the ring in log2 N rounds instead of N - 1.

A reduce-scatter halves the array in each round: rank r and its partner r ^ d each keep one half,
and send the other half to the other. An all-gather doubles the parts again, partners in reverse:

    round   partner        rank 0 holds      rank 1           rank 2           rank 3
    start                  [A B C D] of 0    [A B C D] of 1   ...
    1       r ^ 2          [A B]  0+2        [A B]  1+3       [C D]  0+2       [C D]  1+3
    2       r ^ 1          [A]    0..3       [B]    0..3      [C]    0..3      [D]    0..3

Each piece is summed on one rank along one tree and then copied, so all ranks have the same bits.
That needs a power of two; `folding` makes one of any number of ranks.

Known as Rabenseifner's algorithm (Thakur, Rabenseifner and Gropp, 2005, Int. J. High Perform.
Comput. Appl. 19(1), section 4.5); the distance of partners is what makes it slower than a ring on
networks where far is dear.
"""

from typing import Any

from minidist.arrays import Array
from minidist.bounds import bounds
from minidist.collectives.buffers import working_array
from minidist.collectives.folding import Workers, folded
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.ops.reduce import combine


@Collective
def all_reduce(comm: Any, x: Array, out: Array | None = None, op: str = "sum") -> Steps:
    """Combine ``x`` over all ranks, so that every rank has the same result, and return it.

    In place without ``out``; any shape, size, and number of ranks. All ranks call it.

    Let P be the largest power of two up to N, E = N - P, and S the bytes of ``x``. If P divides the
    size, a working rank sends 2 log2 P messages and 2 (P - 1) / P S bytes. If E > 0, the first 2 E
    ranks send more: an even one sends S in one message and does nothing else, an odd one sends S in
    one message besides its work. float16 and bfloat16 are rounded once a round.
    """
    result = working_array(comm, x, out, op)
    yield from folded(comm, result, op, halve_and_double)
    return x if out is None else out


def halve_and_double(comm: Any, result: Array, room: Array, op: str, workers: Workers) -> Steps:
    """All-reduce ``result`` in place among a power of two of workers."""
    me, power, rank = workers
    cut = bounds(result.size, power)

    def part(worker: int, width: int) -> Array:
        """The pieces of the ``width`` workers around this one, as one range."""
        first = worker // width * width
        return result[cut[first] : cut[first + width]]

    width = power // 2
    while width:
        partner = me ^ width
        keep, give = part(me, width), part(partner, width)
        arriving = room[: keep.size]
        yield Exchange(comm, give, rank(partner), arriving, rank(partner))
        lower, upper = (keep, arriving) if me < partner else (arriving, keep)
        combine(op, lower, upper, out=keep)
        width //= 2
    width = 1
    while width < power:
        partner = me ^ width
        yield Exchange(comm, part(me, width), rank(partner), part(partner, width), rank(partner))
        width *= 2
