"""What a kernel is given and what must come out: the shape of every table of cases, and the judge.

    CASES = [Case("add_f32 of 5", "elementwise.cu", "add_f32", grid, block, arguments, reference)]

    arguments()       a fresh list of arguments in host memory: NumPy arrays, numbers, None, and
                      lists of arrays, for tables of pointers
    reference(*args)  gets untouched copies of them, and says for each array that the kernel writes
                      what must be in it, and how far off an element may be

The same cases run emulated, in several orders of the threads, and on a GPU. Nothing here imports
pytest or CuPy, so that a benchmark can run them as well.

Arrays of one case may share memory: an array passed twice, or views of one array, stay so on the
device. What lies in the same memory beside a view must be untouched afterwards, as must be every
array that the reference does not name.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minidist import cuda
from minidist.arrays import to_host

TINY = 2.0**-126
"""The smallest normal float32: a GPU may flush what is smaller to zero (CuPy has it do so)."""

U32, U16, UB16 = 2.0**-24, 2.0**-11, 2.0**-8
"""Half a unit in the last place of 1, in float32, float16, bfloat16: the error of one rounding."""


class Want(NamedTuple):
    """Exact values, and the largest absolute error per element.

    0 asks for equal numbers, and an infinite error says that anything may be there.
    """

    values: np.ndarray
    allowed: Any = 0.0


@dataclass(frozen=True)
class Case:
    """One launch. ``reference`` returns {`Key` of an argument: Want}."""

    name: str
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Callable[[], list[Any]]
    reference: Callable[..., Mapping[Any, Want]]  # by Key
    shared_mem: int = 0
    any_order: bool = True  # the same bits in any order of threads; not so with float atomics


Key = int | tuple[int, int]
"""The position of an array among the arguments; (position, place) in a list of arrays."""


def arrays_of(arguments: Sequence[Any]) -> dict[Key, Any]:
    """Return all arrays among the arguments, on the host or on a device."""
    found: dict[Key, Any] = {}
    for i, x in enumerate(arguments):
        if isinstance(x, list):
            found |= {(i, j): y for j, y in enumerate(x)}
        elif hasattr(x, "dtype") and x.ndim:
            found[i] = x
    return found


def change(arguments: Sequence[Any], into: Callable[[Any], Any]) -> list[Any]:
    """Return the arguments with every array replaced."""

    def changed(x: Any) -> Any:
        if isinstance(x, list):
            return [into(y) for y in x]
        return into(x) if hasattr(x, "dtype") and x.ndim else x

    return [changed(x) for x in arguments]


def whole(x: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def offset(x: np.ndarray) -> int:
    """Return how many bytes a view begins behind the array that owns its memory."""
    return x.ctypes.data - whole(x).ctypes.data if x.size else 0


def elsewhere(arguments: Sequence[Any], into: Callable[[np.ndarray], Any]) -> list[Any]:
    """Return the arguments in other memory: the same views of what ``into`` makes of each owner.

    ``into`` returns an array as long, on the host or on a device.
    """
    moved: dict[int, Any] = {}

    def view(x: np.ndarray) -> Any:
        owner = whole(x)
        if id(owner) not in moved:
            moved[id(owner)] = into(owner.reshape(-1))
        start = offset(x) // x.itemsize
        return moved[id(owner)][start : start + x.size].reshape(x.shape)

    return change(arguments, view)


# --- running --------------------------------------------------------------------------------------


def launch(case: Case, arguments: Sequence[Any]) -> None:
    """Run the kernel of a case once, where the arrays are."""
    kernel = loaded(case.file).get_function(case.kernel)
    kernel(case.grid, case.block, arguments, shared_mem=case.shared_mem)


loaded = functools.cache(cuda.load)


def on_device(case: Case, xp: Any) -> str:
    """Run a case on the arrays of CuPy, or of NumPy, and return what is wrong, or ''."""
    before = case.arguments()
    owners: list[Any] = []

    def upload(owner: np.ndarray) -> Any:  # CuPy has no bfloat16: its bits go as uint16
        plain = owner.dtype.kind in "iufb"
        owners.append(xp.array(owner if plain else owner.view(np.uint16)))
        return owners[-1]

    launch(case, elsewhere(before, upload))
    back = iter(owners)
    return wrong(case, before, elsewhere(before, lambda x: to_host(next(back)).view(x.dtype)))


# --- the judge ------------------------------------------------------------------------------------


def wrong(case: Case, before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return what is wrong after a launch, or ''.

    ``before`` is what `case.arguments` gave, ``after`` the same views (`elsewhere`) of host arrays
    that hold what the launch has left.
    """
    old, new = arrays_of(before), arrays_of(after)
    wanted = case.reference(*change(before, np.copy))
    for key, want in wanted.items():
        if text := _differs(new[key], want):
            return f"{case.name}: argument {key}: {text}"
    results = {key: old[key] for key in wanted}
    for key in old:
        if text := _touched(old[key], new[key], results.values()):
            return f"{case.name}: argument {key}: {text}"
    return ""


def _differs(got: np.ndarray, want: Want) -> str:
    values = np.asarray(want.values)
    if got.shape != values.shape:
        return f"the reference has shape {values.shape}, the argument {got.shape}"
    if got.dtype.kind in "iub":  # float64 does not hold all of them
        mine, true = got, values
        good = mine == true
    else:
        mine, true = got.astype(np.float64), values.astype(np.float64)
        with np.errstate(invalid="ignore"):
            good = np.abs(mine - true) <= want.allowed
        good |= (mine == true) | (np.isnan(mine) & np.isnan(true)) | np.isinf(want.allowed)
    if good.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    allowed = float(np.broadcast_to(want.allowed, true.shape)[at])
    return (
        f"{np.count_nonzero(~good)} of {good.size} elements differ, the first is {at}:"
        f" {mine[at]!r} instead of {true[at]!r}, allowed {allowed:.3g}"
    )


def _touched(old: np.ndarray, new: np.ndarray, results: Iterable[np.ndarray]) -> str:
    """Say what has changed, in the memory around a view, that is no result."""
    changed = _bytes(whole(old)) != _bytes(whole(new))
    for x in results:
        if whole(x) is whole(old):
            changed[offset(x) : offset(x) + x.nbytes] = False
    if not changed.any():
        return ""
    at = (int(np.argmax(changed)) - offset(old)) // old.itemsize
    return f"element {at} has changed and is no result"


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
