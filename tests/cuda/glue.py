"""The emulator's runtime without the launcher: compile a kernel's text and call it by ctypes.

The launcher adds signatures, arguments, a cache and exceptions. Here a test sees the runtime bare:
``Kernels(text).run("add", grid, block, args)`` returns the outcome as the runtime filled it in.
"""

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from minidist.cuda.emulator import Config
from minidist.cuda.faults import Outcome
from minidist.cuda.memory import Range

EMULATION = Path(__file__).resolve().parents[2] / "minidist" / "cuda" / "emulation"
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "g++"
CLANG = "clang" in CXX
FLAGS = ["-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
PARAMETER = ["-mllvm", "-{}"] if CLANG else ["--param", "{}"]
KERNEL_FLAGS = [
    *FLAGS,
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fstack-clash-protection",
    "-fno-optimize-sibling-calls",  # a hook that is jumped to cannot tell who called it
    "-Wno-attributes",
    "-Wno-unused-parameter",
    "-Wno-unknown-pragmas",
    "-fsanitize=thread,alignment,bounds",
    "-fno-sanitize-recover=all",
    *[
        word.format(name)
        for name in ("tsan-instrument-func-entry-exit=0", "tsan-distinguish-volatile=1")
        for word in PARAMETER
    ],
    *([] if CLANG else ["-fno-gnu-unique"]),
    # On x86 a division by zero is a signal already.
    *([] if platform.machine() == "x86_64" else ["-fsanitize=integer-divide-by-zero"]),
]
ENTRY = re.compile(r'extern "C" __global__ void (\w+)\(')
DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")

FOLDER = "MINIDIST_TEST_EMULATOR"

FINISHED, STOPPED, OUT_OF_BOUNDS, BAD_ADDRESS, STACK_OVERFLOW, DIVISION, DIVERGENT = range(7)
DEADLOCK, ASSERTION, MISALIGNED, INDEX, BAD_MASK, CONST_WRITE = range(7, 13)
WILD, SHARED, FOREIGN_STACK = -1, -2, -3
FORWARD, REVERSE, RANDOM = range(3)


@functools.cache
def folder() -> Path:
    """Return a folder for what is compiled, for the life of this process."""
    if FOLDER in os.environ:  # of the process that started this one
        return Path(os.environ[FOLDER])
    made = tempfile.TemporaryDirectory(prefix="emulator-")
    folder.keep = made  # type: ignore[attr-defined]
    return Path(made.name)


def compiler(*arguments: object) -> None:
    done = subprocess.run([CXX, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


@functools.cache
def runtime(*flags: str) -> ctypes.CDLL:
    """Build and load the runtime: once for all kernels of this process."""
    library = folder() / f"runtime{len(flags)}.so"
    sources = sorted((EMULATION / "runtime").glob("*.cpp"))
    whole = library.with_suffix(".cpp")  # as one: the system's headers are read once
    whole.write_text("".join(f'#include "{source}"\n' for source in sources))
    if not library.exists():
        compiler(*FLAGS, *flags, "-shared", "-pthread", "-o", library, whole)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    loaded.md_launch.restype = ctypes.c_void_p
    loaded.md_launch.argtypes = [ctypes.POINTER(Config)]
    loaded.md_wait.argtypes = [ctypes.c_void_p, ctypes.c_int]
    loaded.md_stop.argtypes = [ctypes.c_void_p]
    loaded.md_end.argtypes = [ctypes.c_void_p, ctypes.POINTER(Outcome)]
    loaded.md_static_shared.argtypes = [ctypes.c_void_p]
    loaded.md_static_shared.restype = ctypes.c_uint64
    return loaded


class Kernels:
    """The kernels of one text; ``flags`` are for the compilation of the runtime."""

    def __init__(self, text: str, flags: Sequence[str] = ()) -> None:
        self.runtime = runtime(*flags)
        self.path = folder() / f"kernel-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
        names = ENTRY.findall(text)
        text = DYNAMIC.sub(r"MD_DYNAMIC_SHARED(\1, \2)", text)
        source = self.path.with_suffix(".cpp")
        source.write_text(
            f'#include "emulated_cuda.h"\n#line 1 "kernel.cu"\n{text}\n#line 1 "launcher"\n'
            "MD_MODULE\n" + "".join(f"MD_KERNEL({name}, {name})\n" for name in names)
        )
        whole = self.path.with_suffix(".o")
        if not self.path.exists():
            compiler(*KERNEL_FLAGS, "-I", EMULATION / "include", "-c", "-o", whole, source)
            compiler("-shared", "-Wl,-Bsymbolic,-z,now", "-o", self.path, whole)
        self.library = ctypes.CDLL(str(self.path))
        self.library.md_inside.restype = ctypes.c_void_p

    def signature(self, name: str) -> str:
        text = ctypes.create_string_buffer(4096)
        getattr(self.library, f"md_signature_{name}")(text)
        return text.value.decode()

    def config(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[object],
        **settings: int,
    ) -> Config:
        """Fill in a launch. Arrays become pointers, NumPy scalars their bytes."""
        slots = (ctypes.c_uint64 * max(1, len(args)))()
        ranges = []
        words = self.signature(name).split()
        assert len(words) == len(args), f"{name} takes {words}"
        for position, (word, value) in enumerate(zip(words, args, strict=True)):
            place = ctypes.addressof(slots) + 8 * position
            if isinstance(value, np.ndarray) and value.ndim:
                slots[position] = value.ctypes.data
                writable = not word.startswith("*c")
                ranges.append(Range(value.ctypes.data, value.nbytes, position, writable))
            else:
                raw = np.asarray(value).tobytes()
                ctypes.memmove(place, raw, len(raw))
        pointers = (ctypes.c_void_p * max(1, len(args)))(
            *[ctypes.addressof(slots) + 8 * i for i in range(len(args))]
        )
        config = Config(
            entry=ctypes.cast(getattr(self.library, f"md_call_{name}"), ctypes.c_void_p),
            args=ctypes.addressof(pointers),
            grid=(*grid, *[1] * (3 - len(grid))),
            block=(*block, *[1] * (3 - len(block))),
            workers=2,
            preempt=1,
            seed=1,
            inside=self.library.md_inside(),
            ranges=(Range * max(1, len(ranges)))(*ranges),
            range_count=len(ranges),
        )
        for field, value in settings.items():
            setattr(config, field, value)
        config.keep = (slots, pointers, args)
        return config

    def run(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[object] = (),
        stop: Callable[[], bool] = lambda: False,
        **settings: int,
    ) -> Outcome:
        """Launch, wait, and return the outcome; ``stop`` is asked every 20 ms."""
        config = self.config(name, grid, block, args, **settings)
        handle = self.runtime.md_launch(config)
        assert handle
        while not self.runtime.md_wait(handle, 20):
            if stop():
                self.runtime.md_stop(handle)
        outcome = Outcome()
        self.runtime.md_end(handle, outcome)
        outcome.line = self.line(outcome.pc) if outcome.pc else 0
        return outcome

    def line(self, pc: int) -> int:
        """Return the line of the kernel's text that an address belongs to, also if inlined."""
        command = ["addr2line", "-i", "-e", str(self.path), hex(pc)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        ours = [frame for frame in done.stdout.split("\n") if "kernel.cu:" in frame]
        return int(ours[0].split(":")[1].split()[0]) if ours else 0


def soon(seconds: float = 0.2) -> Callable[[], bool]:
    """Return a condition that becomes true in a while, for kernels that never end."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def started(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in the folder of the project."""
    command = [sys.executable, "-c", code]
    root = EMULATION.parents[2]
    environment = {**os.environ, FOLDER: str(folder())}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def python(code: str) -> str:
    """Run code in a process of its own; return what it prints."""
    done = started(code)
    assert done.returncode == 0, done.stderr
    return done.stdout
