"""What must hold for every collective, as checks that each rank runs on its own result.

    run(laws.all_reduce, ring.all_reduce, 10, ranks=4)          in-process ranks
    laws.all_reduce(world(), ring.all_reduce, 10)               the same under mpirun

A check takes the communicator and the collective under test, so that tests, mutants and lessons
share it. The inputs are integers that encode (rank, index): any wrong, swapped, missing or doubled
piece changes the result, and sums are exact in every order and in every dtype used here. A failure
is a `LawBroken` with what every rank should hold and holds.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from minidist.bounds import bounds
from minidist.collectives.folding import split_ranks
from minidist.comm import Comm
from minidist.testing.inputs import REFERENCE, Claims, Inputs, combined, same, values

__all__ = ["REFERENCE", "combined", "same", "values"]


def _returned(claims: Claims, n: int, result: Any, place: np.ndarray | None) -> None:
    """A collective returns the array that its result is in."""
    law = "a collective returns the array that its result is in, not a copy; None if it has none."
    got = "nothing" if result is None else "its array" if result is place else "something else"
    claims.hold(law, f"n = {n}", "nothing" if place is None else "its array", got, what="return")


INPUT = "the input is left alone unless the result goes there."
OUTSIDE = "nothing outside the array that was handed over is touched."
EVERYBODY = "after an all-reduce every rank has the combination of all inputs, all of it."
PIECE = "after a reduce-scatter rank r has piece r of the combination of all inputs."
REST = "a reduce-scatter in place overwrites piece r of rank r and no other."
PIECES = "after an all-gather every rank has the pieces of all ranks, each in its place."
COPIES = "after a broadcast every rank has what the root had."
ROOT = "after a reduction the root has the combination of all inputs, and nobody else anything."
BITS = (
    "all ranks have the same bits: a sum that begins with another rank on each of them is rounded "
    "in another way, and replicas drift apart."
)
Sends: TypeAlias = Callable[[Comm, int], tuple[int, int]]
"""How many messages and elements a rank should send for an array of n elements."""


def ring_sends(comm: Comm, n: int) -> tuple[int, int]:
    """2 (N - 1) messages: all but piece r, then all but piece r + 1."""
    return 2 * (comm.size - 1), 2 * n - _piece(comm, n, 0) - _piece(comm, n, 1)


def server_sends(comm: Comm, n: int) -> tuple[int, int]:
    """The server, rank 0, sends the sum to all others, each of whom sends it one array."""
    messages = comm.size - 1 if comm.rank == 0 else 1
    return messages, messages * n


def halving_sends(comm: Comm, n: int) -> tuple[int, int]:
    """Halves of halves and back; a pair's even rank sends the whole once, its odd one once more."""
    power, extra = split_ranks(comm.size)
    paired = comm.rank < 2 * extra
    if paired and comm.rank % 2 == 0:
        return 1, n
    me, cut = comm.rank // 2 if paired else comm.rank - extra, bounds(n, power)
    elements, width = n * paired, 1
    while width < power:
        for worker in (me, me ^ width):  # what it has complete, and what its partner is to have
            first = worker // width * width
            elements += cut[first + width] - cut[first]
        width *= 2
    return 2 * (power.bit_length() - 1) + paired, elements


def all_reduce(
    comm: Comm,
    collective: Any,
    n: int,
    op: str = "sum",
    dtype: Any = np.float64,
    sends: Sends | None = ring_sends,
) -> None:
    """Every rank has the combination of all inputs, in place or not, and has sent ``sends``.

    The buffer is a view into a larger array, of which nothing else may change.
    """
    inputs = Inputs(comm.size, n, op, dtype)
    want = inputs.combined()
    room, out = inputs.unset(n + 2), inputs.unset(n)
    room[1:-1] = inputs.of(comm.rank)
    claims = Claims(comm)
    sent = comm.traffic.messages, comm.traffic.bytes
    result = collective(comm, room[1:-1], out, op=op)
    inputs.hold(claims, EVERYBODY, want, out)
    _returned(claims, n, result, out)
    inputs.hold(claims, INPUT, inputs.of(comm.rank), room[1:-1], ", the input")
    if sends is not None:
        _sent(claims, sent, *sends(comm, n), out)
    claims.settle()
    collective(comm, room[1:-1], op=op)
    inputs.hold(claims, EVERYBODY, want, room[1:-1], ", in place")
    around = inputs.unset(2)
    inputs.hold(claims, OUTSIDE, around, room[[0, -1]], ", the memory around the array")
    claims.settle()


