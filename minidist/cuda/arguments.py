"""The arguments of a launch: which back end they ask for, and whether they fit the kernel.

    kernel(grid, block, (0.5, x, y, n))
                          │   │  │  └ int    n     a Python int, in range
                          │   │  └─── float* y     an array that may be written
                          │   └─ const float* x    an array of float32, C-contiguous
                          └──── float a            a Python number, made a float32

NumPy arrays ask for the emulator and CuPy arrays for the GPU, so a call looks the same for both.
CUDA itself checks nothing here: a wrong type is garbage in the kernel, and a wrong pointer
overwrites whatever lies there.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist.arrays import asarray_like
from minidist.cuda.kinds import DTYPES, Kind
from minidist.cuda.signature import Parameter, Signature
from minidist.errors import ArgumentError, KernelRangeError

EMULATOR, GPU = "emulator", "gpu"
HOME = {EMULATOR: "NumPy", GPU: "CuPy"}


@dataclass(frozen=True)
class Pointer:
    """Raw memory, for example that of another process: an address, and the bytes behind it."""

    address: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.address < 0 or self.nbytes < 0:
            raise ArgumentError(f"{self} is no memory: address and nbytes are 0 or more")


@dataclass(frozen=True)
class Memory:
    """What a pointer argument points to; ``about`` is for messages, as in "float32[100]".

    An ``itemsize`` of 1 counts bytes.
    """

    address: int
    nbytes: int
    about: str = ""
    itemsize: int = 1


@dataclass(frozen=True)
class Table(Memory):
    """A list of arrays for a pointer to pointers: ``entries``, and ``array`` of their addresses."""

    entries: tuple[Memory, ...] = ()
    array: Any = None


Value = Memory | np.generic  # a pointer, or a scalar of the declared type


def backend(name: str, args: Sequence[Any], wanted: str | None) -> str:
    """Return the back end whose arrays these are; without any, the one that is ``wanted``."""
    found = [(i, home(arg)) for i, given in enumerate(args) for arg in _each(given) if home(arg)]
    if not found:
        if wanted:
            return wanted
        raise ArgumentError(
            f"{name}: no argument is an array, so nothing says where to run; "
            'use cuda.settings(backend="emulator") or backend="gpu"'
        )
    first, where = found[0]
    for i, other in found:
        if other != where:
            raise ArgumentError(
                f"{name}: argument {i} is an array of {HOME[other]}, argument {first} one of "
                f"{HOME[where]}; move one of them, a kernel runs in one place"
            )
    return where


def _each(arg: Any) -> Sequence[Any]:
    return arg if isinstance(arg, (list, tuple)) else (arg,)


def home(arg: Any) -> str:
    """Return the back end that an argument belongs to, or "" if it is no array."""
    if isinstance(arg, np.ndarray):
        return EMULATOR
    return GPU if type(arg).__module__.partition(".")[0] == "cupy" and hasattr(arg, "data") else ""


def convert(signature: Signature, args: Sequence[Any]) -> list[Value]:
    """Return the arguments as the kernel declares them, or raise ArgumentError for the first bad.

    A scalar that does not fit raises KernelRangeError.
    """
    name, declared = signature.name, signature.parameters
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(f"{name}: the arguments are a tuple, (x, n), not {type(args).__name__}")
    if len(args) != len(declared):
        listed = ", ".join(f"{p.kind} {p.name}" for p in declared)
        raise ArgumentError(
            f"{name} takes {len(declared)} arguments and got {len(args)}: it is declared ({listed})"
        )
    return [
        (_pointer if p.kind.stars else _scalar)(f"{name}: argument {i} '{p.name}'", p, arg)
        for i, (p, arg) in enumerate(zip(declared, args, strict=True))
    ]


def _pointer(where: str, parameter: Parameter, arg: Any) -> Value:
    kind = parameter.kind
    if arg is None:
        return Memory(0, 0, "None")
    if kind.stars > 1 and isinstance(arg, (list, tuple)):
        return _table(where, kind, arg)
    if isinstance(arg, Pointer):
        found = Memory(arg.address, arg.nbytes, f"{arg.nbytes} bytes of raw memory")
    elif home(arg):
        found = _array(where, kind, arg)
    else:
        remedy = "np.asarray(...)" if isinstance(arg, (list, tuple)) else "an array, or None"
        raise ArgumentError(
            f"{where} is a {type(arg).__name__}, the kernel declares {kind}: pass {remedy}"
        )
    if found.address % kind.alignment and found.nbytes:
        raise ArgumentError(
            f"{where} begins at an address that is no multiple of {kind.alignment}, as {kind} "
            "needs: pass an array that is not a slice, or a slice that begins at a multiple"
        )
    return found


def _table(where: str, kind: Kind, args: Sequence[Any]) -> Table:
    """Return the addresses of some arrays, in memory where the arrays are."""
    one = Parameter("", Kind(kind.code, 1, kind.const))
    entries = [_pointer(f"{where}[{i}]", one, arg) for i, arg in enumerate(args)]
    memories = tuple(entry for entry in entries if isinstance(entry, Memory))
    addresses = np.array([memory.address for memory in memories], np.uint64)
    first = next((arg for arg in args if home(arg)), addresses)
    array = asarray_like(addresses, first)
    found = _array(where, Kind("u8", 1), array)
    return Table(found.address, found.nbytes, f"table of {len(args)}", 8, memories, array)


def _array(where: str, kind: Kind, array: Any) -> Memory:
    about = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if not same(array.dtype, kind.dtype):
        raise ArgumentError(
            f"{where} is {about}, the kernel declares {kind}: use .astype(...) or another kernel"
        )
    if not array.flags.c_contiguous:
        raise ArgumentError(
            f"{where} is {about} and not C-contiguous (strides {array.strides}): "
            "use ascontiguousarray"
        )
    written = kind.stars == 1 and not kind.const
    if written and not getattr(array.flags, "writeable", True):
        raise ArgumentError(
            f"{where} is {about} and read-only, and the kernel may write to it: pass a copy, "
            "or declare the parameter const"
        )
    host = isinstance(array, np.ndarray)
    address = array.__array_interface__["data"][0] if host else array.data.ptr
    return Memory(int(address), array.nbytes, about, array.itemsize)


def same(given: np.dtype, declared: np.dtype) -> bool:
    """Whether an array of one type is what a kernel declares; uint16 stands in for bfloat16."""
    return given == declared or (declared == DTYPES["bf2"] and given == np.dtype(np.uint16))


def _scalar(where: str, parameter: Parameter, arg: Any) -> Value:
    dtype = parameter.kind.dtype
    if home(arg):
        raise ArgumentError(
            f"{where} is an array, the kernel declares {parameter.kind}: pass a number, x.item()"
        )
    if dtype == DTYPES["bf2"] or dtype.kind == "f":
        return _real(where, dtype, arg)
    try:
        number = operator.index(bool(arg) if isinstance(arg, np.bool_) else arg)
    except TypeError:
        raise ArgumentError(
            f"{where} is {arg!r} ({type(arg).__name__}), the kernel declares {dtype}: "
            "pass a whole number"
        ) from None
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not low <= number <= high:
        raise KernelRangeError(f"{where} is {number}, and {dtype} holds {low} to {high}")
    return _typed(dtype, number)


def _real(where: str, dtype: np.dtype, arg: Any) -> Value:
    # A number of ml_dtypes is one, too, though NumPy does not call it floating.
    if not isinstance(arg, (int, float, np.integer, np.floating, np.bool_, DTYPES["bf2"].type)):
        raise ArgumentError(
            f"{where} is {arg!r} ({type(arg).__name__}), the kernel declares {dtype}: pass a number"
        )
    try:
        number = float(arg)
        with np.errstate(over="ignore"):
            value = _typed(dtype, number)
        fits = math.isinf(number) or not math.isinf(float(value))
    except OverflowError:
        fits = False
    if not fits:
        raise KernelRangeError(f"{where} is {arg}, too large for {dtype}")
    return value


def _typed(dtype: np.dtype, number: float) -> np.generic:
    value: Any = np.array(number).astype(dtype)
    return value[()]  # type: ignore[no-any-return]
