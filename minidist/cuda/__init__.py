"""CUDA kernels that run everywhere: on CuPy arrays through NVRTC, on NumPy arrays by emulation.

    source.py  signature.py  kinds.py     read the file, and what its kernels take
    arguments.py  limits.py               refuse what does not fit, in one sentence
    module.py                             choose the back end by the arrays
       ├─ gpu.py                          CuPy's RawModule
       └─ emulator.py                     translate, compile (once: cache.py), run, tell (faults.py)
    watching.py  races.py                 what a launch moves, and which threads race

Start with `load` in module.py, and with the files in kernels/.
"""

from minidist.cuda import compiler, gpu
from minidist.cuda.arguments import Pointer
from minidist.cuda.module import Kernel, Module, load
from minidist.cuda.settings import Settings, settings
from minidist.cuda.watching import Watch, watch
from minidist.errors import NoCompilerError

__all__ = [
    "Kernel",
    "Module",
    "Pointer",
    "Settings",
    "Watch",
    "emulator_available",
    "gpu_available",
    "load",
    "settings",
    "watch",
]


def emulator_available() -> tuple[bool, str]:
    """Return whether kernels run on NumPy arrays here, and if not, why."""
    try:
        compiler.find()
    except NoCompilerError as error:
        return False, str(error)
    return True, ""


def gpu_available() -> tuple[bool, str]:
    """Return whether kernels run on CuPy arrays here, and if not, why."""
    return gpu.available()