def same_bits(comm: Comm, collective: Any, n: int) -> None:
    """The result is the same on all ranks to the last bit, where each order of a sum has another.

    Adding 1e8, 1, -1e8, 1 in float32 gives 0, 1 or 2, as the order will have it.
    """
    x = np.full(n, [1e8, 1, -1e8, 1, 3e-5][comm.rank % 5], np.float32)
    collective(comm, x)
    claims = Claims(comm)
    claims.hold(BITS, f"n = {n}, float32", comm.bcast_object(x), x)
    claims.settle()


def reduce_scatter(
    comm: Comm,
    collective: Any,
    n: int,
    op: str = "sum",
    dtype: Any = np.float64,
    offsets: Sequence[int] | None = None,
    segments: int = 1,
) -> None:
    """Rank r has piece r of the combination; nothing but the place of the result has changed.

    ``segments``: how many messages each piece travels in.
    """
    inputs = Inputs(comm.size, n, op, dtype)
    cut = offsets or bounds(n, comm.size)
    mine = slice(cut[comm.rank], cut[comm.rank + 1])
    want = inputs.combined()[mine]
    x, out, claims = inputs.of(comm.rank), inputs.unset(want.size), Claims(comm)
    sent = comm.traffic.messages, comm.traffic.bytes
    result = collective(comm, x, out, op=op, offsets=offsets)
    inputs.hold(claims, PIECE, want, out)
    inputs.hold(claims, PIECE, want, result, ", what is returned")
    inputs.hold(claims, INPUT, inputs.of(comm.rank), x, ", the input")
    _sent(claims, sent, segments * (comm.size - 1), n - want.size, x)
    claims.settle()
    inputs.hold(claims, PIECE, want, collective(comm, x, op=op, offsets=offsets), ", in place")
    rest = inputs.of(comm.rank)
    rest[mine] = want
    inputs.hold(claims, REST, rest, x, ", in place, the whole array")
    claims.settle()


def all_gather(
    comm: Comm, collective: Any, n: int, dtype: Any = np.float64, offsets: Any = None
) -> None:
    """Every rank has every piece."""
    inputs = Inputs(comm.size, n, dtype=dtype)
    cut = list(offsets or bounds(n, comm.size))
    mine = slice(cut[comm.rank], cut[comm.rank + 1])
    want = np.concatenate([inputs.of(r)[a:b] for r, (a, b) in enumerate(pairwise(cut))])
    x, out, claims = inputs.of(comm.rank)[mine], inputs.unset(n), Claims(comm)
    sent = comm.traffic.messages, comm.traffic.bytes
    result = collective(comm, x, out, offsets=offsets)
    inputs.hold(claims, PIECES, want, out)
    _returned(claims, n, result, out)
    right = (comm.rank + 1) % comm.size
    _sent(claims, sent, comm.size - 1, n - (cut[right + 1] - cut[right]), out)
    claims.settle()
    whole = inputs.unset(n)
    whole[mine] = x
    result = collective(comm, whole, offsets=offsets)
    inputs.hold(claims, PIECES, want, whole, ", in place")
    _returned(claims, n, result, whole)
    claims.settle()


def cost(comm: Comm, before: tuple[int, int], messages: int, elements: int, like: Any) -> None:
    """Assert what each rank has sent since ``before``; on one rank nothing is ever sent."""
    claims = Claims(comm)
    _sent(claims, before, messages, elements, like)
    claims.settle()


def _sent(claims: Claims, before: tuple[int, int], messages: int, elements: int, like: Any) -> None:
    traffic = claims.comm.traffic
    sent = traffic.messages - before[0], traffic.bytes - before[1]
    want = (int(messages), int(elements) * like.itemsize) if claims.comm.size > 1 else (0, 0)
    law = "right is not enough: each rank sends as many messages and bytes as the contract says."
    world = f"n = {like.size}, {like.dtype.name}"
    claims.hold(law, world, want, sent, _messages, "send")


def _messages(sent: tuple[int, int]) -> str:
    return f"{sent[0]} message{'' if sent[0] == 1 else 's'}, {sent[1]} bytes"


