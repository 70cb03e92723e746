"""Where messages and receives of in-process ranks meet.

    isend  --->  sent[address]       a queue of messages not yet taken
    irecv  --->  posted[address]     a queue of receives not yet served

Whichever comes second finds the other one waiting in its queue, first come first served, and the
two are joined: `hand_over`. Real MPI libraries keep exactly these two queues, under the names
"unexpected messages" and "posted receives".
"""

from collections import defaultdict, deque
from typing import Any, NamedTuple

from minidist.arrays import Array
from minidist.comm.base import Comm, Request
from minidist.comm.links import Link, Links
from minidist.comm.scheduler import Scheduler
from minidist.errors import ConfigError, MismatchError


class Address(NamedTuple):
    """Where a message belongs: group, channel, tag, and two world ranks."""

    context: tuple[Any, ...]
    channel: int
    tag: int
    source: int
    to: int


class InProcessRequest(Request):
    """A send or a receive between two in-process ranks."""

    def __init__(
        self, office: "PostOffice", comm: Comm, kind: str, peer: int, x: Array, address: Address
    ) -> None:
        super().__init__(comm, kind, peer, address.tag)
        self.office, self.x, self.address = office, x, address
        self.me = address.source if kind == "send" else address.to
        self.message: Message | None = None

    def complete_at(self) -> float | None:
        """The time at which the request is complete; None while nobody can know."""
        if self.message is None:
            return None
        if self.kind == "receive":
            return self.message.arrival
        return self.message.taken_at if self.office.synchronous else 0.0

    def test(self) -> bool:
        """Say whether the message is complete; if not, others run first."""
        scheduler = self.office.scheduler
        if scheduler.timed and not self.done:
            scheduler.turn(self.me)  # whoever has a lower clock acts first
        if not self.finish():
            scheduler.failed_test(self.me, self)
        return self.done

    def finish(self) -> bool:
        """Complete the message if this rank's clock has reached its time."""
        at = None if self.done else self.complete_at()
        if at is not None and at <= self.office.scheduler.clock[self.me]:
            if self.kind == "receive":
                self._deliver()
            self.done = True
            self.office.scheduler.progress()
        return self.done

    def _deliver(self) -> None:
        assert self.message is not None
        data, mine, theirs = self.message.data, self.comm, self.message.sender.comm
        if (data.size, data.dtype, theirs.op, theirs.label) != (
            self.x.size,
            self.x.dtype,
            mine.op,
            mine.label,
        ):
            raise MismatchError(
                f"rank {mine.rank} waits for {self.x.size} x {self.x.dtype} in {mine.where}, but "
                f"rank {self.peer} has sent {data.size} x {data.dtype} in {theirs.where}; all "
                "ranks must make the same calls, in the same order, with equal sizes and dtypes"
            )
        self.x[...] = data.reshape(self.x.shape)
        self.message.data = None


class Message:
    """An array on its way: a copy, made at once or, if sends are synchronous, when it is taken."""

    def __init__(self, sender: InProcessRequest, data: Array) -> None:
        self.sender, self.data = sender, data
        self.arrival: float | None = None  # when the last byte is there
        self.taken_at: float | None = None  # when a receive took it


class PostOffice:
    """All mail of one world, and the state of its wires on the virtual clock."""

    def __init__(self, scheduler: Scheduler, links: Links | None, synchronous: bool) -> None:
        self.scheduler, self.links, self.synchronous = scheduler, links, synchronous
        self.sent: dict[Address, deque[Message]] = {}
        self.posted: dict[Address, deque[InProcessRequest]] = {}
        self.busy_until: defaultdict[Any, float] = defaultdict(float)  # by wire

    def send(self, request: InProcessRequest) -> None:
        """Take in a message, or hand it straight to a receive that waits for it."""
        message = request.message = Message(request, request.x)
        if not self.synchronous:
            self._dispatch(message)
        receive = _first(self.posted, request.address)
        if receive is not None:
            self._hand_over(message, receive)
        else:
            self.sent.setdefault(request.address, deque()).append(message)

    def receive(self, request: InProcessRequest) -> None:
        """Serve a receive from the mail that is there, or let it wait."""
        message = _first(self.sent, request.address)
        if message is not None:
            self._hand_over(message, request)
        else:
            self.posted.setdefault(request.address, deque()).append(request)

    def left_over(self) -> list[str]:
        """Return what nobody has sent or received, for people."""
        sends = [m.sender for box in self.sent.values() for m in box]
        receives = [r for box in self.posted.values() for r in box]
        return [f"rank {r.comm.rank}: {r}" for r in [*sends, *receives]]

    def _hand_over(self, message: Message, receive: InProcessRequest) -> None:
        if self.synchronous:
            self._dispatch(message)  # only now do the bytes leave: a rendezvous
        message.taken_at = self.scheduler.now
        receive.message = message
        self.scheduler.wake(receive.me)
        self.scheduler.wake(message.sender.me)

    def _dispatch(self, message: Message) -> None:
        """Copy the bytes and put them on their wire, now."""
        message.data = message.data.copy()
        now = message.arrival = self.scheduler.now
        source, to = message.sender.address.source, message.sender.address.to
        if self.links is not None and source != to:
            link = self.links(source, to)
            if not isinstance(link, Link):
                raise ConfigError(f"links({source}, {to}) is {link!r}: it must return a Link")
            wire = link.name or (source, to)
            begin = max(now, self.busy_until[wire])
            self.busy_until[wire] = begin + message.data.nbytes / link.bandwidth
            message.arrival = self.busy_until[wire] + link.latency


def _first(boxes: dict[Address, deque[Any]], key: Address) -> Any:
    """Take the first item of a box, and the box away when it is empty; None if there is none."""
    box = boxes.get(key)
    if box is None:
        return None
    item = box.popleft()
    if not box:
        del boxes[key]
    return item
