"""`minidist doctor`: look at this machine part by part; for each fault, say the remedy.

    OK       MPI library    Open MPI v5.0.11 (/home/me/minidist/.venv/lib/libmpi.so.40)
    missing  CuPy           no CuPy
                            -> for a GPU, in the checkout: python -m pip install -e '.[cuda12]'

Every check tries the thing itself: a library that is found may still not load, and ranks that
start may still not meet. The exit status is 1 only for a fault that stops work on CPUs.
"""

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from ctypes import CDLL, byref, c_int
from pathlib import Path
from typing import NamedTuple

from minidist import launch, processes
from minidist.cuda.compiler import find as find_compiler
from minidist.device import gpu
from minidist.errors import LaunchError, NoCompilerError

TIMEOUT = 60.0  # seconds for the two ranks to start, meet and end
MEET = """
from mpi4py import MPI
world = MPI.COMM_WORLD
other = world.sendrecv(world.rank, dest=1 - world.rank, source=1 - world.rank)
assert world.size == 2 and other == 1 - world.rank, (world.size, other)
"""


class Finding(NamedTuple):
    """What one check saw. `fatal`: nothing distributed runs on CPUs without it."""

    ok: bool
    what: str
    remedy: str = ""
    fatal: bool = False


def python() -> Finding:
    """Check the interpreter."""
    what = f"{platform.python_version()} ({sys.executable})"
    return Finding(sys.version_info >= (3, 11), what, "install Python 3.11 or newer", fatal=True)


def mpi_library() -> Finding:
    """Check the MPI library that mpi4py loads."""
    try:
        name = launch.library()
    except LaunchError as error:
        return Finding(False, "none", str(error), fatal=True)
    ask = [sys.executable, "-m", "mpi4py", "--mpi-library"]
    where = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    return Finding(True, f"{name} ({where})")


def launcher() -> Finding:
    """Check that there is the mpirun of that library."""
    try:
        return Finding(True, launch.find_mpirun(launch.library()))
    except LaunchError as error:
        return Finding(False, "none that fits", str(error), fatal=True)


def two_ranks() -> Finding:
    """Start two real ranks that exchange a message."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            processes.mpirun(MEET, 2, timeout=TIMEOUT, folder=Path(folder))
        except TimeoutError:
            what = f"two ranks did not end within {TIMEOUT:.0f} s"
            return Finding(False, what, "kill left-over ranks (ps), look at the lines above", True)
        except AssertionError as error:
            last = str(error).strip().splitlines()[-1]
            return Finding(False, "two ranks do not meet", f"they said: {last}", True)
    return Finding(True, "two ranks exchanged a message")


def cupy() -> Finding:
    """Check whether CuPy is installed (not whether it works: see `kernel`)."""
    if importlib.util.find_spec("cupy") is None:
        return Finding(
            False,
            "no CuPy",
            f"for a GPU, in the checkout: {sys.executable} -m pip install -e '.[cuda12]'",
        )
    return Finding(True, "installed")


def driver() -> Finding:
    """Check the NVIDIA driver."""
    version = c_int()
    try:
        CDLL("libcuda.so.1").cuDriverGetVersion(byref(version))
    except OSError:
        return Finding(False, "no NVIDIA driver", "for a GPU: ask who runs this machine for it")
    return Finding(True, f"CUDA {version.value // 1000}.{version.value % 1000 // 10}")


def kernel() -> Finding:
    """Compile and run a trial kernel on the GPU."""
    works, reason = gpu()
    remedy = "for a GPU: mend the two lines above, or take the CuPy extra of the driver's version"
    return Finding(works, reason or "compiled, ran, and gave the right answer", remedy)


def compiler() -> Finding:
    """Check for the C++ compiler that makes kernels run on NumPy arrays."""
    try:
        found = find_compiler()
    except NoCompilerError as error:
        return Finding(False, "none", f"only for kernels without a GPU: {error}")
    return Finding(True, f"{found.version} ({found.command[0]})")


def kernel_lines() -> Finding:
    """Check for the tool that finds the line of a fault in such a kernel."""
    path = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    remedy = "only for kernels without a GPU: apt-get install binutils"
    return Finding(path is not None, path or "no addr2line: faults name no line", remedy)


def shared_memory() -> Finding:
    """Check the space through which ranks on one machine talk."""
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        return Finding(False, "no /dev/shm", "mount it; in a container: --shm-size=1g")
    free = space.f_bavail * space.f_frsize // 2**20
    remedy = "free some (ls /dev/shm); in a container: --shm-size=1g"
    return Finding(free >= 64, f"{free} MiB free", remedy)


def blas_threads() -> Finding:
    """Check that ranks will not compete for cores: `launch` sets one thread unless told."""
    word, cores = os.environ.get("OMP_NUM_THREADS", "1"), len(os.sched_getaffinity(0))
    fits = word.isdecimal() and 1 <= int(word) <= cores
    what = f"{word} per rank on {cores} cores"
    return Finding(fits, what, "unset OMP_NUM_THREADS: `minidist launch` then takes one per rank")


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": python,
    "MPI library": mpi_library,
    "MPI launcher": launcher,
    "MPI probe": two_ranks,
    "CuPy": cupy,
    "GPU driver": driver,
    "GPU kernel": kernel,
    "C++ compiler": compiler,
    "kernel lines": kernel_lines,
    "shared memory": shared_memory,
    "BLAS threads": blas_threads,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no flags: `minidist doctor` has none."""


def main(args: argparse.Namespace) -> int:
    """Print a line per check, and return 1 if something stops work on CPUs."""
    stopped = []
    for name, check in CHECKS.items():
        finding = check()
        print(f"{'OK' if finding.ok else 'missing':8} {name:14} {finding.what}", flush=True)
        if not finding.ok:
            print(f"{'':8} {'':14} -> {finding.remedy}")
            stopped += [name] if finding.fatal else []
    print(f"stops all work: {', '.join(stopped)}" if stopped else "ready for work on CPUs")
    return 1 if stopped else 0
