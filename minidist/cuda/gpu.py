"""Kernels on CuPy arrays: the same text, compiled by NVRTC through CuPy's RawModule.

CuPy keeps compiled kernels on disk by their text and options, and does not see edits of headers
that the text includes. So a hash of the headers is among the options.
"""

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from minidist.cuda.arguments import GPU, Memory, Value, home
from minidist.cuda.limits import STATIC_SHARED
from minidist.cuda.signature import Signature
from minidist.cuda.source import Source
from minidist.cuda.translate import quoted
from minidist.errors import ArgumentError, CompileError


@functools.cache
def available() -> tuple[bool, str]:
    """Return whether a GPU computes here, and if not, why. Asked once per process: it costs 1 s.

    That CuPy imports and counts a device proves little (no compiler, a driver too old, a device
    too new), so a kernel is compiled and run. It can fail with three unrelated exception classes.
    """
    try:
        cupy = import_module("cupy")
        if cupy.cuda.runtime.getDeviceCount() == 0:
            return False, "no device"
        out = cupy.zeros(1, "i4")
        code = 'extern "C" __global__ void answer(int* x) { *x = 42; }'
        cupy.RawKernel(code, "answer")((1,), (1,), (out,))
        found = int(out[0])
    except ModuleNotFoundError as error:
        return False, f"no {error.name}"
    except Exception as error:
        return False, f"{type(error).__name__}: {error}".splitlines()[0]
    return (True, "") if found == 42 else (False, f"a trial kernel wrote {found} instead of 42")


class Library:
    """A kernel file for the GPU; CuPy loads it on each device at the first launch there."""

    def __init__(
        self,
        source: Source,
        kernels: Mapping[str, Signature],
        macros: Sequence[str],
        cooperative: bool,
    ) -> None:
        self.source = source
        expressions = tuple(name for name, kernel in kernels.items() if kernel.position is None)
        name = str(source.path) if source.path else source.name
        options = ["-std=c++17", f"-DMINIDIST_SOURCE=0x{source.digest()}"]
        options += [f"-I{folder}" for folder in source.folders]
        self.module = import_module("cupy").RawModule(
            code=f"#line 1 {quoted(name)}\n{source.text}",
            options=(*options, *macros),
            name_expressions=expressions or None,
            enable_cooperative_groups=cooperative,
        )

    def launch(
        self,
        signature: Signature,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        args: Sequence[Any],
        values: Sequence[Value],
        stream: Any,
    ) -> None:
        """Start a kernel; as always on a GPU, it runs while Python goes on."""
        device = device_of(signature, args)
        given = tuple(plain(value) for value in values)
        with device or nullcontext(), stream or nullcontext():
            kernel = self.compiled(lambda: self.module.get_function(signature.name))
            if shared > STATIC_SHARED and kernel.max_dynamic_shared_size_bytes < shared:
                kernel.max_dynamic_shared_size_bytes = shared  # more has to be asked for
            self.compiled(lambda: kernel(grid, block, given, shared_mem=shared))

    def compiled(self, step: Any) -> Any:
        """Do something that may compile the file, in the case of which an error is ours."""
        try:
            return step()
        except Exception as error:
            if type(error).__name__ not in ("CompileException", "NVRTCError"):
                raise
            raise CompileError(f"{self.source.name} does not compile:\n{error}") from error

    def variable(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        """Return a __device__ or __constant__ variable as an array."""
        memory = self.compiled(lambda: self.module.get_global(name))
        return import_module("cupy").ndarray(shape, dtype, memory)


def device_of(signature: Signature, args: Sequence[Any]) -> Any:
    """Return the device of all arrays, or raise ArgumentError if they have none in common."""
    found = [(i, arg.device) for i, arg in enumerate(args) if home(arg) == GPU]
    for i, device in found:
        first, wanted = found[0]
        if device.id != wanted.id:
            raise ArgumentError(
                f"{signature.name}: argument {i} is on GPU {device.id}, argument {first} on "
                f"GPU {wanted.id}; copy one of them, a kernel runs in one place"
            )
    return found[0][1] if found else None


def plain(value: Value) -> Any:
    """Return an argument as CuPy passes it on unchanged: as many bytes as are declared."""
    if isinstance(value, Memory):
        return np.uint64(value.address)
    # CuPy does not know the 16 bits of a bfloat16.
    return value.view(np.uint16) if value.dtype.kind == "V" else value
