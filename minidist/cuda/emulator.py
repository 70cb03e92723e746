"""Kernels on NumPy arrays: compiled for the CPU, and run by the runtime in emulation/runtime/.

    reduce.cu ── translate ── compile ──> KEY.so ─┐
    runtime/*.cpp ─────────── compile ──> KEY.so ─┴─> md_launch ... md_wait ... md_end ──> Outcome

The runtime's workers run the threads. The calling Python thread waits 50 ms at a time without the
lock of the interpreter: other Python threads go on, and Ctrl-C and the timeout come through.
"""

import ctypes
import functools
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from minidist.cuda import faults, watching
from minidist.cuda.arguments import Value
from minidist.cuda.cache import kept, key_of
from minidist.cuda.compiler import Compiler, build_library, compile_files, find
from minidist.cuda.memory import Range, ranges, slots
from minidist.cuda.settings import ORDERS, Settings
from minidist.cuda.signature import Signature
from minidist.cuda.source import Source
from minidist.cuda.translate import symbols, translate
from minidist.errors import KernelError

HERE = Path(__file__).resolve().parent / "emulation"
INCLUDE, RUNTIME = HERE / "include", HERE / "runtime"
DEEPBIND = getattr(os, "RTLD_DEEPBIND", 0)  # of glibc
STEP = 50  # ms between two looks for Ctrl-C
PATIENCE = 10.0  # seconds for a kernel that was told to stop

Three = ctypes.c_uint32 * 3


