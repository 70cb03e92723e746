"""Who runs next: ranks inside one process, one at a time.

Each rank is a greenlet: a function with a stack of its own that gives way only where it says so.
The scheduler keeps the ranks that can go on and lets one of them run until it gives way:

    rank 0   ####......####            # runs   . waits for a message   - could run, is not chosen
    rank 1   ----####......##
    rank 2   --------####....##

Without links the next rank is drawn from a seeded generator, so a seed is one order of events, and
any failure can be run again. With links every rank has a clock and the lowest clock goes first,
which makes the virtual times exact (a conservative discrete-event simulation; Chandy and Misra,
1979). When nobody can go on, the ranks are in a deadlock: not suspected, proved.

It lasts about 10 microseconds from rank to rank; threads would take four times as long.
"""

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from greenlet import getcurrent, greenlet

from minidist.comm.watchdog import Watchdog
from minidist.errors import ConfigError, DeadlockError, LivelockError, StuckError


class Cancelled(BaseException):
    """Ends a rank whose world has failed; not an Exception, so that no handler keeps it alive."""


class Wait:
    """What a blocked rank waits for: ``ready()`` gives its wake-up time, or None if unknown yet."""

    def __init__(self, ready: Callable[[], float | None], lines: Callable[[], list[str]]) -> None:
        self.ready, self.lines = ready, lines


class Scheduler:
    """Runs one function per rank; ``turn`` and ``block`` are where a rank gives way."""

    POLLS = 1000  # failed tests per rank, with progress by nobody, that make a livelock

    def __init__(self, size: int, seed: int, timed: bool, stuck_after: float) -> None:
        if type(size) is not int or size < 1:
            raise ConfigError(f"run needs at least one rank, not {size!r}")
        self.size, self.timed = size, timed
        self.clock = [0.0] * size
        self.random = random.Random(seed)
        self.ready: dict[int, float] = dict.fromkeys(range(size), 0.0)  # who can go on, from when
        self.waiting: dict[int, Wait] = {}
        self.polling: dict[int, object] = {}  # what a rank tested last, in vain
        self.finished: set[int] = set()
        self.running = 0
        self.stalled = 0
        self.failure: BaseException | None = None
        self.watchdog = Watchdog(stuck_after)

    @property
    def now(self) -> float:
        """The clock of the rank that runs."""
        return self.clock[self.running]

    # --- the life of a world ----------------------------------------------------------------------

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run all ranks to their end; return their results or raise the first failure."""
        results: list[Any] = [None] * self.size
        self.hub = getcurrent()
        self.greenlets = [greenlet(self._life(r, body, results)) for r, body in enumerate(bodies)]
        with self.watchdog:
            while (rank := self._choose()) is not None:
                self._enter(rank)
                self.greenlets[rank].switch()
        if self.failure is not None:
            raise self.failure
        return results

    def _life(self, rank: int, body: Callable[[], Any], results: list[Any]) -> Callable[[], None]:
        def live() -> None:
            try:
                if self.failure is None:
                    results[rank] = body()
            except Cancelled:
                pass
            except BaseException as error:
                self._fail(rank, error)
            self.finished.add(rank)
            self.ready.pop(rank, None)
            self.progress()

        return live

    def _fail(self, rank: int, error: BaseException) -> None:
        """Keep the first failure; the other ranks are cancelled when they run next."""
        if self.failure is not None:
            return
        if self.watchdog.fired(error):
            frame = traceback.extract_tb(error.__traceback__)[-1]
            error = StuckError(
                f"rank {rank} has computed for more than {self.watchdog.limit:g} s without giving "
                f"way, at {frame.filename}:{frame.lineno} in {frame.name}; is the loop endless? If "
                "not, raise stuck_after"
            )
        error.add_note(f"on rank {rank} of {self.size}")
        self.failure = error

    # --- giving way -------------------------------------------------------------------------------

    def turn(self, me: int) -> None:
        """Let another rank run if the scheduler wants it to; ``me`` can go on at any time."""
        self.ready[me] = self.clock[me]
        self._switch(me)

    def block(self, me: int, wait: Wait) -> None:
        """Give way until ``wait.ready()`` is known, and move the clock of ``me`` to that time."""
        if self.failure is not None:
            raise Cancelled
        at = wait.ready()
        if at is None or self.timed:
            self.waiting[me] = wait
            self.ready.pop(me, None)
            self.wake(me)
            self._switch(me)
            del self.waiting[me]
            at = wait.ready()
        assert at is not None
        self.clock[me] = max(self.clock[me], at)
        self.progress()

    def wake(self, rank: int) -> None:
        """Something has happened that ``rank`` may wait for: look again whether it can go on."""
        wait = self.waiting.get(rank)
        if wait is not None and (at := wait.ready()) is not None:
            self.ready[rank] = max(self.clock[rank], at)

    def failed_test(self, me: int, what: object) -> None:
        """Count a test in vain and give way; too many, with progress by nobody, are a livelock."""
        self.polling[me] = what
        self.stalled += 1
        if self.stalled > self.POLLS * self.size:
            raise LivelockError(
                f"{self.stalled} tests in vain and no progress by any rank; a rank that only tests "
                "must wait, compute or give up at some point\n" + "\n".join(self._report())
            )
        if not self.timed:
            self.turn(me)

    def progress(self) -> None:
        """Something has moved: not a livelock, not stuck."""
        self.stalled = 0
        self.polling.clear()
        self.watchdog.beat()

    def _switch(self, me: int) -> None:
        rank = self._choose()
        if rank is not None and rank != me:
            self._enter(rank)
            self.greenlets[rank].switch()
            self._enter(me)
        if self.failure is not None:
            raise Cancelled

    def _enter(self, rank: int) -> None:
        self.running = rank
        self.watchdog.beat()

    def _choose(self) -> int | None:
        """Return the rank to run now; None when all have finished."""
        alive = self.size - len(self.finished)
        if not alive:
            return None
        if self.failure is None and not self.ready:
            self.failure = DeadlockError("no rank can go on:\n" + "\n".join(self._report()))
        if self.failure is not None:
            return next(r for r in range(self.size) if r not in self.finished)
        candidates = list(self.ready)
        if self.timed:
            first = min(self.ready.values())
            candidates = [r for r in candidates if self.ready[r] == first]
        return candidates[self.random.randrange(len(candidates))]

    def _report(self) -> Iterator[str]:
        """One line a rank: what it waits for, what it tests, or that it has finished."""
        for rank in range(self.size):
            if rank in self.finished:
                yield f"  rank {rank} has finished"
            elif rank in self.waiting:
                yield f"  rank {rank} waits: " + "; ".join(self.waiting[rank].lines())
            elif rank in self.polling:
                yield f"  rank {rank} tests: {self.polling[rank]}"
            else:
                yield f"  rank {rank} could run"
