"""What went wrong in a kernel, in words: from the runtime's outcome to a Python exception.

    add_f32: write of 4 bytes out of bounds: element 100 of argument 2 'c' (float32[100]),
    at kernels/elementwise.cu:21, in thread (100, 0, 0) of block (0, 0, 0)

The runtime knows an address in the machine code; addr2line (part of binutils, which comes with g++)
finds the line that it was compiled from. Without it the message lacks the line.
"""

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from minidist.cuda.arguments import Memory, Value
from minidist.cuda.signature import Signature
from minidist.cuda.source import PACKAGE, shown
from minidist.errors import KernelError, KernelFault, KernelTimeout

(FINISHED, STOPPED, OUT_OF_BOUNDS, BAD_ADDRESS, STACK_OVERFLOW, DIVISION_BY_ZERO, DIVERGENT_BARRIER,
 DEADLOCK, ASSERTION, MISALIGNED, INDEX, BAD_MASK, CONST_WRITE) = range(13)  # fmt: skip

WHAT = {
    BAD_ADDRESS: "access to an address where there is no memory",
    STACK_OVERFLOW: "stack overflow: the local variables of a thread do not fit",
    DIVISION_BY_ZERO: "division of a whole number by zero, or of the smallest one by -1",
    DIVERGENT_BARRIER: "threads of a block wait at different barriers",
    DEADLOCK: "deadlock: every thread waits for another",
    ASSERTION: "an assertion failed",
    MISALIGNED: "misaligned access",
    INDEX: "index out of bounds",
    BAD_MASK: "wrong mask of lanes",
}
TOLD = {DIVERGENT_BARRIER, DEADLOCK, STOPPED}  # about a whole block: the text says who and where

OWN = str(PACKAGE / "cuda" / "emulation")  # lines there are the emulator's, not the kernel's
FAR = 1 << 30  # bytes


class Outcome(ctypes.Structure):
    """md_outcome of runtime/abi.h."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("argument", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("size", ctypes.c_uint32),
        ("write", ctypes.c_int32),
        ("pc", ctypes.c_uint64),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("barriers", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("accesses", ctypes.c_uint64),
        ("text", ctypes.c_char * 8192),
    ]

    kind: int
    argument: int
    offset: int
    size: int
    write: int
    pc: int
    block: Sequence[int]
    thread: Sequence[int]
    barriers: int
    switches: int
    accesses: int
    text: bytes


def error(
    outcome: Outcome,
    signature: Signature,
    values: Sequence[Value],
    library: Path,
    timeout: float | None,
) -> KernelError | None:
    """Return the exception that an outcome deserves, or None if the kernel finished."""
    if outcome.kind == FINISHED:
        return None
    said = shortened(outcome.text.decode("utf-8", "replace").strip())
    where = place(outcome, library)
    if outcome.kind == STOPPED:
        why = f"did not finish in {timeout:g} s, and was" if timeout else "was"
        return KernelTimeout(f"{signature.name}: {why} stopped{where}\n{said}".strip())
    what = WHAT.get(outcome.kind, f"fault {outcome.kind}")
    if outcome.kind in (OUT_OF_BOUNDS, CONST_WRITE):
        what = access(outcome, signature, values, said)
    elif "\n" in said:
        where = f"{where}\n{said}"
    elif said:
        what = f"{what}: {said}"
    return KernelFault(f"{signature.name}: {what}{where}")


def access(outcome: Outcome, signature: Signature, values: Sequence[Value], said: str) -> str:
    """Describe an access to memory: what it did, and to which element of which argument.

    About other memory, it is ``said`` by the runtime.
    """
    verb = "write" if outcome.write else "read"
    doing = f"{verb} of {outcome.size} bytes"
    if outcome.kind == OUT_OF_BOUNDS:
        doing += " out of bounds"
    if outcome.argument < 0:
        return f"{doing}: {said}"
    parameter, value = signature.parameters[outcome.argument], values[outcome.argument]
    itemsize, about = (value.itemsize, value.about) if isinstance(value, Memory) else (1, "")
    element = f"element {outcome.offset // itemsize}" if itemsize > 1 else f"byte {outcome.offset}"
    tail = ", which is const" if outcome.kind == CONST_WRITE else ""
    # If it was reached from an argument, then by an index that is nonsense, such as a bad pointer.
    tail += ", an address that is near no argument" if abs(outcome.offset) > FAR else ""
    return f"{doing}: {element} of argument {outcome.argument} '{parameter.name}' ({about}){tail}"


def place(outcome: Outcome, library: Path) -> str:
    """Return the line, the thread and the block of an outcome, as far as they are known."""
    # That of a wrong mask is in the text; its pc lies in the emulator.
    line = line_at(library, outcome.pc) if outcome.pc and outcome.kind != BAD_MASK else ""
    found = f", at {line}" if line else ""
    if outcome.kind not in TOLD:
        found += f", in thread {tuple(outcome.thread)} of block {tuple(outcome.block)}"
    return found


@functools.lru_cache(maxsize=256)
def line_at(library: Path, pc: int) -> str:
    """Return file:line of an address in a compiled kernel, or "" if nothing here can tell."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not tool:
        return ""
    command = [tool, "-i", "-e", str(library), hex(pc)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    # The line itself comes first, then those that it was inlined into.
    lines = [line.partition(" (")[0] for line in done.stdout.splitlines()]
    known = [line for line in lines if not line.startswith("?") and not line.endswith((":?", ":0"))]
    ours = [line for line in known if OWN not in line]
    return shortened(next(iter(ours or known), ""))


def shortened(text: str) -> str:
    """Return a text whose paths are as short as people want to read them."""
    text = re.sub(r"[^\s]*/<code>", "<code>", text)
    return re.sub(r"/[^\s:,]+", lambda m: shown(m.group(0)), text)
