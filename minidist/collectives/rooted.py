"""Gather and scatter: pieces of an array to one rank, and from one rank.

    scatter   rank 0: [A B C]  ->  rank 0: [A]   rank 1: [B]   rank 2: [C]        gather: back

Each piece travels once, straight between its rank and the root. A tree would need only log2 N
rounds, but passes pieces on, so it sends more bytes; MPI libraries take it for small pieces.
"""

from collections.abc import Sequence
from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import check_apart, check_result, flat_view, pieces
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.comm.checks import check_peer, check_writable


@Collective
def gather(
    comm: Any,
    x: Array,
    out: Array | None = None,
    offsets: Sequence[int] | None = None,
    root: int = 0,
) -> Steps:
    """Collect ``x`` of every rank as the pieces of ``out`` on ``root``; return it there, else None.

    Piece r of ``out`` is what rank r gives; cut by `bounds`, or by ``offsets`` (N + 1 rising
    numbers). ``out`` is ignored on other ranks. All ranks call it; each but the root sends ``x`` in
    one message.
    """
    check_peer(root, comm, "root")
    mine = flat_view(comm, x)
    if comm.rank != root:
        yield Exchange(comm, send=mine, to=root)
        return None
    whole = flat_view(comm, out)
    check_writable(whole, comm, "result")
    piece = pieces(comm, whole, offsets)
    check_result(comm, piece(root), mine)
    check_apart(comm, whole, mine)
    piece(root)[...] = mine
    for source in range(comm.size):
        if source != root:
            yield Exchange(comm, recv=piece(source), source=source)
    return out


@Collective
def scatter(
    comm: Any,
    x: Array | None,
    out: Array,
    offsets: Sequence[int] | None = None,
    root: int = 0,
) -> Steps:
    """Give piece r of ``x`` of rank ``root`` to rank r, into ``out``, and return it.

    ``x`` is ignored on other ranks. Cut as in `gather`. All ranks call it; the root sends N - 1
    messages, all of ``x`` but its own piece.
    """
    check_peer(root, comm, "root")
    mine = flat_view(comm, out)
    check_writable(mine, comm, "result")
    if comm.rank != root:
        yield Exchange(comm, recv=mine, source=root)
        return out
    whole = flat_view(comm, x)
    piece = pieces(comm, whole, offsets)
    check_result(comm, mine, piece(root))
    check_apart(comm, mine, whole)
    mine[...] = piece(root)
    for to in range(comm.size):
        if to != root:
            yield Exchange(comm, send=piece(to), to=to)
    return out
