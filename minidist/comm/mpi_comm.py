"""A communicator of MPI processes: messages, control and groups over mpi4py.

Control (`gather_objects` and what stands on it) uses MPI's own collectives. They have a space of
their own inside the communicator, and they are the non-blocking ones, so that the collectives which
this rank has started go on while it waits for the others.
"""

import pickle
import time
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from mpi4py import MPI

from minidist.arrays import Array
from minidist.comm.base import Comm, RankState, Request
from minidist.comm.checks import check_disjoint
from minidist.comm.headers import Headers
from minidist.comm.mpi_requests import (
    Carrier,
    Control,
    MpiRequest,
    Receive,
    Send,
    misfit,
    wait_for_parts,
)
from minidist.comm.patience import requests_text, swap_text
from minidist.comm.tags import TagSpace
from minidist.comm.traffic import Traffic
from minidist.comm.transport import Transport
from minidist.errors import MismatchError


class MpiComm(Comm):
    """A group of MPI processes as one of them sees it. ``mpi`` is its own MPI communicator."""

    def __init__(
        self,
        mpi: MPI.Intracomm,
        name: str,
        state: RankState,
        transport: Transport,
        parent: Traffic | None = None,
    ) -> None:
        super().__init__(mpi.rank, mpi.size, name, state, parent)
        self.mpi, self.transport = mpi, transport
        mpi.Set_errhandler(MPI.ERRORS_RETURN)  # exceptions, whatever the original does
        headers = Headers(mpi.Dup()) if transport.debug else None
        tags = TagSpace(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0)
        self.carrier = Carrier(mpi, transport, headers, tags)
        self._status = MPI.Status()

    @property
    def time(self) -> float:
        """Seconds on this rank's clock, from an arbitrary start."""
        return time.perf_counter()

    def compute(self, seconds: float) -> None:
        """Do nothing for this long."""
        time.sleep(seconds)

    # --- messages ---------------------------------------------------------------------------------

    def _isend(self, x: Array, to: int, tag: int) -> Request:
        return Send(self, self.carrier, x, to, tag)

    def _irecv(self, x: Array, source: int, tag: int) -> Request:
        return Receive(self, self.carrier, x, source, tag)

    def exchange(
        self,
        send: Array | None,
        to: int | None,
        recv: Array | None,
        source: int | None,
        tag: int = 0,
    ) -> None:
        """Send and receive at once: see `Comm.exchange`."""
        plain = not (self.transport.debug or self.transport.synchronous or self.state.started)
        if plain and not tag and self._certain(recv, source) and self._certain(send, to):
            check_disjoint(send, recv, self, "exchange")
            self._swap(send, to, recv, source)  # type: ignore[arg-type]
        else:
            super().exchange(send, to, recv, source, tag)

    def _certain(self, x: Array | None, peer: int | None) -> bool:
        """Whether one MPI call may carry ``x`` as it is, so that no check can find a fault."""
        return (
            type(x) is np.ndarray
            and x.flags.carray  # contiguous and writable
            and x.dtype.isnative
            and not x.dtype.hasobject
            and x.nbytes <= self.transport.largest
            and type(peer) is int
            and 0 <= peer < self.size
        )

    def _swap(self, send: Array, to: int, recv: Array, source: int) -> None:
        """Exchange by one MPI_Sendrecv: a third of the time of two requests and a wait.

        Every ring runs through here, and between cores that several ranks share each microsecond
        of Python counts for all of them.
        """
        status, tag, nbytes = self._status, self.carrier.tags.tag(self.number, 0), recv.nbytes
        leaves, comes = (send, send.nbytes, MPI.BYTE), (recv, nbytes, MPI.BYTE)
        self.traffic.add(self.op, send.nbytes)
        self.transport.patience.waiting = (swap_text, self, to, source)
        try:
            self.mpi.Sendrecv(leaves, to, tag, comes, source, tag, status)
        except MPI.Exception as error:
            if error.Get_error_class() != MPI.ERR_TRUNCATE:
                raise
            raise misfit(self, recv, source, status.Get_count(MPI.BYTE)) from error
        finally:
            self.transport.patience.waiting = None
        if (came := status.Get_count(MPI.BYTE)) != nbytes:
            raise misfit(self, recv, source, came)

    def _block(self, requests: Sequence[Request], all_of_them: bool) -> None:
        if self.transport.debug:
            all_of_them = False  # each header that arrives lets a payload in, which others wait for
        mine = [r for r in requests if isinstance(r, MpiRequest)]
        self.transport.patience.waiting = (requests_text, mine)
        try:
            wait_for_parts(mine, all_of_them)
        finally:
            self.transport.patience.waiting = None

    # --- control, groups --------------------------------------------------------------------------

    def _meet(self, op: str, value: object) -> list[Any]:
        mine = pickle.dumps((op, self.op, value))
        sizes = np.zeros(self.size, np.int64)
        self._control(op, self.mpi.Iallgather(np.array([len(mine)]), sizes))
        ends = np.cumsum(sizes).tolist()
        everything = bytearray(ends[-1])
        self._control(op, self.mpi.Iallgatherv(mine, (everything, sizes.tolist())))
        brought = [pickle.loads(everything[e - n : e]) for e, n in zip(ends, sizes, strict=True)]
        calls = [f"{their} of {of}" for their, of, _ in brought]
        if len(set(calls)) > 1:
            told = ", ".join(f"rank {r} {call}" for r, call in enumerate(calls))
            raise MismatchError(
                f"rank {self.rank}: ranks of {self.name} meet in different calls: {told}; all "
                "ranks must make the same calls in the same order"
            )
        return [v for _, _, v in brought]

    def _control(self, op: str, handle: MPI.Request) -> None:
        self.wait_all([Control(self, op, handle)])

    def split(self, color: object, key: int = 0, name: str = "split") -> Self | None:
        """Split into groups: see `Comm.split`."""
        everyone = self._meet("split", (color, key))
        colors = list(dict.fromkeys(c for c, _ in everyone))
        order = sorted(range(self.size), key=lambda rank: everyone[rank][1])  # ties stay by rank
        group = MPI.UNDEFINED if color is None else colors.index(color)
        mpi = cast(MPI.Intracomm, self.mpi.Split(group, order.index(self.rank)))
        if color is None:
            return None
        return type(self)(mpi, name, self.state, self.transport, self.traffic)

    def free(self) -> None:
        """Give the MPI communicator back, which is otherwise kept to the end of the program.

        All ranks call it, after their last message here. Groups split off are freed one by one.
        """
        self.mpi.Free()
        if self.carrier.headers is not None:
            self.carrier.headers.mpi.Free()
        if self.traffic.parent is None:
            self.transport.patience.close()
