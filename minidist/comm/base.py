"""Comm: what every distributed algorithm in this project is a function of.

A `Comm` is one rank's view of a group of ranks. There are two kinds with this one interface: ranks
inside this process (`minidist.comm.inprocess`) and real MPI processes (`minidist.comm.mpi`).

    rank 0                         rank 1
    comm.isend(x, to=1)  ------->  comm.irecv(y, source=0)      one message, matched by
                                                                (communicator, channel, tag)

`channel(op)` is the same ranks with a fresh tag space and the name of an operation. Every
collective call takes one, so nobody ever chooses a collective's tag, any number of them may be in
flight, and a rank that is in another operation than its peer is recognised instead of summed.

Messages are matched in the order in which they were sent, as MPI guarantees between two ranks
(MPI 4.1, section 3.5).
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from minidist.arrays import Array
from minidist.comm.checks import (
    check_array,
    check_disjoint,
    check_peer,
    check_tag,
    check_writable,
)
from minidist.comm.scratch import Scratch
from minidist.comm.traffic import Traffic
from minidist.errors import RankError


class Request(ABC):
    """One message on its way, as seen by one of its two ranks."""

    def __init__(self, comm: "Comm", kind: str, peer: int, tag: int) -> None:
        self.comm, self.kind, self.peer, self.tag = comm, kind, peer, tag
        self.done = False

    def wait(self) -> None:
        """Block until the message is complete: sent and reusable, or received and in place."""
        self.comm.wait_all([self])

    @abstractmethod
    def test(self) -> bool:
        """Say whether the message is complete, without blocking. In-process, others may run."""

    @abstractmethod
    def finish(self) -> bool:
        """Complete the message if it has arrived, and say so; never lets another rank run."""

    def __str__(self) -> str:
        way = "send to" if self.kind == "send" else "receive from"
        return f"{way} rank {self.peer}, tag {self.tag}, in {self.comm.where}"


class InFlight(Protocol):
    """A collective that has been started: its open requests, and a way to go on."""

    requests: Sequence[Request]

    def advance(self) -> None:
        """Go as far as the messages that have arrived allow."""


class RankState:
    """What all communicators of one rank share."""

    def __init__(self) -> None:
        self.started: list[InFlight] = []
        self.scratch = Scratch()


class Comm(ABC):
    """A group of ranks as one of them sees it.

    Attributes: ``rank`` (0 .. size - 1), ``size``, ``name`` of the group, ``op`` (the operation
    that this channel belongs to), ``traffic`` (what this rank has sent, here and in its splits).
    """

    def __init__(
        self, rank: int, size: int, name: str, state: RankState, parent: Traffic | None = None
    ) -> None:
        self.rank, self.size, self.name = rank, size, name
        self.state = state
        self.traffic = Traffic(parent)
        self.op, self.label, self.number = "point to point", "", 0
        self.memo: dict[str, Any] = {}  # what is found out once about this group
        self._channels = itertools.count(1)

    @property
    def where(self) -> str:
        """The operation and the group, for messages to people: 'all_reduce #3 (ring) of world'."""
        call = f"{self.op} #{self.number}" if self.number else self.op
        return f"{call}{f' ({self.label})' if self.label else ''} of {self.name}"

    def at(self, action: str) -> str:
        """Begin a message to people: which rank does what, and in which operation."""
        return f"rank {self.rank}, {action} in {self.where}"

    # --- messages -----------------------------------------------------------------------------

    def isend(self, x: Array, to: int, tag: int = 0) -> Request:
        """Start sending the contiguous array ``x``, which must not change until it is done."""
        self._check_send(x, to, tag)
        self.traffic.add(self.op, x.nbytes)
        return self._isend(x, to, tag)

    def irecv(self, x: Array, source: int, tag: int = 0) -> Request:
        """Start receiving into the contiguous array ``x``, which is undefined until it is done."""
        check_peer(source, self, "receive")
        check_tag(tag, self, "receive")
        check_array(x, self, "receive")
        check_writable(x, self, "receive")
        return self._irecv(x, source, tag)

    def _check_send(self, x: Array, to: int, tag: int) -> None:
        check_peer(to, self, "send")
        check_tag(tag, self, "send")
        check_array(x, self, "send")

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        """Send ``x`` and block until it may be changed again.

        Whether this waits for the receiver depends on size and library (small messages are
        buffered), so a program in which both sides send first works at 1 KiB and hangs at 1 MiB.
        """
        self.isend(x, to, tag).wait()

    def recv(self, x: Array, source: int, tag: int = 0) -> None:
        """Receive into ``x``; blocks until it is there."""
        self.irecv(x, source, tag).wait()

    def exchange(
        self,
        send: Array | None,
        to: int | None,
        recv: Array | None,
        source: int | None,
        tag: int = 0,
    ) -> None:
        """Send and receive at once; either half may be None (MPI_Sendrecv).

        Both halves are on their way before either is waited for, so ranks that exchange with each
        other, in pairs or all round a ring, never wait for each other, whatever the size.
        """
        self._check_exchange(send, to, recv, tag)  # before anything is on its way
        requests = []
        if recv is not None and source is not None:
            requests.append(self.irecv(recv, source, tag))
        if send is not None and to is not None:
            requests.append(self.isend(send, to, tag))
        self.wait_all(requests)

    def _check_exchange(
        self, send: Array | None, to: int | None, recv: Array | None, tag: int
    ) -> None:
        """Refuse what `irecv` would not see: it comes first, and would be left over."""
        if send is not None and recv is not None:
            check_disjoint(send, recv, self, "exchange")
        if send is not None and to is not None:
            self._check_send(send, to, tag)

    # --- waiting: every wait also advances whatever this rank has started ------------------------

    def wait_any(self, requests: Sequence[Request]) -> Request:
        """Block until one of the requests is complete and return it."""
        if not requests:
            raise RankError(f"{self.at('wait_any')}: no request was given")
        while True:
            for request in requests:
                if request.finish():
                    return request
            self._block_and_advance(requests, all_of_them=False)

    def wait_all(self, requests: Iterable[Request]) -> None:
        """Block until all of the requests are complete."""
        waiting = [r for r in requests if not r.finish()]
        while waiting:
            self._block_and_advance(waiting, all_of_them=True)
            waiting = [r for r in waiting if not r.finish()]

    def _block_and_advance(self, requests: Sequence[Request], all_of_them: bool) -> None:
        started = self.state.started
        others = [r for s in started for r in s.requests if not r.done and r not in requests]
        self._block([*requests, *others], all_of_them and not others)
        for collective in list(started):
            collective.advance()

    # --- groups -----------------------------------------------------------------------------------

    def channel(self, op: str, label: str = "") -> Self:
        """Return the same ranks with a fresh tag space, under the name of an operation.

        Costs no communication: ranks number their channels alike because they take them in the same
        order. So take it at the start of a call, never inside a collective that is under way.
        ``label`` tells apart two calls of one operation, such as two buckets of equal size.
        """
        other = object.__new__(type(self))  # a copy; copy.copy takes four times as long
        other.__dict__.update(self.__dict__)
        other.op, other.label, other.number = op, label, next(self._channels)
        return other

    @abstractmethod
    def split(self, color: object, key: int = 0, name: str = "split") -> Self | None:
        """Return the group of the ranks that gave the same ``color``, ordered by (key, rank).

        All ranks of this communicator call it. ``color`` None: this rank is in no group.
        """

    def barrier(self) -> None:
        """Block until all ranks are here. All ranks call it."""
        self._meet("barrier", None)

    def gather_objects(self, value: object) -> list[Any]:
        """Return every rank's object, on every rank: for control, not for data (pickled)."""
        return self._meet("gather_objects", value)

    def bcast_object(self, value: object, root: int = 0) -> Any:
        """Return the object of rank ``root`` on every rank: for control, not for data (pickled)."""
        check_peer(root, self, "bcast_object")
        mine = value if self.rank == root else None
        return self._meet(f"bcast_object from rank {root}", mine)[root]

    def scratch(self, size: int, like: Array) -> AbstractContextManager[Array]:
        """Lend a flat work array of ``size`` elements like ``like``, for a ``with`` block."""
        return self.state.scratch.lend(size, like)

    # --- what each world does in its own way ------------------------------------------------------

    @property
    @abstractmethod
    def time(self) -> float:
        """Seconds on this rank's clock: virtual in-process, real under MPI."""

    @abstractmethod
    def compute(self, seconds: float) -> None:
        """Stand in for computation that takes ``seconds``."""

    @abstractmethod
    def _isend(self, x: Array, to: int, tag: int) -> Request: ...

    @abstractmethod
    def _irecv(self, x: Array, source: int, tag: int) -> Request: ...

    @abstractmethod
    def _block(self, requests: Sequence[Request], all_of_them: bool) -> None:
        """Block until one, or each, of these open requests could be finished."""

    @abstractmethod
    def _meet(self, op: str, value: object) -> list[Any]:
        """Bring an object, block until all ranks did under the same ``op``; return all by rank."""
