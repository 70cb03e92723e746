"""Messages over MPI: one of ours is one or more of MPI's.

    isend, irecv of 2500 bytes, at most 1000 in one MPI message:

    debug   [header][ 1000 ][ 1000 ][ 500 ]          the header only in debug mode
            ------- parts, each an MPI request -----

All payload travels as bytes. Types would only let MPI convert between machines of different byte
order, and it has none for bfloat16. One MPI message holds fewer than 2**31 bytes (its counts are
32-bit integers; Open MPI 5 refuses more), so longer ones are cut; the pieces arrive in order.

A message of the wrong size is noticed by its receiver. But Open MPI 5.0.11, within one machine,
first writes the whole message, also beyond the end of the buffer, and then reports it: too late.
So in debug mode a header goes ahead, and the payload is received only if it is what is awaited.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from minidist.arrays import Array
from minidist.comm.base import Comm, Request
from minidist.comm.headers import SIZE, Headers
from minidist.comm.tags import TagSpace
from minidist.comm.transport import Transport
from minidist.errors import MismatchError

REMEDY = "all ranks must make the same calls, in the same order, with equal sizes and dtypes"


@dataclass
class Carrier:
    """What carries the messages of one communicator. ``headers``: in debug mode only."""

    mpi: MPI.Intracomm
    transport: Transport
    headers: Headers | None
    tags: TagSpace


class Part:
    """One MPI message: its request, how many bytes it should have, and its status at the end."""

    __slots__ = ("handle", "nbytes", "status")

    def __init__(self, handle: MPI.Request, nbytes: int) -> None:
        self.handle, self.nbytes, self.status = handle, nbytes, MPI.Status()

    @property
    def open(self) -> bool:
        """Whether MPI still has to complete it; a completed handle becomes null."""
        return bool(self.handle)


class MpiRequest(Request):
    """A message made of MPI messages, its ``parts``."""

    def __init__(self, comm: Comm, kind: str, peer: int, tag: int) -> None:
        super().__init__(comm, kind, peer, tag)
        self.parts: list[Part] = []

    def test(self) -> bool:
        """Say whether the message is complete."""
        return self.finish()

    def finish(self) -> bool:
        """Complete the message if all its parts have arrived."""
        if not self.done and self._arrived():
            self._complete()
            self.done = True
        return self.done

    def explain(self, part: Part, error: MPI.Exception) -> None:
        """Raise a better error than MPI's, if this part is the one that has failed."""

    def _arrived(self) -> bool:
        for part in self.parts:
            try:
                if part.open and not part.handle.Test(part.status):
                    return False
            except MPI.Exception as error:
                self.explain(part, error)
                raise
        return True

    def _complete(self) -> None:
        """What remains to be done when all parts are there."""


class Send(MpiRequest):
    """A message that leaves: the header first, if there is one, then the payload."""

    def __init__(self, comm: Comm, carrier: Carrier, x: Array, to: int, tag: int) -> None:
        super().__init__(comm, "send", to, tag)
        self._way = carrier.transport.staging.way(x)
        self._buffer = self._way.outgoing(x)
        mpi_tag, start = carrier.tags.tag(comm.number, tag), carrier.mpi.Isend
        if carrier.headers is not None:
            self.parts.append(Part(carrier.headers.send(comm, x, to, mpi_tag), SIZE))
        if carrier.transport.synchronous:
            start = carrier.mpi.Issend
        for piece, nbytes in pieces(self._buffer, carrier.transport.largest):
            self.parts.append(Part(start((piece, nbytes, MPI.BYTE), to, mpi_tag), nbytes))

    def _complete(self) -> None:
        self._way.release(self._buffer)


class Receive(MpiRequest):
    """A message that comes. ``admit`` posts the MPI receives; in debug mode after the header."""

    def __init__(self, comm: Comm, carrier: Carrier, x: Array, source: int, tag: int) -> None:
        super().__init__(comm, "receive", source, tag)
        self.x, self._carrier, self._mpi_tag = x, carrier, carrier.tags.tag(comm.number, tag)
        self._way = carrier.transport.staging.way(x)
        self._buffer = self._way.incoming(x)
        self._admitted = False
        if carrier.headers is None:
            self.admit()
        else:
            handle = carrier.headers.receive(comm, x, source, self._mpi_tag, self.admit)
            self.parts.append(Part(handle, SIZE))

    def admit(self) -> None:
        """Post the receives of the payload."""
        self._admitted = True
        start = self._carrier.mpi.Irecv
        self.parts = [
            Part(start((piece, nbytes, MPI.BYTE), self.peer, self._mpi_tag), nbytes)
            for piece, nbytes in pieces(self._buffer, self._carrier.transport.largest)
        ]

    def explain(self, part: Part, error: MPI.Exception) -> None:
        """Raise MismatchError for a message that is too long."""
        wrong = (error.Get_error_class(), part.status.Get_error())
        if not part.open and MPI.ERR_TRUNCATE in wrong:
            raise self._misfit() from error

    def _arrived(self) -> bool:
        if not self._admitted and self._carrier.headers is not None:
            self._carrier.headers.admit(self.peer, self._mpi_tag)
        return self._admitted and super()._arrived()

    def _complete(self) -> None:
        if any(part.status.Get_count(MPI.BYTE) != part.nbytes for part in self.parts):
            raise self._misfit()
        self._way.arrived(self._buffer, self.x)
        self._way.release(self._buffer)

    def _misfit(self) -> MismatchError:
        came = sum(part.status.Get_count(MPI.BYTE) for part in self.parts if not part.open)
        return misfit(self.comm, self.x, self.peer, came)


class Control(MpiRequest):
    """A collective of MPI that this project uses for control, not for data."""

    def __init__(self, comm: Comm, op: str, handle: MPI.Request) -> None:
        super().__init__(comm, op, comm.rank, 0)
        self.parts = [Part(handle, 0)]

    def __str__(self) -> str:
        return f"{self.kind} of {self.comm.name}"


def pieces(buffer: Array, largest: int) -> Iterator[tuple[Array, int]]:
    """Cut a contiguous buffer into pieces of at most ``largest`` bytes; an empty one is one."""
    if buffer.nbytes <= largest:
        yield buffer, buffer.nbytes
        return
    flat = buffer.reshape(-1).view(np.uint8)
    for start in range(0, flat.nbytes, largest):
        piece = flat[start : start + largest]
        yield piece, piece.nbytes


def misfit(comm: Comm, x: Array, source: int, came: int) -> MismatchError:
    """Return the error for a message that has come for ``x`` with another number of bytes."""
    size = f"{came}" if came != x.nbytes else "more"  # some libraries count what fitted
    return MismatchError(
        f"{comm.at('receive')}: waits for {x.size} x {x.dtype}, {x.nbytes} bytes, from rank "
        f"{source}, and {size} have come; {REMEDY}. MINIDIST_DEBUG=1 shows both sides"
    )


def wait_for_parts(requests: Sequence[MpiRequest], all_of_them: bool) -> None:
    """Block until one MPI message of these requests is complete, or all of them are."""
    owners = [(request, part) for request in requests for part in request.parts if part.open]
    handles = [part.handle for _, part in owners]
    statuses = [part.status for _, part in owners]
    try:
        if all_of_them:
            MPI.Request.Waitall(handles, statuses)
        else:
            one = MPI.Status()
            index = MPI.Request.Waitany(handles, one)
            if index != MPI.UNDEFINED:
                owners[index][1].status = one
    except MPI.Exception as error:
        for request, part in owners:
            request.explain(part, error)
        raise
