"""Arguments as the emulator's runtime takes them: values in memory, and the ranges they may touch.

    slots    [ 0.5 | address of x | address of y | 1000 ]       8 bytes each
    ranges   [ x: begin, size, argument 1, read only ] [ y: begin, size, argument 2, writable ]

Arrays are used in place, never copied, so arguments that overlap do so in the kernel, too.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from minidist.cuda.arguments import Memory, Table, Value
from minidist.cuda.signature import Signature


class Range(ctypes.Structure):
    """md_range of runtime/abi.h."""

    _fields_ = [
        ("begin", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("argument", ctypes.c_int32),
        ("writable", ctypes.c_int32),
    ]


def slots(values: Sequence[Value]) -> tuple[Any, Any]:
    """Return the values side by side, and the addresses of each: what a kernel is called with."""
    filled = (ctypes.c_uint64 * max(1, len(values)))()
    for i, value in enumerate(values):
        if isinstance(value, Memory):
            filled[i] = value.address
        else:
            raw = value.tobytes()
            ctypes.memmove(ctypes.addressof(filled) + 8 * i, raw, len(raw))
    begin = ctypes.addressof(filled)
    return filled, (ctypes.c_void_p * len(filled))(*(begin + 8 * i for i in range(len(filled))))


def ranges(signature: Signature, values: Sequence[Value]) -> Any:
    """Return the memory that the arguments allow, as an array of Range."""
    found: list[tuple[int, int, int, bool]] = []
    for i, (parameter, value) in enumerate(zip(signature.parameters, values, strict=True)):
        may = not parameter.kind.const
        if isinstance(value, Memory) and value.nbytes:
            found.append((value.address, value.nbytes, i, may and parameter.kind.stars == 1))
        if isinstance(value, Table):
            found += [(m.address, m.nbytes, -1, may) for m in value.entries if m.nbytes]
    writable = [(begin, size) for begin, size, _, may in found if may]
    table = (Range * len(found))()
    for i, (begin, size, argument, may) in enumerate(found):
        # What one argument may write is no error when another shows it as const.
        also = any(b < begin + size and begin < b + s for b, s in writable)
        table[i] = Range(begin, size, argument, int(may or also))
    return table
