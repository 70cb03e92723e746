"""The C++ compiler: g++ or clang, found on this machine, and how it is called.

A kernel is compiled with the instrumentation of ThreadSanitizer, but linked without its library:

    c[i] = a[i] + b[i];     becomes    __tsan_read4(&a[i]); __tsan_read4(&b[i]);
                                       __tsan_write4(&c[i]); c[i] = a[i] + b[i];

and the emulator's runtime defines these functions. So it sees every access before it happens, and
refuses those that are out of bounds. The checks for alignment and for indices are had likewise.
"""

import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minidist.errors import CompileError, NoCompilerError

CANDIDATES = ("g++", "clang++", "c++")
MAIN = "kernel.cpp"  # the generated file that is compiled
LAUNCHER = "<launcher>"  # what it calls the lines that no student wrote

FLAGS = [
    "-std=c++17",
    "-O2",
    "-g1",  # lines, for messages
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",  # kernels look at floats as integers
    "-fno-semantic-interposition",
    "-fno-math-errno",
    "-ffp-contract=off",  # the same numbers on every CPU
    "-fno-optimize-sibling-calls",  # a call at the end of a kernel keeps its line
    "-fstack-clash-protection",  # a large local array must not jump over the guard page
    "-Wno-unknown-pragmas",  # #pragma unroll
    "-Wno-attributes",
    "-fdiagnostics-color=never",
]
SEEN = [
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds",
    "-fno-sanitize-recover=all",
    *(f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset")),  # not in line, unseen
]
# The runtime has its own version of these functions: it checks, or ends the kernel only.
WRAPPED = ("memcpy", "memmove", "memset", "abort", "exit", "_exit")
SEEN_PARAMETERS = ["tsan-instrument-func-entry-exit=0", "tsan-distinguish-volatile=1"]


@dataclass(frozen=True)
class Compiler:
    """A compiler: the command that starts it, and what it says about its version."""

    command: tuple[str, ...]
    version: str

    @property
    def clang(self) -> bool:
        """Whether it takes the options of clang."""
        return "clang" in self.version

    def flags(self, seen: bool) -> list[str]:
        """Return the options to compile with; ``seen``: accesses to memory call the runtime."""
        flags = [*FLAGS]
        x86 = platform.machine() in ("x86_64", "AMD64")
        if self.clang:
            flags.append("-gdwarf-4")  # addr2line takes the files of clang's DWARF 5 for others
        else:
            flags.append("-fno-gnu-unique")  # else static variables are shared between modules
        if seen:
            flags += SEEN if x86 else [*SEEN, "-fsanitize=integer-divide-by-zero"]  # else 0
            for parameter in SEEN_PARAMETERS:
                flags += ["-mllvm", f"-{parameter}"] if self.clang else ["--param", parameter]
        return flags


def find() -> Compiler:
    """Return the compiler that $CXX names, or one on the PATH; else raise NoCompilerError."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.cache
def _find(chosen: str, path: str) -> Compiler:
    for candidate in [chosen] if chosen.strip() else CANDIDATES:
        try:
            first, *rest = shlex.split(candidate)
        except ValueError:  # an open quotation mark
            break
        if there := shutil.which(first, path=path):
            command = (os.path.abspath(there), *rest)
            said = subprocess.run([*command, "--version"], capture_output=True, text=True)
            if said.returncode == 0:
                return Compiler(command, said.stdout.partition("\n")[0])
    what = f"CXX={chosen} is no C++ compiler here" if chosen.strip() else "no C++ compiler"
    raise NoCompilerError(
        f"{what}, and kernels on NumPy arrays are compiled at first use: "
        "apt-get install g++ (or dnf install gcc-c++, conda install gxx), or set CXX"
    )


def compile_files(
    compiler: Compiler,
    files: Mapping[str, str],
    flags: Sequence[str],
    libraries: Sequence[Path],
    out: Path,
    about: str,
) -> None:
    """Compile the generated files, which MAIN includes, to the shared library ``out``.

    They lie in a folder of their own, which is the current one of the compiler. Raises CompileError
    with the lines that ``about``'s author wants to see.
    """
    with tempfile.TemporaryDirectory(prefix="minidist-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        _run([*compiler.command, *flags, "-c", "-o", "kernel.o", MAIN], folder, about)
        # Without -fsanitize here: that would bring in its library.
        wrap = [f"-Wl,--wrap={name}" for name in WRAPPED]
        link = ["-shared", *wrap, "-Wl,-z,lazy,-rpath,$ORIGIN", "-o", str(out), "kernel.o"]
        _run([*compiler.command, *link, *map(str, libraries)], folder, about)


def build_library(
    compiler: Compiler, sources: Sequence[Path], flags: Sequence[str], name: str, out: Path
) -> None:
    """Compile the sources of the runtime to the shared library ``out``, later called ``name``.

    They are compiled as one, which takes a third of the time: their headers are read once.
    """
    with tempfile.TemporaryDirectory(prefix="minidist-") as folder:
        whole = "".join(f'#include "{source}"\n' for source in sources)
        (Path(folder) / "runtime.cpp").write_text(whole, "utf-8")
        link = ["-shared", "-pthread", f"-Wl,-soname,{name}", "-o", str(out), "runtime.cpp", "-ldl"]
        _run([*compiler.command, *flags, *link], folder, "the emulator's runtime")


def _run(command: list[str], folder: str, about: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},  # messages in English
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NoCompilerError(f"cannot start {command[0]}: {error.strerror}") from error
    if done.returncode:
        said = readable(done.stderr, folder) or f"{command[0]} failed ({done.returncode})"
        raise CompileError(f"{about} does not compile:\n{said}")
    made = Path(folder, command[command.index("-o") + 1])
    if not made.is_file():
        raise NoCompilerError(f"{command[0]} compiles nothing: it has made no {made.name}")


def readable(said: str, folder: str) -> str:
    """Return what a compiler said without what it says about lines that were generated."""
    lines, skipping = [], False
    for line in said.replace(f"{Path.cwd()}/", "").splitlines():
        if LAUNCHER in line or MAIN in line:
            skipping = True
        elif not (skipping and line.startswith(" ")):  # a quoted line, a caret
            skipping = False
            lines.append(line.replace(f"{folder}/", ""))
    return "\n".join(lines) if any("error" in line for line in lines) else said.strip()
