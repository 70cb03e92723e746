"""Reduce-scatter without partial sums on the wire: every rank sends each owner what it has for it.

    3 ranks, pieces A B C        rank 0         rank 1         rank 2
    start                        a0 b0 c0       a1 b1 c1       a2 b2 c2
    round 1: to r + 1            b0 -> 1        c1 -> 2        a2 -> 0
    round 2: to r + 2            c0 -> 2        a1 -> 0        b2 -> 1
    end: the owner has added     A              B              C

The bytes are those of the ring, (N - 1) / N of the array from each rank. The difference is where
sums are formed. A ring passes on sums in the type of the wire, so a sum of bfloat16 is rounded once
a hop; with 64 ranks 1 + 63 x 2**-9 stays 1. Here the owner adds in float32 and rounds once, however
many ranks there are. The price is a message to everybody in place of a message to the neighbour,
which a network of rings (a torus) pays for.

NCCL's rings add half types in float32 but send them rounded; DeepSpeed and Megatron-LM reduce in
float32 where that is not enough, for twice the bytes.
"""

from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import flat_view, own_piece, pieces
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.ops.half import up
from minidist.ops.reduce import combine


@Collective
def reduce_scatter(comm: Any, x: Array, out: Array | None = None) -> Steps:
    """Add ``x`` over all ranks; rank r ends with piece r of the sum, and returns it.

    ``x``: any shape, of equal size and dtype on all ranks, cut by ``bounds(x.size, N)``. ``out``: a
    flat array for piece r; without it, piece r of ``x`` is overwritten. The rest of ``x`` is left
    alone. float16 and bfloat16 are added in float32 and rounded once, in the order
    of the ranks r, r - 1, r - 2, ...: the error is at most about u times the sum plus N 2**-24
    times the sum of the magnitudes, with u = 2**-11 for float16 and 2**-8 for bfloat16.

    All ranks call it. Each sends N - 1 messages, all of ``x`` but piece r. The work buffer is two
    pieces, one of them in the type of the sum.
    """
    flat = flat_view(comm, x)
    piece = pieces(comm, flat)
    own = own_piece(comm, flat, piece, out, "sum")
    n, r = comm.size, comm.rank
    with (
        comm.scratch(own.size, like=up(own[:0])) as total,
        comm.scratch(own.size, like=flat) as arriving,
    ):
        total[...] = piece(r).astype(total.dtype)
        for s in range(1, n):
            yield Exchange(comm, piece(r + s), (r + s) % n, arriving, (r - s) % n)
            combine("sum", total, arriving.astype(total.dtype), out=total)
        own[...] = total.astype(own.dtype)
    return own
