"""What must hold for every collective, as checks that each rank runs on its own result.

    run(laws.all_reduce, ring.all_reduce, 10, ranks=4)          in-process ranks
    laws.all_reduce(world(), ring.all_reduce, 10)               the same under mpirun

A check takes the communicator and the collective under test, so that tests, mutants and lessons
share it. The inputs are integers that encode (rank, index): any wrong, swapped, missing or doubled
piece changes the result, and sums are exact in every order and in every dtype used here.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minidist.bounds import bounds
from minidist.comm import Comm

REFERENCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def values(rank: int, n: int, dtype: Any = np.float64) -> np.ndarray:
    """The input of a rank: small integers, different for each rank and index.

    Sums of them over 8 ranks stay below 256, so they are exact in every order in every dtype, also
    in bfloat16, which holds integers up to 2**8.
    """
    return ((7 * rank * rank + 3 * np.arange(n) * (rank + 1)) % 23 + rank).astype(dtype)


def combined(ranks: int, n: int, op: str, dtype: Any = np.float64) -> np.ndarray:
    """The right result, from one process on all inputs, by a plainer route than the ring."""
    inputs = np.stack([values(r, n) for r in range(ranks)])
    result: np.ndarray = REFERENCE[op].reduce(inputs, axis=0).astype(dtype)
    return result


def same(got: np.ndarray, want: np.ndarray, who: str) -> None:
    """Assert equality to the last bit, and show the first difference."""
    assert got.dtype == want.dtype, f"{who}: dtype {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{who}: shape {got.shape}, not {want.shape}"
    wrong = np.flatnonzero(got.reshape(got.size) != want.reshape(want.size))
    assert not wrong.size, (
        f"{who}: element {wrong[0]} is {got.reshape(got.size)[wrong[0]]}, should be "
        f"{want.reshape(want.size)[wrong[0]]} ({wrong.size} of {got.size} are wrong)"
    )


def all_reduce(
    comm: Comm, collective: Any, n: int, op: str = "sum", dtype: Any = np.float64
) -> None:
    """Every rank has the combination of all inputs, in place or not, at the cost of the ring.

    The buffer is a view into a larger array, of which nothing else may change.
    """
    who = f"rank {comm.rank} of {comm.size}, all_reduce of {n} {op}"
    want = combined(comm.size, n, op, dtype)
    room = np.full(n + 2, -1, dtype)
    room[1:-1] = values(comm.rank, n, dtype)
    out = np.full(n, -1, dtype)
    sent = comm.traffic.messages, comm.traffic.bytes
    assert collective(comm, room[1:-1], out, op=op) is out, f"{who}: must return the result"
    same(out, want, who)
    same(room[1:-1], values(comm.rank, n, dtype), f"{who}: the input")
    cost(comm, sent, 2 * (comm.size - 1), 2 * n - _piece(comm, n, 0) - _piece(comm, n, 1), out)
    collective(comm, room[1:-1], op=op)
    same(room[1:-1], want, f"{who} in place")
    same(room[[0, -1]], np.full(2, -1, dtype), f"{who}: memory outside the view")


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
    who = f"rank {comm.rank} of {comm.size}, reduce_scatter of {n} {op}"
    cut = offsets or bounds(n, comm.size)
    mine = slice(cut[comm.rank], cut[comm.rank + 1])
    want = combined(comm.size, n, op, dtype)[mine]
    x, out = values(comm.rank, n, dtype), np.full(want.size, -1, dtype)
    sent = comm.traffic.messages, comm.traffic.bytes
    same(collective(comm, x, out, op=op, offsets=offsets), want, who)
    same(x, values(comm.rank, n, dtype), f"{who}: the input")
    cost(comm, sent, segments * (comm.size - 1), n - want.size, x)
    same(collective(comm, x, op=op, offsets=offsets), want, f"{who} in place")
    rest = values(comm.rank, n, dtype)
    rest[mine] = want
    same(x, rest, f"{who}: the rest of the input")


def all_gather(
    comm: Comm, collective: Any, n: int, dtype: Any = np.float64, offsets: Any = None
) -> None:
    """Every rank has every piece."""
    who = f"rank {comm.rank} of {comm.size}, all_gather of {n}"
    cut = list(offsets or bounds(n, comm.size))
    pieces = [values(r, b - a, dtype) for r, (a, b) in enumerate(pairwise(cut))]
    want = np.concatenate(pieces)
    out = np.full(n, -1, dtype)
    sent = comm.traffic.messages, comm.traffic.bytes
    same(collective(comm, pieces[comm.rank], out, offsets=offsets), want, who)
    right = (comm.rank + 1) % comm.size
    cost(comm, sent, comm.size - 1, n - (pieces[right].size if comm.size > 1 else n), out)
    x = np.full(n, -1, dtype)
    x[cut[comm.rank] : cut[comm.rank + 1]] = pieces[comm.rank]
    same(collective(comm, x, offsets=offsets), want, f"{who} in place")


def cost(comm: Comm, before: tuple[int, int], messages: int, elements: int, like: Any) -> None:
    """Assert what this rank has sent since ``before``; on one rank nothing is ever sent."""
    sent = comm.traffic.messages - before[0], comm.traffic.bytes - before[1]
    want = (messages, elements * like.itemsize) if comm.size > 1 else (0, 0)
    assert sent == want, f"rank {comm.rank} sent {sent} messages and bytes, should be {want}"


def _piece(comm: Comm, n: int, after: int) -> int:
    """The size of the piece of the rank that comes ``after`` this one."""
    cut, r = bounds(n, comm.size), (comm.rank + after) % comm.size
    return cut[r + 1] - cut[r]


def broadcast(comm: Comm, collective: Any, n: int, root: int, dtype: Any = np.float64) -> None:
    """Every rank has what the root had; N - 1 messages in all."""
    root %= comm.size
    who = f"rank {comm.rank} of {comm.size}, broadcast of {n} from {root}"
    want, x = values(root, n, dtype), values(comm.rank, n, dtype)
    before = comm.traffic.messages
    assert collective(comm, x, root=root) is x, f"{who}: must return the result"
    same(x, want, who)
    sent = comm.gather_objects(comm.traffic.messages - before)
    assert sum(sent) == comm.size - 1, f"{who}: {sum(sent)} messages in all"
    assert max(sent) <= (comm.size - 1).bit_length(), f"{who}: a rank sent {max(sent)} messages"


def reduce(
    comm: Comm, collective: Any, n: int, root: int, op: str = "sum", dtype: Any = np.float64
) -> None:
    """The root has the combination of all inputs, in place or not; nobody's input changes."""
    root %= comm.size
    who = f"rank {comm.rank} of {comm.size}, reduce of {n} {op} to {root}"
    want = combined(comm.size, n, op, dtype)
    x, out = values(comm.rank, n, dtype), np.full(n, -1, dtype)
    sent = comm.traffic.messages, comm.traffic.bytes
    result = collective(comm, x, out, op=op, root=root)
    cost(comm, sent, comm.rank != root, n * (comm.rank != root), x)
    same(x, values(comm.rank, n, dtype), f"{who}: the input")
    assert result is (out if comm.rank == root else None), f"{who}: must return the result"
    same(out, want if comm.rank == root else np.full(n, -1, dtype), who)
    collective(comm, x, op=op, root=root)
    same(x, want if comm.rank == root else values(comm.rank, n, dtype), f"{who} in place")


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
