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
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from minidist.collectives.simulate import Place, simulate
from minidist.comm import Comm, Link
from minidist.errors import DeadlockError
from minidist.learn.demos import counted
from minidist.learn.real import RANKS as REAL
from minidist.learn.real import run
from minidist.learn.report import DONE
from minidist.testing.coded import NOTHING, coded, describe
from minidist.testing.ranktable import LawBroken, compare, plain

__all__ = [
    "LARGER",
    "NOTHING",
    "NO_CIRCLE",
    "RANKS",
    "LawBroken",
    "World",
    "coded",
    "compare",
    "counted",
    "describe",
    "hold_everywhere",
    "larger_worlds",
    "line",
    "neighbours",
    "never_waits",
    "of_link",
    "one_message",
    "plain",
    "run",
    "run_all",
    "seconds",
    "worlds",
]

RANKS = (1, 2, 3, 4, 5, 8)
STUCK_AFTER = 10.0
"""Seconds that a rank may compute without giving way: these programs need milliseconds."""

LARGER = settings(
    max_examples=5 if REAL.size else 30,
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
        return f"{counted(self.ranks, 'rank')}, n = {self.n}"

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
    of more than 5 ranks come with the one or the other in turn, to save time. On real ranks there
    are only worlds of as many.
    """
    for size in ranks:
        if REAL.size not in (0, size):
            continue
        for n in range((2 * size + 1 if most is None else most) + 1):
            if size <= 5 or n % 2 == 0:
                yield World(size, n, seed=n, synchronous=True)
            if size <= 5 or n % 2 == 1:
                yield World(size, n, seed=1000 + n)


larger_worlds: st.SearchStrategy[World] = st.builds(
    World,
    st.just(REAL.size) if REAL.size else st.integers(1, 8),
    st.integers(0, 60),
    st.integers(0, 10**6),
    st.booleans(),
)
"""Any world of up to 8 ranks and 60 elements, in any order of events."""


def hold_everywhere(law: Callable[..., None], *args: Any, most: int | None = None) -> None:
    """Check a law of `minidist.testing.laws` in all small worlds: ``law(comm, *args, n)``."""

    def program(comm: Comm, n: int) -> None:
        law(comm, *args, n)

    for world in worlds(most=most):
        world.run(program)


NO_CIRCLE = (
    "a rank that waits does nothing else: if each waits for one that waits, all wait for ever. "
    "Whatever the others do, each rank must get to where it receives what they send."
)


def run_all(
    world: World,
    program: Callable[..., Any],
    *args: Any,
    law: str = NO_CIRCLE,
    meets: bool = True,
    **how: Any,
) -> list[Any]:
    """Run a program in a world; a deadlock is a broken law, and its ranks are the table.

    ``meets``: the program ends in a meeting, so that a rank that waits there is done.
    """
    try:
        return world.run(program, *args, **how)
    except DeadlockError as error:
        waiting = [line.strip() for line in str(error).splitlines()[1:]]
        waiting = [DONE.sub(" is done", line) if meets else line for line in waiting]
        sends = ", each send waits for its receive" if world.synchronous else ""
        stuck = f"{world.name}{sends}: no rank can go on"
        raise LawBroken(law, stuck, "\n".join(waiting)) from None


NEVER_WAITS = (
    "a body never waits and sends nothing itself, it yields: only `yield Exchange(comm, ...)`, "
    "and `yield from other.steps(comm, ...)` for another collective. So whoever drives it decides "
    "how to wait."
)


class _Waits(Exception):
    """Rank ``args[0]`` has asked its communicator for ``args[1]``."""


class _Watched(Place):
    """What a body may use of a communicator; whatever else it asks for would wait."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _Waits(self.rank, name)


def never_waits(collective: Any, arguments: Callable[..., tuple[Any, ...]]) -> None:
    """Drive a body without any ranks that could wait; ``arguments(rank, ranks)``: of its call."""

    def steps(place: Place, *args: Any) -> Any:
        return collective.steps(_Watched(place.name, place.rank, place.size, place.room), *args)

    watched: Any = SimpleNamespace(__name__=collective.__name__, steps=steps)
    for ranks in RANKS:
        try:
            simulate(watched, ranks, partial(arguments, ranks=ranks))
        except _Waits as seen:
            rank, name = seen.args
            uses = "a call of another collective" if name == "channel" else f"comm.{name}"
            does = [uses if r == rank else "yield" for r in range(ranks)]
            compare(NEVER_WAITS, counted(ranks, "rank"), ["yield"] * ranks, does, str, "use")


ONE_MESSAGE = "each rank sends one message."


def neighbours(comm: Comm) -> tuple[int, int]:
    """Return the ranks to the right and to the left in a ring."""
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def one_message(world: World, sent: Sequence[int]) -> None:
    """Compare how many messages the ranks have sent."""

    def words(number: int) -> str:
        return counted(number, "message")

    compare(ONE_MESSAGE, world.name, [1] * world.ranks, sent, words, "send")


def seconds(value: object) -> str:
    """A time for people; None for a rank that does not take part."""
    if value is None:
        return "no time"
    return f"{value:g} s" if isinstance(value, float) else repr(value)


def line(link: Link, nbytes: float) -> float:
    """Return the time of one message."""
    return link.latency + nbytes / link.bandwidth


def of_link(link: Link) -> str:
    """A link for people."""
    return f"latency {link.latency:.4g} s, bandwidth {link.bandwidth:.4g} bytes/s"
