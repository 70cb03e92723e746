"""What a check is written with: worlds in rising order, and tables of what every rank holds.

    def test_shift(exercise):
        def program(comm, n):
            out = exercise.shift(comm, coded(comm.rank, n), np.full(n, NOTHING, float))
            return out

        for world in worlds():
            want = [coded((r - 1) % world.ranks, world.n) for r in range(world.ranks)]
            compare("a shift moves ...", world.name, want, world.run(program), describe)

Worlds rise in ranks and then in n, so the first that fails is the smallest counterexample. What
fails inside a world has its name as a note.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from minidist.comm import Comm, run
from minidist.testing.coded import NOTHING, coded, describe
from minidist.testing.ranktable import LawBroken, compare, plain

__all__ = [
    "LARGER",
    "NOTHING",
    "RANKS",
    "LawBroken",
    "World",
    "coded",
    "compare",
    "describe",
    "hold_everywhere",
    "larger_worlds",
    "plain",
    "worlds",
]

RANKS = (1, 2, 3, 4, 5, 8)
STUCK_AFTER = 10.0
"""Seconds that a rank may compute without giving way: these programs need milliseconds."""

LARGER = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,  # the same verdict on the same exercise
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""Settings of hypothesis for the cases after the small ones: `@LARGER` above `@given`."""


@dataclass(frozen=True)
class World:
    """So many ranks, arrays of ``n`` elements, one order of events."""

    ranks: int
    n: int
    seed: int = 0
    synchronous: bool = False

    @property
    def name(self) -> str:
        """The world for people: '3 ranks, n = 4'."""
        return f"{self.ranks} rank{'' if self.ranks == 1 else 's'}, n = {self.n}"

    def run(self, program: Callable[..., Any], *args: Any, links: Any = None) -> list[Any]:
        """Run ``program(comm, n, *args)`` on all ranks; return the results by rank."""
        try:
            return run(
                program,
                self.n,
                *args,
                ranks=self.ranks,
                seed=self.seed,
                synchronous=self.synchronous,
                links=links,
                stuck_after=STUCK_AFTER,
            )
        except LawBroken:
            raise
        except BaseException as error:
            sends = ", sends that wait for their receive" if self.synchronous else ""
            error.add_note(f"{self.name}{sends}")
            raise


def worlds(ranks: Sequence[int] = RANKS, most: int | None = None) -> Iterator[World]:
    """Yield small worlds, smallest first: n from 0 to twice the ranks and 1, or to ``most``.

    Each comes in two orders of events, with and without sends that wait for their receive; worlds
    of more than 5 ranks come with the one or the other in turn, to save time.
    """
    for size in ranks:
        for n in range((2 * size + 1 if most is None else most) + 1):
            if size <= 5 or n % 2 == 0:
                yield World(size, n, seed=n, synchronous=True)
            if size <= 5 or n % 2 == 1:
                yield World(size, n, seed=1000 + n)


larger_worlds: st.SearchStrategy[World] = st.builds(
    World, st.integers(1, 8), st.integers(0, 60), st.integers(0, 10**6), st.booleans()
)
"""Any world of up to 8 ranks and 60 elements, in any order of events."""


def hold_everywhere(law: Callable[..., None], *args: Any, most: int | None = None) -> None:
    """Check a law of `minidist.testing.laws` in all small worlds: ``law(comm, *args, n)``."""

    def program(comm: Comm, n: int) -> None:
        law(comm, *args, n)

    for world in worlds(most=most):
        world.run(program)