class Config(ctypes.Structure):
    """md_config of runtime/abi.h."""

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("grid", Three),
        ("block", Three),
        ("dynamic_shared", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("order", ctypes.c_int32),
        ("preempt", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("inside", ctypes.c_void_p),
        ("ranges", ctypes.POINTER(Range)),
        ("range_count", ctypes.c_uint32),
        ("watched", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
    ]


@functools.cache
def runtime() -> ctypes.CDLL:
    """Build the runtime if that has not been done on this machine, and load it once."""
    compiler = find()
    flags = [*compiler.flags(seen=False), f"-I{INCLUDE}", f"-I{RUNTIME}"]
    sources = sorted(RUNTIME.glob("*.cpp"))
    key = key_of("runtime", own_text(), *flags, *compiler.command, compiler.version)
    path = kept(key, lambda out: build_library(compiler, sources, flags, f"{key}.so", out))
    library = opened(path)
    library.md_launch.restype = ctypes.c_void_p
    library.md_launch.argtypes = [ctypes.POINTER(Config)]
    library.md_wait.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.md_stop.argtypes = [ctypes.c_void_p]
    library.md_end.argtypes = [ctypes.c_void_p, ctypes.POINTER(faults.Outcome)]
    library.md_static_shared.restype = ctypes.c_uint64
    library.md_static_shared.argtypes = [ctypes.c_void_p]
    return library


def opened(path: Path) -> ctypes.CDLL:
    """Load a compiled file. What it calls is looked for in the runtime before anywhere else."""
    try:
        return ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL | DEEPBIND)
    except OSError as error:
        raise KernelError(
            f"cannot load {path} ({error}): delete it, or set MINIDIST_CACHE to a folder from "
            "which programs may run"
        ) from error


@functools.cache
def own_text() -> str:
    """Return a hash of the emulator's own headers and runtime, which every kernel depends on."""
    files = sorted(path for path in HERE.rglob("*") if path.suffix in (".h", ".cpp"))
    return key_of(*(part for file in files for part in (file.name, file.read_text("utf-8"))))


class Library:
    """A compiled kernel file in this process."""

    def __init__(self, path: Path, name: str, kernels: Mapping[str, Signature]) -> None:
        runtime()
        self.path, self.name = path, name
        self.handle = opened(path)
        self.handle.md_inside.restype = ctypes.c_void_p
        self.inside = self.handle.md_inside()
        self.static = int(runtime().md_static_shared(self.inside))
        self.symbols = {kernel.name: symbol for symbol, kernel in kernels.items()}
        self.entries: dict[str, int] = {}

    def entry(self, signature: Signature) -> int:
        """Return the address of the function that runs one thread of a kernel."""
        if signature.name not in self.entries:
            self.entries[signature.name] = self._checked(signature)
        return self.entries[signature.name]

    def _checked(self, signature: Signature) -> int:
        symbol = self.symbols[signature.name]
        if not hasattr(self.handle, f"md_call_{symbol}"):
            raise KernelError(
                f"{signature.name} ({signature.place}) is left out by an #if when it is compiled "
                "for the emulator"
            )
        said = ctypes.create_string_buffer(4096)
        self.handle[f"md_signature_{symbol}"](said)
        # For a pointer to pointers, const may stand in several places, which make no difference.
        compiled = re.sub(r"\*c?\*c?", "**", said.value.decode()).strip()
        read = " ".join(p.kind.word.replace("**c", "**") for p in signature.parameters)
        if compiled != read:
            raise KernelError(
                f"{signature.name} ({signature.place}) is declared ({read}), but compiled as "
                f"({compiled}): write the types of its parameters without macros and typedefs"
            )
        address = ctypes.cast(self.handle[f"md_call_{symbol}"], ctypes.c_void_p).value
        assert address
        return address


def build(
    source: Source, kernels: Sequence[Signature], macros: Sequence[str], compiler: Compiler
) -> Path:
    """Return the compiled file; compile it if no process has done so before."""
    flags = [*compiler.flags(seen=True), f"-I{INCLUDE}"]
    files = translate(source, kernels, macros)
    texts = [part for item in sorted(files.items()) for part in item]
    key = key_of("kernel", own_text(), *texts, *flags, *compiler.command, compiler.version)
    linked = [Path(runtime()._name)]
    return kept(key, lambda out: compile_files(compiler, files, flags, linked, out, source.name))


@functools.cache
def _library(path: Path, name: str, kernels: tuple[Signature, ...]) -> Library:
    return Library(path, name, symbols(kernels))


def load(source: Source, kernels: Sequence[Signature], macros: Sequence[str]) -> Library:
    """Compile a kernel file, or find it compiled, and load it. The same text is loaded once."""
    path = build(source, kernels, macros, find())
    return _library(path, source.name, tuple(kernels))


def launch(
    library: Library,
    signature: Signature,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    values: Sequence[Value],
    workers: int,
    chosen: Settings,
) -> faults.Outcome:
    """Run a kernel to its end and return how it went; raise what it did wrong."""
    filled, addresses = slots(values)
    table = ranges(signature, values)
    watch = watching.current()
    room = watch.room() if watch else None
    config = Config(
        entry=library.entry(signature),
        args=ctypes.addressof(addresses),
        grid=Three(*grid),
        block=Three(*block),
        dynamic_shared=shared,
        workers=1 if watch else workers,
        order=ORDERS.index(chosen.order),
        preempt=int(chosen.preempt),
        seed=chosen.seed,
        inside=library.inside,
        ranges=table,
        range_count=len(table),
        watched=None if room is None else room.ctypes.data,
        room=0 if room is None else len(room),
    )
    keep = (filled, addresses, table, values, room)
    outcome, interrupt = wait(signature.name, config, chosen.timeout, keep)
    limit = chosen.timeout if interrupt is None else None
    error = faults.error(outcome, signature, values, library.path, limit)
    if interrupt is not None:
        if error:
            interrupt.add_note(str(error))
        raise interrupt
    if error:
        raise error
    if watch:
        watch.launched(signature, values, grid, block, library.path, outcome)
    return outcome


_lost: list[object] = []  # what kernels that could not be stopped may still write to


def wait(
    name: str, config: Config, timeout: float | None, keep: object
) -> tuple[faults.Outcome, BaseException | None]:
    """Start a kernel and wait for it; return how it went, and what interrupted the waiting."""
    library, interrupt = runtime(), None
    handles: list[int | None] = []
    _lost.append(keep)
    began = time.monotonic()
    try:
        # One step for Python: Ctrl-C comes before it or after it, never to a kernel without handle.
        handles.extend(map(library.md_launch, (ctypes.byref(config),)))
        while handles[0] and not library.md_wait(handles[0], STEP):
            if timeout is not None and time.monotonic() - began > timeout:
                break
    except BaseException as error:  # Ctrl-C, mostly: the kernel must end before Python goes on
        interrupt = error
        if not handles:
            raise
    handle, began = handles[0], time.monotonic()
    if not handle:
        raise KernelError(f"{name}: no threads of the system to run it: set workers to less")
    while not library.md_wait(handle, 0):
        library.md_stop(handle)
        if not library.md_wait(handle, STEP) and time.monotonic() - began > PATIENCE:
            raise KernelError(f"{name}: does not stop; end this process") from interrupt
    _lost.remove(keep)
    outcome = faults.Outcome()
    library.md_end(handle, ctypes.byref(outcome))
    return outcome, interrupt
