"""A timeline of one training step: what each rank computed, sent and waited for, and when.

    rank 0  compute        |forward embed|forward block 0| .. |backward block 0|..|wait|update|
            ring: block 1                                   |hop 0|hop 1|hop 2|
            ring: block 0                                           |hop 0| hop 1  |hop 2|
            held                     ____|----------------|_____|___
    rank 1  ...

Every bucket has a track of its own, as several rings are in flight at once and the events of one
track must nest, never overlap. An arrow leads from each send to its receive. Hops that run beside
backward are communication that costs nothing; the "wait" span is what was not hidden.

The file is Chrome's trace format ("Trace Event Format", Google, 2016), as JSON: it opens in
https://ui.perfetto.dev and chrome://tracing. Times are microseconds since a barrier. Ranks of one
machine read the same clock; clocks of different machines are aligned by when its last rank left the
barrier, so an arrow between machines may be off by as long as a barrier takes. On a GPU a span ends
when its kernels are queued; what they take shows where the host waits for them.
"""

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from minidist.collectives import Steps
from minidist.comm import Comm
from minidist.parallel.watch import Watch

COMPUTE, HELD = "compute", "held"


class Event(NamedTuple):
    """Something that took time on one track. Seconds since the start of the trace."""

    name: str
    track: str
    start: float
    stop: float
    arrows: tuple[tuple[str, str], ...] = ()
    """Messages that leave ("s") or arrive ("f") here, by a name that is unique in the step."""


class Trace(Watch):
    """Collects the events of this rank. `clock` gives seconds; `origin` is its time zero.

    `held` gives the bytes that the rank holds; they are noted around each block of computation, and
    before each hop.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        origin: float = 0.0,
        held: Callable[[], int] | None = None,
    ) -> None:
        self.clock, self.origin, self.held = clock, origin, held
        self.events: list[Event] = []
        self.memory: list[tuple[float, int]] = []

    def now(self) -> float:
        """Return the seconds since the start of the trace."""
        return self.clock() - self.origin

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record the `with` block as one event of computation."""
        start = self.now()
        self._note()
        yield
        self.events.append(Event(name, COMPUTE, start, self.now()))
        self._note()

    def _note(self) -> None:
        if self.held is not None:
            self.memory.append((self.now(), self.held()))

    def ring(self, name: str, steps: Steps) -> Steps:
        """Pass the exchanges on and record each: posted when yielded, done when resumed."""
        track, begin = f"ring: {name}", self.now()
        for hop, exchange in enumerate(box := _Returned(steps)):
            start, rank = self.now(), exchange.comm.rank
            self._note()
            yield exchange
            arrows = ("s", f"{name}/{hop}/{rank}"), ("f", f"{name}/{hop}/{exchange.source}")
            self.events.append(Event(f"hop {hop}", track, start, self.now(), arrows))
        self.events.append(Event(f"all-reduce {name}", track, begin, self.now()))
        return box.value


class _Returned:
    """Iterates over a generator and keeps the value that it returns."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.value: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.value = yield from self.steps


def start_trace(comm: Comm, held: Callable[[], int] | None = None) -> Trace:
    """Return a trace whose zero is the same moment on every rank. All ranks call it."""
    comm.barrier()
    left = comm.gather_objects((platform.node(), time.perf_counter()))
    return Trace(origin=max(at for host, at in left if host == platform.node()), held=held)


def write_trace(comm: Comm, trace: Trace, path: Path) -> None:
    """Gather every rank's events and let rank 0 write them. All ranks call it."""
    everyone = comm.gather_objects((trace.events, trace.memory))
    if comm.rank == 0:
        records = [r for rank, found in enumerate(everyone) for r in chrome_events(rank, *found)]
        document = {
            "traceEvents": records,
            "displayTimeUnit": "ms",
            "otherData": {"clock": "microseconds since a common barrier", "ranks": comm.size},
        }
        path.write_text(json.dumps(document))


def chrome_events(
    rank: int, events: list[Event], memory: Sequence[tuple[float, int]] = ()
) -> list[dict[str, Any]]:
    """Return one rank's events as Chrome trace records: `pid` is the rank, `tid` the track.

    Bytes held are a counter, which viewers draw as a line.
    """
    tracks = list(dict.fromkeys([COMPUTE, *(e.track for e in events)]))
    records = [_label("process_name", rank, 0, f"rank {rank}")]
    records += [_label("thread_name", rank, tid, track) for tid, track in enumerate(tracks)]
    for event in sorted(events, key=lambda e: (e.start, -e.stop)):
        where = {"pid": rank, "tid": tracks.index(event.track)}
        kind = "compute" if event.track == COMPUTE else "communication"
        start, stop = round(event.start * 1e6, 3), round(event.stop * 1e6, 3)
        times = {"ts": start, "dur": round(stop - start, 3)}
        records.append({"ph": "X", "name": event.name, "cat": kind, **times, **where})
        for end, message in event.arrows:
            at = {"ts": start} if end == "s" else {"ts": stop, "bp": "e"}
            arrow = {"ph": end, "id": message, "name": "message", "cat": "message"}
            records.append({**arrow, **at, **where})
    for moment, held in memory:
        at = {"ts": round(moment * 1e6, 3), "args": {"bytes": held}}
        records.append({"ph": "C", "name": HELD, "pid": rank, **at})
    return records


def _label(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
