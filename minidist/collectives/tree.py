"""Binomial trees: one rank to all, and all to one, in log2 N rounds.

In each round of a broadcast, every rank that has the array sends it to one that has not, so the
number of holders doubles. Numbers are counted from the root:

    round 0      0 -> 4                          rank v receives from v without its lowest bit,
    round 1      0 -> 2    4 -> 6                and sends to v + 1, v + 2, v + 4, ... below it
    round 2      0 -> 1    2 -> 3    4 -> 5    6 -> 7

A reduction is the same tree with the arrows turned round. Both send the *whole* array log2 N times
one after the other: right for small arrays, where latency is all, and wasteful for large ones
(Thakur, Rabenseifner and Gropp, 2005, Int. J. High Perform. Comput. Appl. 19(1), section 4).
"""

from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import check_reduction, check_result, flat_view
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.comm.checks import check_peer, check_writable
from minidist.ops.reduce import combine


@Collective
def broadcast(comm: Any, x: Array, root: int = 0) -> Steps:
    """Copy ``x`` of rank ``root`` into ``x`` of every rank, and return it.

    All ranks call it, with arrays of equal size and dtype. N - 1 messages of the whole array in
    all; the root sends ceil(log2 N) of them, a rank at most as many. Time: ceil(log2 N) messages.
    """
    check_peer(root, comm, "root")
    whole = flat_view(comm, x)
    parent, children = family(comm, root)
    if parent is not None:
        check_writable(whole, comm, "result")
        yield Exchange(comm, recv=whole, source=parent)
    for child in reversed(children):
        yield Exchange(comm, send=whole, to=child)
    return x


@Collective
def reduce(comm: Any, x: Array, out: Array | None = None, op: str = "sum", root: int = 0) -> Steps:
    """Combine ``x`` over all ranks on rank ``root``, and return the result there, None elsewhere.

    In place on the root without ``out``; ``x`` of the other ranks is never changed, and their
    ``out`` is ignored. ``op``: "sum", "max" or "min".

    All ranks call it. Every rank but the root sends one message of the whole array; the root
    receives ceil(log2 N). The order of the sum is that of the tree, so it does not depend on which
    message comes first. float16 and bfloat16 are added in float32 and rounded once a round.
    """
    check_peer(root, comm, "root")
    mine = flat_view(comm, x)
    check_reduction(comm, op, mine)
    parent, children = family(comm, root)
    place = mine
    if parent is None and out is not None:
        check_result(comm, out, x)
        place = flat_view(comm, out)
    if parent is None:
        check_writable(place, comm, "result")
    room = 0 if not children else mine.size
    with comm.scratch(room if parent is None else 2 * room, like=mine) as rooms:
        arriving, total = rooms[:room], place if parent is None else rooms[room:]
        so_far = mine
        for child in children:
            yield Exchange(comm, recv=arriving, source=child)
            combine(op, so_far, arriving, out=total)
            so_far = total
        if parent is not None:
            yield Exchange(comm, send=so_far, to=parent)
            return None
    if place is not so_far:
        place[...] = so_far
    return x if out is None else out


@Collective
def all_reduce(comm: Any, x: Array, out: Array | None = None, op: str = "sum") -> Steps:
    """Combine ``x`` over all ranks on rank 0 and send the result back along the same tree.

    In place without ``out``. All ranks call it. Bit-identical on every rank. Twice the time of a
    reduction; `doubling` needs half as many messages, on all wires at once.
    """
    result = x if out is None else out
    if out is not None:
        check_result(comm, out, x)
    check_writable(flat_view(comm, result), comm, "result")
    yield from reduce.steps(comm, x, out, op)
    return (yield from broadcast.steps(comm, result))


def family(comm: Any, root: int) -> tuple[int | None, list[int]]:
    """Return the parent of this rank in the tree, None at the root, and its children.

    The child with the fewest ranks behind it comes first: the nearest one.
    """
    n, v = comm.size, (comm.rank - root) % comm.size
    children, bit = [], 1
    while not v & bit and v + bit < n:
        children.append((root + v + bit) % n)
        bit *= 2
    return None if v == 0 else (root + (v & (v - 1))) % n, children
