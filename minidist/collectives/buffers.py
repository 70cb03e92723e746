"""What collectives ask of their arrays, checked before the first exchange."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from minidist.arrays import Array, namespace
from minidist.bounds import bounds
from minidist.comm.checks import check_array, check_writable
from minidist.errors import ArrayError, ConfigError
from minidist.ops.reduce import check_op


def flat_view(comm: Any, x: Array) -> Array:
    """Return the flat view of a contiguous array."""
    check_array(x, comm, "buffer")
    return x.reshape(x.size)


def pieces(comm: Any, whole: Array, offsets: Sequence[int] | None = None) -> Callable[[int], Array]:
    """Return a function that gives piece ``i`` modulo N of a flat array, as a view.

    ``offsets`` are N + 1 rising numbers from 0 to the size; by default those of `bounds`.
    """
    n, size = comm.size, whole.size
    try:
        cut = bounds(size, n) if offsets is None else [index(o) for o in offsets]
    except TypeError:
        raise ConfigError(
            f"{comm.at('offsets')}: {offsets!r} is no list of integers; need {n + 1} rising "
            f"numbers from 0 to {size}"
        ) from None
    if len(cut) != n + 1 or cut[0] != 0 or cut[-1] != size or cut != sorted(cut):
        raise ConfigError(
            f"{comm.at('offsets')}: {cut} do not cut {size} elements into {n} pieces; need {n + 1} "
            f"rising numbers from 0 to {size}"
        )
    return lambda i: whole[cut[i % n] : cut[i % n + 1]]


def own_piece(
    comm: Any, flat: Array, piece: Callable[[int], Array], out: Array | None, op: str
) -> Array:
    """Return the place for this rank's piece of a reduction: ``out``, or the piece itself."""
    check_reduction(comm, op, flat)
    own = piece(comm.rank) if out is None else flat_view(comm, out)
    check_writable(own, comm, "result")
    if out is not None:
        check_result(comm, own, piece(comm.rank))
        check_apart(comm, own, flat)
        if comm.size == 1:
            own[...] = flat
    return own


def check_reduction(comm: Any, op: str, x: Array) -> None:
    """Raise ConfigError, in the name of this rank, unless ``op`` is a reduction of such arrays."""
    try:
        check_op(op, x.dtype)
    except ConfigError as error:
        raise ConfigError(f"{comm.at('reduction')}: {error}") from None


def check_result(comm: Any, result: Array, like: Array) -> None:
    """The place for a result has the size and dtype of what goes there, and memory of its own."""
    check_array(result, comm, "result")
    check_array(like, comm, "buffer")
    if (result.size, result.dtype) != (like.size, like.dtype):
        raise ArrayError(
            f"{comm.at('result')}: {like.size} x {like.dtype} are to go into an array of "
            f"{result.size} x {result.dtype}; make both equal"
        )
    check_apart(comm, result, like)


def check_apart(comm: Any, result: Array, x: Array) -> None:
    """Raise ArrayError if a result would be written over what is still to be read."""
    xp = namespace(x)
    if xp is namespace(result) and xp.may_share_memory(result, x):
        raise ArrayError(
            f"{comm.at('result')}: it shares memory with the input; leave it out to work in place, "
            "where there is such a way, or give it memory of its own"
        )


def working_array(comm: Any, x: Array, out: Array | None, op: str) -> Array:
    """Return the flat array that an all-reduce works in: ``x``, or ``out`` filled with ``x``."""
    mine = flat_view(comm, x)
    check_reduction(comm, op, mine)
    if out is None:
        check_writable(mine, comm, "result")
        return mine
    check_result(comm, out, x)
    result = flat_view(comm, out)
    check_writable(result, comm, "result")
    result[...] = mine
    return result
