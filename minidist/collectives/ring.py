"""The ring: reduce-scatter, all-gather and all-reduce in which every rank sends equally much.

Each rank sends to its right neighbour and receives from its left one. The array is cut into one
piece per rank. In step s of reduce-scatter, rank r passes on piece r - 1 - s, which it has just
added its own part to; after N - 1 steps it holds the complete sum of piece r:

    3 ranks, pieces A B C        rank 0         rank 1         rank 2
    start                        a0 b0 c0       a1 b1 c1       a2 b2 c2
    step 0: pass on              c0 -> 1        a1 -> 2        b2 -> 0
    step 1: pass on              b20 -> 1       c01 -> 2       a12 -> 0
    end: complete                A              B              C

All-gather turns the ring once more with the complete pieces. An all-reduce is both: every rank
sends 2 (N - 1) / N of the array, less than twice its size however many ranks there are. No
algorithm can do with less (Patarasuk and Yuan, 2009, J. Parallel Distrib. Comput. 69(2)); the price
is 2 (N - 1) messages one after the other, so small arrays want a tree instead.

Every piece is summed along one chain of ranks and then copied, so the result is the same to the
last bit on every rank. (A ring in which each rank adds up what passes by, starting from its own,
lets replicas drift apart: open-mpi/ompi#12258.)

`shift` is one turn of the ring by itself: what every rank holds moves on to the right.
"""

from collections.abc import Sequence
from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import check_apart, check_result, flat_view, own_piece, pieces
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.comm.checks import check_writable
from minidist.ops.reduce import combine


@Collective
def shift(comm: Any, x: Array, out: Array) -> Steps:
    """Send ``x`` to the right neighbour, and return ``out``, which comes from the left one.

    ``out``: of the size and dtype of ``x``, and memory of its own. All ranks call it; each sends
    ``x`` in one message. On one rank ``out`` becomes a copy of ``x``.
    """
    send, recv = flat_view(comm, x), flat_view(comm, out)
    check_result(comm, recv, send)
    n, r = comm.size, comm.rank
    if n == 1:
        check_writable(recv, comm, "result")
        recv[...] = send
    else:
        yield Exchange(comm, send, (r + 1) % n, recv, (r - 1) % n)
    return out


@Collective
def reduce_scatter(
    comm: Any,
    x: Array,
    out: Array | None = None,
    op: str = "sum",
    offsets: Sequence[int] | None = None,
) -> Steps:
    """Combine ``x`` over all ranks; rank r ends with piece r of the result, and returns it.

    ``x``: any shape, of equal size and dtype on all ranks. Pieces are ranges of it as a flat array,
    cut by ``bounds(x.size, N)`` or by ``offsets`` (N + 1 rising numbers from 0 to x.size, equal on
    all ranks). ``out``: a flat array for piece r; without it, piece r of ``x`` is overwritten. The
    rest of ``x`` is left alone. ``op``: "sum", "max" or "min".

    All ranks call it. Each sends N - 1 messages, all of ``x`` but piece r: (N - 1) / N of its bytes
    where N divides it. The work buffer is two pieces: one arrives while the other is sent.

    float16 and bfloat16 are added in float32 and rounded once a hop, so N - 1 times: the error of a
    sum is at most (N - 1) u (1 + u)**(N - 2) times the sum of the magnitudes, with u = 2**-11 for
    float16 and 2**-8 for bfloat16. Large groups should reduce in float32.
    """
    flat = flat_view(comm, x)
    piece = pieces(comm, flat, offsets)
    own = own_piece(comm, flat, piece, out, op)
    n, r = comm.size, comm.rank
    longest = max(piece(i).size for i in range(n)) if n > 1 else 0
    with comm.scratch(2 * longest, like=flat) as room:
        passing = piece(r - 1)
        for s in range(n - 1):
            mine = piece(r - 2 - s)
            arriving = room[s % 2 * longest :][: mine.size]  # the other half is still being sent
            yield Exchange(comm, passing, (r + 1) % n, arriving, (r - 1) % n)
            passing = own if s == n - 2 else arriving
            combine(op, arriving, mine, out=passing)
    return own


@Collective
def all_gather(
    comm: Any, x: Array, out: Array | None = None, offsets: Sequence[int] | None = None
) -> Steps:
    """Collect the pieces of all ranks on every rank, and return the whole.

    In place without ``out``: ``x`` is the whole, of which piece r is right on rank r. Otherwise
    ``x`` is this rank's piece and ``out`` the whole. Pieces are cut as in `reduce_scatter`.

    All ranks call it. Each sends N - 1 messages, all of the whole but piece r + 1: (N - 1) / N of
    its bytes where N divides it.
    """
    whole = x if out is None else out
    flat = flat_view(comm, whole)
    check_writable(flat, comm, "result")
    piece = pieces(comm, flat, offsets)
    n, r = comm.size, comm.rank
    if out is not None:
        mine = flat_view(comm, x)
        check_result(comm, piece(r), mine)
        check_apart(comm, flat, mine)
        piece(r)[...] = mine
    for s in range(n - 1):
        yield Exchange(comm, piece(r - s), (r + 1) % n, piece(r - 1 - s), (r - 1) % n)
    return whole


@Collective
def all_reduce(comm: Any, x: Array, out: Array | None = None, op: str = "sum") -> Steps:
    """Combine ``x`` over all ranks, so that every rank has the same result, and return it.

    In place without ``out``, else ``x`` is left alone. Any shape, any size (0, and fewer elements
    than ranks, included), equal size and dtype on all ranks. Bit-identical on every rank.

    All ranks call it. Each sends 2 (N - 1) messages, 2 (N - 1) / N of the bytes of ``x`` where N
    divides it (twice the bytes less pieces r and r + 1 otherwise). Half types: `reduce_scatter`.
    """
    if out is None:
        yield from reduce_scatter.steps(comm, x, op=op)
        return (yield from all_gather.steps(comm, x))
    check_result(comm, out, x)
    own = pieces(comm, flat_view(comm, out), None)(comm.rank)
    yield from reduce_scatter.steps(comm, x, own, op)
    return (yield from all_gather.steps(comm, out))
