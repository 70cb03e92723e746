"""Measure all that can be measured from where the ranks are: each kind of link, and adding.

    ranks      0     1     2     3          node:     ranks 0 and 1, the first two of one node
    hosts     ant   ant   bee   bee         network:  ranks 0 and 2, the first two of two nodes
                                            process:  two ranks that are made inside rank 0

All sizes are measured in rounds, one after the other and then again, so that a moment in which the
machine is busy with something else spoils one round of each size and not all rounds of one.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from minidist.comm import Comm, Link, run
from minidist.network.fit import fit, worst_error
from minidist.network.levels import Place, level
from minidist.network.pingpong import ping_pong
from minidist.ops.reduce import combine

TRIPS = 5  # round trips of one size in one round
ADDED = (4096, 16384, 65536, 262144, 1048576, 4194304)  # bytes of the arrays that are added


@dataclass(frozen=True)
class Table:
    """Times of one kind of link: a message of ``nbytes[i]`` took ``seconds[i]``."""

    nbytes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def link(self) -> Link:
        """The line through the times. Raises as `fit` does."""
        return fit(self.nbytes, self.seconds)

    @property
    def error(self) -> float:
        """How far off that line is at its worst: 0.2 is twenty percent."""
        return worst_error(self.link, self.nbytes, self.seconds)


def pairs(places: Sequence[Place]) -> dict[str, tuple[int, int]]:
    """Return for each kind of link between the ranks at these places the first pair that has it."""
    found: dict[str, tuple[int, int]] = {}
    for b in range(len(places)):
        for a in range(b):
            found.setdefault(level(places[a], places[b]), (a, b))
    return found


def between(
    comm: Comm,
    nbytes: Sequence[int],
    rounds: int = 1,
    a: int = 0,
    b: int = 1,
    clock: Callable[[], float] | None = None,
) -> Table:
    """Return the times of messages of these sizes between ranks ``a`` and ``b``.

    All ranks call it and get the same; only the two exchange data, the others wait. Each time is
    the shortest of ``rounds * TRIPS`` round trips, halved. ``clock``: see `ping_pong`.
    """
    x, best = np.ones(max(nbytes), np.uint8), [math.inf] * len(nbytes)
    if comm.rank in (a, b):
        for _ in range(rounds):
            for i, n in enumerate(nbytes):
                best[i] = min(best[i], ping_pong(comm, x[:n], TRIPS, a, b, clock))
    seconds: list[float] = comm.bcast_object(best, root=a)
    return Table(tuple(nbytes), tuple(seconds))


def in_process(nbytes: Sequence[int], rounds: int = 1) -> Table:
    """Return the times between two ranks inside this process, in real seconds: no MPI needed.

    A message there is two copies, out of the sender's array and into the receiver's, and changes
    from one greenlet to the other.
    """
    tables = run(between, nbytes, rounds, 0, 1, time.perf_counter, ranks=2, stuck_after=600)
    table: Table = tables[0]
    return table


def adding(
    rounds: int = 1,
    nbytes: Sequence[int] = ADDED,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds that `ops.reduce.combine` takes to add one byte of float32 to another.

    The slope of the line through the times for arrays of these sizes: what a call
    costs, whatever its size, is left out.
    """
    best = [math.inf] * len(nbytes)
    arrays = [(np.ones(n // 4, np.float32), np.ones(n // 4, np.float32)) for n in nbytes]
    for _ in range(1 + rounds * TRIPS):  # the first finds the arrays out of the caches; it is slow
        for i, (mine, theirs) in enumerate(arrays):
            start = clock()
            combine("sum", mine, theirs, out=mine)
            best[i] = min(best[i], clock() - start)
    return 1 / fit(nbytes, best).bandwidth