def _piece(comm: Comm, n: int, after: int) -> int:
    """The size of the piece of the rank that comes ``after`` this one."""
    cut, r = bounds(n, comm.size), (comm.rank + after) % comm.size
    return cut[r + 1] - cut[r]


def broadcast(comm: Comm, collective: Any, n: int, root: int, dtype: Any = np.float64) -> None:
    """Every rank has what the root had; N - 1 messages in all."""
    root %= comm.size
    inputs = Inputs(comm.size, n, dtype=dtype)
    x, claims = inputs.of(comm.rank), Claims(comm)
    before = comm.traffic.messages
    result = collective(comm, x, root=root)
    sent = comm.traffic.messages - before
    inputs.hold(claims, COPIES, inputs.of(root), x, f", root {root}")
    _returned(claims, n, result, x)
    most = (comm.size - 1).bit_length()
    law = f"a tree sends N - 1 messages in all, and no rank more than log2 N, rounded up: {most}."
    world = f"n = {n}, root {root}, messages"
    claims.hold(law, world, min(sent, most), sent, what="send")
    total = sum(comm.gather_objects(sent))
    claims.hold(law, world, comm.size - 1, total, "{} in all".format, "see")
    claims.settle()


def reduce(
    comm: Comm, collective: Any, n: int, root: int, op: str = "sum", dtype: Any = np.float64
) -> None:
    """The root has the combination of all inputs, in place or not; nobody's input changes."""
    root %= comm.size
    inputs = Inputs(comm.size, n, op, dtype)
    want = inputs.combined()
    x, out, claims = inputs.of(comm.rank), inputs.unset(n), Claims(comm)
    sent = comm.traffic.messages, comm.traffic.bytes
    result = collective(comm, x, out, op=op, root=root)
    _sent(claims, sent, comm.rank != root, n * (comm.rank != root), x)
    inputs.hold(claims, INPUT, inputs.of(comm.rank), x, ", the input")
    _returned(claims, n, result, out if comm.rank == root else None)
    inputs.hold(claims, ROOT, want if comm.rank == root else inputs.unset(n), out)
    claims.settle()
    collective(comm, x, op=op, root=root)
    inputs.hold(claims, ROOT, want if comm.rank == root else inputs.of(comm.rank), x, ", in place")
    claims.settle()


def all_to_all(comm: Comm, collective: Any, counts: Sequence[Sequence[int]]) -> None:
    """Rank s sends ``counts[s][r]`` elements to rank r, which finds them in the order of s."""
    me, who = comm.rank, f"rank {comm.rank} of {comm.size}, all_to_all"
    everyone = range(comm.size)

    def part(source: int, to: int) -> np.ndarray:
        return 1000.0 * source + 100 * to + np.arange(counts[source][to])

    x = np.concatenate([part(me, r) for r in everyone])
    want = np.concatenate([part(s, me) for s in everyone])
    send = [0, *np.cumsum([counts[me][r] for r in everyone]).tolist()]
    recv = [0, *np.cumsum([counts[s][me] for s in everyone]).tolist()]
    out = np.full(want.size, -1.0)
    sent = comm.traffic.messages, comm.traffic.bytes
    same(collective(comm, x, out, send, recv), want, who)
    cost(comm, sent, comm.size - 1, x.size - counts[me][me], x)


def gather_scatter(comm: Comm, gather: Any, scatter: Any, n: int, root: int, offsets: Any) -> None:
    """What is scattered and gathered again is the same; each piece travels once."""
    root %= comm.size
    who = f"rank {comm.rank} of {comm.size}, scatter and gather of {n} at {root}"
    cut = list(offsets or bounds(n, comm.size))
    whole = values(7, n)
    mine = np.full(cut[comm.rank + 1] - cut[comm.rank], -1.0)
    sent = comm.traffic.messages, comm.traffic.bytes
    x = whole.copy() if comm.rank == root else None
    same(scatter(comm, x, mine, offsets, root), whole[cut[comm.rank] : cut[comm.rank + 1]], who)
    alone = comm.rank == root
    cost(comm, sent, (comm.size - 1) * alone, (n - mine.size) * alone, mine)
    sent = comm.traffic.messages, comm.traffic.bytes
    back = gather(comm, mine, np.full(n, -1.0) if alone else None, offsets, root)
    if alone:
        same(back, whole, who)
    cost(comm, sent, not alone, mine.size * (not alone), mine)
