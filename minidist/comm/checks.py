"""What a message must be, checked before anything leaves: wrong use is a sentence, not a number.

MPI takes a pointer, a count and a datatype on trust. A transposed matrix then arrives scrambled, a
float64 sent into a float32 arrives as garbage, and a short message leaves the rest of the buffer as
it was, all without a word (mpi4py/mpi4py#238, NVIDIA/nccl#1417). Here they are typed errors.
"""

from typing import Protocol

import numpy as np

from minidist.arrays import Array, namespace
from minidist.errors import ArrayError, RankError

TAGS = 1 << 15
"""Tags of one channel are 0 .. TAGS - 1."""


class Caller(Protocol):
    """Who is asking: a communicator, which names its rank and operation only if need be."""

    size: int

    def at(self, action: str) -> str:
        """Begin a message to people: which rank does what, and in which operation."""


def check_array(x: Array, caller: Caller, action: str) -> None:
    """Raise ArrayError unless ``x`` is a C-contiguous array of numbers in native byte order."""
    like_an_array = all(hasattr(x, name) for name in ("dtype", "flags", "nbytes"))
    if not like_an_array or isinstance(x, np.generic):  # which cannot be written into
        raise ArrayError(
            f"{caller.at(action)}: needs an array, got {type(x).__name__}; wrap it with np.array"
        )
    if not x.flags.c_contiguous:
        raise ArrayError(
            f"{caller.at(action)}: the array of shape {x.shape} is not C-contiguous; send "
            "np.ascontiguousarray(x), or receive into a contiguous array and copy"
        )
    if x.dtype.hasobject or not x.dtype.isnative:
        raise ArrayError(
            f"{caller.at(action)}: dtype {x.dtype} cannot travel; use a numeric dtype in native "
            "byte order, or bcast_object / gather_objects for Python objects"
        )


def check_writable(x: Array, caller: Caller, action: str) -> None:
    """Raise ArrayError if ``x`` is read-only, as arrays handed to all in-process ranks are."""
    if not getattr(x.flags, "writeable", True):
        raise ArrayError(f"{caller.at(action)}: the array is read-only; give a copy of it")


def check_peer(peer: int, caller: Caller, action: str) -> None:
    """Raise RankError unless ``peer`` is a rank of the caller's communicator."""
    if isinstance(peer, bool) or not hasattr(peer, "__index__") or not 0 <= peer < caller.size:
        raise RankError(
            f"{caller.at(action)}: there is no rank {peer!r}; ranks are 0 to {caller.size - 1}"
        )


def check_tag(tag: int, caller: Caller, action: str) -> None:
    """Raise RankError unless ``tag`` is in range."""
    if isinstance(tag, bool) or not hasattr(tag, "__index__") or not 0 <= tag < TAGS:
        raise RankError(f"{caller.at(action)}: tag {tag!r} is not an integer from 0 to {TAGS - 1}")


def check_disjoint(a: Array, b: Array, caller: Caller, action: str) -> None:
    """Raise ArrayError if two contiguous arrays share memory: one would change while it is read."""
    xp = namespace(a)
    if xp is namespace(b) and xp.may_share_memory(a, b):
        raise ArrayError(
            f"{caller.at(action)}: what is read and what is written share memory; give the result "
            "memory of its own"
        )
