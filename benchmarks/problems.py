"""What a collective is given, and what must come out: the data of `collectives`.

    3 ranks, 7 elements        rank 0       rank 1     rank 2         pieces as in `bounds`
    all_gather is given        [A A A]      [B B]      [C C]
    must come out              [A A A B B C C]         on every rank

Every rank works out the exact answer by itself. Inputs are small integers, so sums are exact in any
order and any type. They repeat after 1021 elements, a prime, so pieces that have been mixed up
differ; ranks draw different ones. What is to be overwritten holds a value that no answer is made
of, so a collective that leaves something out is found out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minidist.arrays import Array
from minidist.bounds import bounds
from minidist.comm import Comm

PERIOD = 1021
UNTOUCHED = 121


@dataclass(frozen=True)
class Problem:
    """A collective of ``count`` elements in all, as one rank sees it.

    ``host`` is the node of each rank; ``nodes`` what `hierarchical.nodes` made of that.
    """

    comm: Comm
    count: int
    dtype: np.dtype
    op: str = "sum"
    root: int = 0
    nodes: Any = None

    @cached_property
    def cut(self) -> list[int]:
        """Where the pieces of the ranks begin and end."""
        return bounds(self.count, self.comm.size)

    @property
    def lengths(self) -> list[int]:
        """The number of elements of each piece."""
        return np.diff(self.cut).tolist()

    def own(self, whole: np.ndarray) -> np.ndarray:
        """Return this rank's piece."""
        return whole[self.cut[self.comm.rank] : self.cut[self.comm.rank + 1]]

    @property
    def send_offsets(self) -> list[int]:
        """Where an all-to-all cuts what this rank has: piece r goes to rank r."""
        return self.cut

    @property
    def recv_offsets(self) -> list[int]:
        """Where it cuts what comes: a piece as long as this rank's own, from every rank."""
        length = self.lengths[self.comm.rank]
        return [s * length for s in range(self.comm.size + 1)]


class Data(NamedTuple):
    """Host arrays of one rank.

    ``given``: the input of a call that is not in place. ``start``: the one array of a call in
    place, before it. None: there is no such mode. ``want``: what must come out on this rank, or
    None if it gets nothing.
    """

    given: np.ndarray | None
    start: np.ndarray | None
    want: np.ndarray | None

    def input(self, mode: str) -> np.ndarray | None:
        """Return what a call of this mode is given, or None if there is no such mode."""
        return self.given if mode == "out-of-place" else self.start


Call: TypeAlias = Callable[[], Array | None]
"""Does a collective, and returns the array that holds this rank's result."""

Way: TypeAlias = Callable[[Problem, Array, Array | None], Call | None]
"""Binds a call to x and out, in place without out; returns None if there is no such mode."""


# --- values ---------------------------------------------------------------------------------------


def values(p: Problem, rank: int) -> np.ndarray:
    """Return what a rank has."""
    return np.resize(period(p, rank), p.count).astype(p.dtype)


def period(p: Problem, rank: int) -> np.ndarray:
    """Return the numbers that a rank repeats: so small that bfloat16 can add those of all ranks."""
    most = max(1, min(7, 256 // p.comm.size))
    return np.random.default_rng(rank).integers(0, most, PERIOD, endpoint=True)


def combined(p: Problem) -> np.ndarray:
    """Return the exact reduction over all ranks."""
    reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum}[p.op].reduce
    return np.resize(reduce([period(p, r) for r in range(p.comm.size)]), p.count).astype(p.dtype)


def collected(p: Problem) -> np.ndarray:
    """Return an array of which each piece is that of its rank."""
    whole = untouched(p, p.count)
    for r in range(p.comm.size):
        whole[p.cut[r] : p.cut[r + 1]] = values(p, r)[p.cut[r] : p.cut[r + 1]]
    return whole


def untouched(p: Problem, count: int) -> np.ndarray:
    """Return an array that waits for a result."""
    return np.full(count, UNTOUCHED, p.dtype)


# --- the collectives ------------------------------------------------------------------------------


def all_reduce(p: Problem) -> Data:
    mine = values(p, p.comm.rank)
    return Data(mine, mine, combined(p))


def reduce_scatter(p: Problem) -> Data:
    mine = values(p, p.comm.rank)
    return Data(mine, mine, p.own(combined(p)))


def all_gather(p: Problem) -> Data:
    whole, start = collected(p), untouched(p, p.count)
    p.own(start)[:] = p.own(whole)
    return Data(p.own(whole), start, whole)


def broadcast(p: Problem) -> Data:
    whole = values(p, p.root)
    return Data(None, whole if p.comm.rank == p.root else untouched(p, p.count), whole)


def reduce(p: Problem) -> Data:
    mine = values(p, p.comm.rank)
    return Data(mine, mine, combined(p) if p.comm.rank == p.root else None)


def all_to_all(p: Problem) -> Data:
    pieces = [p.own(values(p, s)) for s in range(p.comm.size)]
    return Data(values(p, p.comm.rank), None, np.concatenate(pieces))


def gather(p: Problem) -> Data:
    whole = collected(p)
    return Data(p.own(whole), None, whole if p.comm.rank == p.root else None)


def scatter(p: Problem) -> Data:
    whole = values(p, p.root)
    return Data(whole if p.comm.rank == p.root else untouched(p, 0), None, p.own(whole))


class Kind(NamedTuple):
    """A collective: its data, ``share`` of the bytes that a wire carries, what its options are."""

    data: Callable[[Problem], Data]
    share: Callable[[int], float]
    reduces: bool = False
    rooted: bool = False


def others(n: int) -> float:
    """All but a rank's own piece."""
    return (n - 1) / n


KINDS = {
    "all_reduce": Kind(all_reduce, lambda n: 2 * others(n), reduces=True),
    "reduce_scatter": Kind(reduce_scatter, others, reduces=True),
    "all_gather": Kind(all_gather, others),
    "broadcast": Kind(broadcast, lambda n: 1.0, rooted=True),
    "reduce": Kind(reduce, lambda n: 1.0, reduces=True, rooted=True),
    "all_to_all": Kind(all_to_all, others),
    "gather": Kind(gather, others, rooted=True),
    "scatter": Kind(scatter, others, rooted=True),
}
