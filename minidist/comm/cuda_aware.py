"""May this MPI library be given device pointers? Asked carefully, since a wrong yes is a crash.

Three answers, the first that there is:

1. MINIDIST_CUDA_AWARE=0 or 1.
2. The library says no, or cannot say: no. (No MPI from pip is CUDA-aware.)
3. The library says yes, which has been wrong (open-mpi/ompi#11399). So a child process sends a
   device array to itself. If it dies, hangs, or receives something else: no, with a warning.

The probe has one process and one device; it does not prove that every network path works.
Written without a GPU at hand: not run on one.
"""

import ctypes
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from minidist.comm.detect import outside_mpi
from minidist.errors import ConfigError

VARIABLE = "MINIDIST_CUDA_AWARE"
TIMEOUT = 60.0  # seconds for the child: it starts MPI and CuPy
PROBE = """
import cupy
from mpi4py import MPI
there, back = cupy.arange(1 << 20), cupy.zeros(1 << 20, int)
cupy.cuda.get_current_stream().synchronize()
MPI.COMM_SELF.Sendrecv((there, there.nbytes, MPI.BYTE), 0, 0, (back, back.nbytes, MPI.BYTE), 0, 0)
assert bool((there == back).all())
"""


def says_so() -> bool:
    """Ask the MPI library that is loaded: MPIX_Query_cuda_support, if it has that function."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8")
        path = next(line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libmpi" in line)
        return bool(ctypes.CDLL(path).MPIX_Query_cuda_support())
    except (OSError, StopIteration, AttributeError):
        return False


def proves_it(probe: str = PROBE) -> bool:
    """Let a child process send a device array to itself."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", probe],
            env=outside_mpi(os.environ),
            capture_output=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return False
    return child.returncode == 0


def cuda_aware(
    env: Mapping[str, str] = os.environ,
    says_so: Callable[[], bool] = says_so,
    proves_it: Callable[[], bool] = proves_it,
) -> bool:
    """Say whether device arrays may be handed to MPI as they are."""
    order = env.get(VARIABLE, "")
    if order not in ("", "0", "1"):
        raise ConfigError(f"{VARIABLE}={order!r}: give 0 (stage through the host) or 1 (do not)")
    if order:
        return order == "1"
    if not says_so():
        return False
    if proves_it():
        return True
    warnings.warn(
        "the MPI library says that it is CUDA-aware, but a trial message failed: staging through "
        f"host memory ({VARIABLE}=1 overrides this)",
        stacklevel=2,
    )
    return False
