"""Ranks inside this process: the same programs as under MPI, without MPI.

    def program(comm):
        return ring.all_reduce(comm, np.full(3, comm.rank))

    run(program, ranks=4)          # a list of four results

Real messages go through a network or shared memory; here a send copies the array and a receive
copies it out. With ``synchronous=True`` a send is complete only when a receive has taken it, as
with MPI's rendezvous for large messages and always with ``MPI_Ssend``: a program that relies on
buffering then stops with a DeadlockError today instead of hanging on another day.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from minidist.arrays import Array
from minidist.comm.base import Comm, RankState, Request
from minidist.comm.links import Link, Links, as_links
from minidist.comm.meeting import Attendance, Meeting
from minidist.comm.postoffice import Address, InProcessRequest, PostOffice
from minidist.comm.scheduler import Scheduler, Wait
from minidist.comm.traffic import Traffic
from minidist.errors import ConfigError, MismatchError


def run(
    fn: Callable[..., Any],
    *args: Any,
    ranks: int = 4,
    seed: int = 0,
    links: Link | tuple[float, float] | Links | None = None,
    synchronous: bool = False,
    stuck_after: float = 60.0,
) -> list[Any]:
    """Run ``fn(comm, *args)`` on ``ranks`` ranks inside this process; return the result of each.

    ``seed`` fixes the order in which ranks run and messages arrive. ``links`` turns on the virtual
    clock (`minidist.comm.links`). Arrays in ``args`` are the same memory for all ranks, so they are
    handed over read-only. The first failure of a rank is raised here, with a note that names the
    rank, after the others have been cancelled. Raises DeadlockError, LivelockError, MismatchError
    (also for messages that are left over at the end), and StuckError for a rank that computes for
    more than ``stuck_after`` seconds.
    """
    wires = as_links(links)
    scheduler = Scheduler(ranks, seed, wires is not None, stuck_after)
    office = PostOffice(scheduler, wires, synchronous)
    world, meetings = tuple(range(ranks)), dict[Any, Meeting]()
    handed = [_read_only(a) for a in args]

    def body(rank: int) -> Callable[[], Any]:
        comm = InProcessComm(office, meetings, ("world",), world, rank, "world", RankState())
        return lambda: _complete(comm, fn(comm, *handed))

    results = scheduler.run([body(rank) for rank in world])
    if left := office.left_over():
        raise MismatchError(
            "all ranks have finished, but messages are left over; receive what is sent, and wait "
            "for what is posted:\n  " + "\n  ".join(left)
        )
    return results


def _complete(comm: Comm, result: Any) -> Any:
    """Refuse the end of a rank that has started collectives and not waited for them."""
    if started := len(comm.state.started):
        raise MismatchError(
            f"rank {comm.rank} has finished with {started} collectives in flight; wait for each"
        )
    return result


def _read_only(value: Any) -> Any:
    """Return ``value`` with its NumPy arrays, also those in containers, as read-only views."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if type(value) in (list, tuple):
        return type(value)(_read_only(v) for v in value)
    if type(value) is dict:
        return {k: _read_only(v) for k, v in value.items()}
    return value


def _poison(x: Array) -> None:
    """Fill with bytes that are NaN in every float type: until it is done, a receive has no value.

    Real transports write whenever the message comes. Here it would be when the rank waits, and a
    program that looks too early would find what was there before, and seem right.
    """
    if type(x) is np.ndarray:
        x.reshape(x.size).view(np.uint8).fill(255)


class InProcessComm(Comm):
    """A group of in-process ranks as one of them sees it. ``ranks`` are their world ranks."""

    FUZZ = 0.1  # how often a send gives way: enough to vary orders, rare enough to stay fast

    def __init__(
        self,
        office: PostOffice,
        meetings: dict[Any, Meeting],
        context: tuple[Any, ...],
        ranks: tuple[int, ...],
        rank: int,
        name: str,
        state: RankState,
        parent: Traffic | None = None,
    ) -> None:
        super().__init__(rank, len(ranks), name, state, parent)
        self.office, self.meetings, self.context, self.ranks = office, meetings, context, ranks
        self._scheduler, self._me = office.scheduler, ranks[rank]

    @property
    def time(self) -> float:
        """Seconds on this rank's virtual clock."""
        return self._scheduler.clock[self._me]

    def compute(self, seconds: float) -> None:
        """Move this rank's clock on, and give way."""
        if not seconds >= 0:
            raise ConfigError(f"{self.at('compute')}: {seconds!r} s; time does not run backwards")
        self._scheduler.clock[self._me] += seconds
        self._scheduler.progress()
        self._scheduler.turn(self._me)

    def split(self, color: object, key: int = 0, name: str = "split") -> Self | None:
        """Split into groups: see `Comm.split`."""
        everyone = self._meet("split", (color, key))
        context = (*self.context, next(self._channels), color)
        if color is None:
            return None
        order = sorted((k, r) for r, (c, k) in enumerate(everyone) if c == color)
        members = [r for _, r in order]
        return type(self)(
            self.office,
            self.meetings,
            context,
            tuple(self.ranks[r] for r in members),
            members.index(self.rank),
            name,
            self.state,
            self.traffic,
        )

    def _isend(self, x: Array, to: int, tag: int) -> Request:
        if self._scheduler.timed or self._scheduler.random.random() < self.FUZZ:
            self._scheduler.turn(self._me)
        address = Address(self.context, self.number, tag, self._me, self.ranks[to])
        request = InProcessRequest(self.office, self, "send", to, x, address)
        self.office.send(request)
        self._scheduler.progress()
        return request

    def _irecv(self, x: Array, source: int, tag: int) -> Request:
        address = Address(self.context, self.number, tag, self.ranks[source], self._me)
        _poison(x)
        request = InProcessRequest(self.office, self, "receive", source, x, address)
        self.office.receive(request)
        return request

    def _block(self, requests: Sequence[Request], all_of_them: bool) -> None:
        mine = [r for r in requests if isinstance(r, (InProcessRequest, Attendance))]

        def ready() -> float | None:
            times = [r.complete_at() for r in mine]
            known = [t for t in times if t is not None]
            if all_of_them:
                return max(known) if len(known) == len(times) else None
            return min(known, default=None)

        def lines() -> list[str]:
            return [str(r) for r in mine if r.complete_at() is None]

        self._scheduler.block(self._me, Wait(ready, lines))

    def _meet(self, op: str, value: object) -> list[Any]:
        key = (self.context, next(self._channels))
        meeting = self.meetings.setdefault(key, Meeting(op, self.name, self.size))
        meeting.bring(self.rank, op, value, self.time)
        if meeting.ready() is not None:
            del self.meetings[key]
            for rank in self.ranks:
                self._scheduler.wake(rank)
        self.wait_all([Attendance(self, meeting)])
        return meeting.objects()
