"""Debug mode over MPI: what a message is, said in a message ahead of it.

    sender      header  "10 x float32 in all_reduce #3 (ring)"   payload
    receiver    header  "10 x float32 in all_reduce #3 (ring)"   the same: receives the payload
                         8 x float32 ...                         another: MismatchError

Without headers, two calls of equal size that ranks make in another order are added up with each
other, and a float64 lands in two float32, without a word (horovod/horovod#100, NVIDIA/nccl#1417).
Headers are on a communicator of their own and are not traffic. In-process ranks need none: there
the array itself arrives, with its dtype and the name of its operation.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

from mpi4py import MPI

from minidist.arrays import Array
from minidist.comm.base import Comm
from minidist.errors import MismatchError

SIZE = 256  # bytes; longer texts are cut


def describe(comm: Comm, x: Array) -> bytes:
    """Say what a message is: size, dtype, operation, number of the call, label."""
    label = f" ({comm.label})" if comm.label else ""
    text = f"{x.size} x {x.dtype} in {comm.op} #{comm.number}{label}"
    return text.encode()[:SIZE].ljust(SIZE, b"\0")


def _readable(text: bytes | bytearray) -> str:
    return text.rstrip(b"\0").decode(errors="replace")


class Awaited(NamedTuple):
    """A header on its way to ``came``, and what to do when it says what it should."""

    comm: Comm
    handle: MPI.Request
    mine: bytes
    came: bytearray
    admit: Callable[[], None]


class Headers:
    """The headers of one communicator, on the MPI communicator ``mpi``."""

    def __init__(self, mpi: MPI.Intracomm) -> None:
        self.mpi = mpi
        self._awaited: defaultdict[tuple[int, int], deque[Awaited]] = defaultdict(deque)

    def send(self, comm: Comm, x: Array, to: int, tag: int) -> MPI.Request:
        """Start sending the header of ``x``. ``tag`` is MPI's, the same as that of the payload."""
        return self.mpi.Isend((describe(comm, x), SIZE, MPI.BYTE), to, tag)

    def receive(
        self, comm: Comm, x: Array, source: int, tag: int, admit: Callable[[], None]
    ) -> MPI.Request:
        """Start receiving the header of what is to go into ``x``; ``admit`` gets the payload."""
        came = bytearray(SIZE)
        handle = self.mpi.Irecv((came, SIZE, MPI.BYTE), source, tag)
        self._awaited[source, tag].append(Awaited(comm, handle, describe(comm, x), came, admit))
        return handle

    def admit(self, source: int, tag: int) -> None:
        """Admit the payloads whose headers are there, in the order in which they were asked for.

        The order matters: two payloads from one rank with one tag are told apart by it alone.
        """
        awaited = self._awaited[source, tag]
        while awaited and (not awaited[0].handle or awaited[0].handle.Test()):
            first = awaited.popleft()
            if first.mine != first.came:
                raise MismatchError(
                    f"rank {first.comm.rank} waits for {_readable(first.mine)}, but rank {source} "
                    f"has sent {_readable(first.came)}, in {first.comm.name}; all ranks must make "
                    "the same calls, in the same order, with equal sizes and dtypes"
                )
            first.admit()
        if not awaited:
            del self._awaited[source, tag]
