"""What a kernel is given and what must come out: the shape of every table of cases, and the judge.

    CASES = [Case("add_f32 of 5", "elementwise.cu", "add_f32", grid, block, arguments, reference)]

    arguments()       a fresh list of arguments in host memory: NumPy arrays, numbers, None
    reference(*args)  gets untouched copies of them, and says for each array that the kernel writes
                      what must be in it, and how far off an element may be

The same cases run emulated, in several orders of the threads, and on a GPU. Nothing here imports
pytest or CuPy, so that a benchmark can run them as well.

Arrays of one case may share memory: an array passed twice, or views of one array, stay so on the
device. What lies in the same memory beside a view must be untouched afterwards, as must be every
array that the reference does not name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

TINY = 2.0**-126
"""The smallest normal float32: a GPU may flush what is smaller to zero (CuPy has it do so)."""

U32, U16, UB16 = 2.0**-24, 2.0**-11, 2.0**-8
"""Half a unit in the last place of 1, in float32, float16, bfloat16: the error of one rounding."""


class Want(NamedTuple):
    """Exact values, and the largest absolute error per element; 0 asks for equal numbers."""

    values: np.ndarray
    allowed: Any = 0.0


@dataclass(frozen=True)
class Case:
    """One launch. ``reference`` returns {position of an argument: Want}."""

    name: str
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Callable[[], list[Any]]
    reference: Callable[..., Mapping[int, Want]]
    shared_mem: int = 0
    any_order: bool = True  # the same bits in any order of threads; not so with float atomics


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with every array copied: what a reference may look at."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def whole(x: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def offset(x: np.ndarray) -> int:
    """Return how many bytes a view begins behind the array that owns its memory."""
    return x.ctypes.data - whole(x).ctypes.data if x.size else 0


def bits(x: np.ndarray) -> np.ndarray:
    """Return the bytes of an array as a flat array."""
    return np.frombuffer(x.tobytes(), np.uint8)


def wrong(case: Case, before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return what is wrong after a launch, or ''. Both lists are host arrays and numbers.

    ``before`` is what `case.arguments` gave; ``after`` has the same views, after the launch.
    """
    wanted = case.reference(*copies(before))
    for at, want in wanted.items():
        if text := _differs(after[at], want):
            return f"{case.name}: argument {at}: {text}"
    return _touched(case, wanted, before, after)


def _differs(got: np.ndarray, want: Want) -> str:
    values = np.asarray(want.values)
    if got.shape != values.shape:
        return f"the reference has shape {values.shape}, the argument {got.shape}"
    mine, true = got.astype(np.float64), values.astype(np.float64)
    if got.dtype.kind in "iub":  # float64 does not hold all of them
        mine, true = got, values
        good = mine == true
    else:
        with np.errstate(invalid="ignore"):
            near = np.abs(mine - true) <= np.broadcast_to(want.allowed, true.shape)
        good = (mine == true) | near | (np.isnan(mine) & np.isnan(true))
    if good.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    allowed = float(np.broadcast_to(want.allowed, true.shape)[at])
    count = int(np.count_nonzero(~good))
    return (
        f"{count} of {good.size} elements differ, the first is {at}: {mine[at]!r} instead of"
        f" {true[at]!r}, allowed {allowed:.3g}"
    )


def _touched(case: Case, wanted: Mapping[int, Want], before: Sequence, after: Sequence) -> str:
    """Say which memory has changed that no result lies in."""
    arrays = [i for i, x in enumerate(before) if isinstance(x, np.ndarray)]
    may_change = {
        id(whole(before[i])): np.zeros(whole(before[i]).nbytes, bool) for i in arrays
    }
    for i in wanted:
        start = offset(before[i])
        may_change[id(whole(before[i]))][start : start + before[i].nbytes] = True
    for i in arrays:
        old, new = bits(whole(before[i])), bits(whole(after[i]))
        at = np.flatnonzero((old != new) & ~may_change[id(whole(before[i]))])
        if at.size:
            where = (int(at[0]) - offset(before[i])) // before[i].itemsize
            return f"{case.name}: argument {i}: element {where} was changed and is no result"
    return ""


def like(arguments: Sequence[Any], into: Callable[[np.ndarray], Any]) -> list[Any]:
    """Return the arguments elsewhere: the same views of what ``into`` makes of each whole array.

    ``into`` gets a contiguous array that owns its memory; it may return a copy on the host or on a
    device, flat and of bytes or of the same type.
    """
    moved: dict[int, Any] = {}
    result = []
    for x in arguments:
        if isinstance(x, np.ndarray):
            owner = whole(x)
            if id(owner) not in moved:
                moved[id(owner)] = into(owner)
            x = _view(moved[id(owner)], x)
        result.append(x)
    return result


def _view(owner: Any, x: np.ndarray) -> Any:
    """Return the part of ``owner`` that ``x`` is of its own."""
    start = offset(x) // x.itemsize
    return owner.reshape(-1)[start : start + x.size].reshape(x.shape)
