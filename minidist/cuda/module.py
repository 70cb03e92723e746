"""A kernel file, and the kernels in it: one call for both back ends.

module = cuda.load("elementwise.cu")            read now, compiled at the first launch
add = module.get_function("add_f32")
add(grid, block, (a, b, c, n))                  NumPy arrays: here; CuPy arrays: on the GPU
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from minidist.cuda import emulator, gpu, watching
from minidist.cuda.arguments import EMULATOR, backend, convert, home
from minidist.cuda.globals import variable
from minidist.cuda.limits import STATIC_SHARED, Size, block_of, grid_of, shared_of
from minidist.cuda.settings import current
from minidist.cuda.signature import Signature, signatures
from minidist.cuda.source import read
from minidist.errors import ArgumentError, KernelError


def load(
    file: str | os.PathLike[str] | None = None,
    *,
    code: str | None = None,
    name_expressions: Sequence[str] = (),
    defines: Mapping[str, object] = {},
    cooperative: bool = False,
) -> "Module":
    """Return the kernels of a file of kernels/ (a bare name), of another file, or of a text.

    ``name_expressions`` are instances of templates, as in "scale<float>"; ``defines`` are macros.
    With ``cooperative``, all blocks of a launch run at the same time, so they can wait for each
    other. Nothing is compiled before the first launch.
    """
    if isinstance(name_expressions, str):
        raise KernelError(f"name_expressions is a tuple of names: ({name_expressions!r},)")
    return Module(file, code, tuple(name_expressions), defines, cooperative)


class Module:
    """A kernel file. Made by `load`."""

    def __init__(
        self,
        file: str | os.PathLike[str] | None,
        code: str | None,
        expressions: tuple[str, ...],
        defines: Mapping[str, object],
        cooperative: bool,
    ) -> None:
        self.source = read(file, code)
        self.macros = macros_of(defines)
        self.cooperative = cooperative
        self.kernels = signatures(self.source, expressions, defines)
        self._emulated: emulator.Library | None = None
        self._gpu: gpu.Library | None = None

    def get_function(self, name: str) -> "Kernel":
        """Return a kernel by its name, or by its name expression."""
        if name not in self.kernels:
            there = ", ".join(self.kernels) or "none"
            raise KernelError(
                f"{self.source.name} has no kernel {name!r}; it has: {there}. A kernel is declared "
                'extern "C" __global__ void, or is a template in name_expressions'
            )
        return Kernel(self, self.kernels[name])

    def get_global(self, name: str, dtype: Any, shape: Sequence[int], like: Any = None) -> Any:
        """Return a __device__ or __constant__ variable as an array, which can be written.

        Each back end has its own: that of the array ``like``, that of the settings, or that where
        the module has run.
        """
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if self._where(name, like) == EMULATOR:
            return variable(self.emulated().handle, name, np.dtype(dtype), sizes)
        return self.on_gpu().variable(name, np.dtype(dtype), sizes)

    def _where(self, name: str, like: Any) -> str:
        if where := home(like) or current().backend:
            return where
        if bool(self._emulated) != bool(self._gpu):
            return EMULATOR if self._emulated else "gpu"
        if self._gpu or gpu.available()[0]:
            raise ArgumentError(
                f"variable {name!r} is on the GPU and in the emulator: say which with like=array"
            )
        return EMULATOR

    def emulated(self) -> emulator.Library:
        """Compile and load the file for NumPy arrays, once."""
        if self._emulated is None:
            kernels = list(self.kernels.values())
            library = emulator.load(self.source, kernels, self.macros)
            # Known is only the sum over the kernels of the file: one has at least its share.
            if library.static > STATIC_SHARED * max(1, len(kernels)):
                raise KernelError(
                    f"{self.source.name}: {library.static:,} bytes of static __shared__ memory; a "
                    f"GPU has {STATIC_SHARED:,} (48 KB), and more only as extern __shared__"
                )
            self._emulated = library
        return self._emulated

    def on_gpu(self) -> gpu.Library:
        """Hand the file to CuPy, once."""
        if self._gpu is None:
            self._gpu = gpu.Library(self.source, self.kernels, self.macros, self.cooperative)
        return self._gpu


class Kernel:
    """A kernel that can be launched. Made by `Module.get_function`."""

    def __init__(self, module: Module, signature: Signature) -> None:
        self.module, self.signature = module, signature
        self.name = signature.name

    def __repr__(self) -> str:
        listed = ", ".join(f"{p.kind} {p.name}" for p in self.signature.parameters)
        return f"<kernel {self.name}({listed}) of {self.module.source.name}>"

    def __call__(
        self, grid: Size, block: Size, args: Sequence[Any], shared_mem: int = 0, stream: Any = None
    ) -> None:
        """Launch ``grid`` blocks of ``block`` threads, as CuPy does.

        On NumPy arrays it has finished when this returns, and what it did wrong is raised here: a
        KernelFault, or a KernelTimeout. Arguments that do not fit are an ArgumentError at once.
        """
        name, chosen = self.name, current()
        three, threads = grid_of(name, grid, self.module.cooperative), block_of(name, block)
        # A table of pointers is copied to the GPU: in the stream in which it is then read.
        with stream if hasattr(stream, "__enter__") else nullcontext():
            values = convert(self.signature, args)
        where = backend(name, args, chosen.backend)
        if where != EMULATOR:
            shared = shared_of(name, shared_mem)
            library = self.module.on_gpu()
            library.launch(self.signature, three, threads, shared, args, values, stream)
            return
        if stream is not None:
            raise ArgumentError(f"{name}: stream={stream!r}, but NumPy arrays have no streams")
        emulated = self.module.emulated()
        alone = len(self.module.kernels) == 1  # else it is not known whose the static memory is
        shared = shared_of(name, shared_mem, emulated.static if alone else 0)
        blocks = three[0] * three[1] * three[2]
        workers = blocks if self.module.cooperative else min(chosen.workers, blocks)
        if watching.current() and self.module.cooperative and blocks > 1:
            raise KernelError(f"{name}: blocks of a cooperative launch cannot be watched")
        emulator.launch(emulated, self.signature, three, threads, shared, values, workers, chosen)


def macros_of(defines: Mapping[str, object]) -> tuple[str, ...]:
    """Return macros as options: {"TILE": 16} is -DTILE=16; True is 1."""
    for name in defines:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise KernelError(f"defines: {name!r} is no name of a macro")
    values = {name: int(v) if isinstance(v, bool) else v for name, v in defines.items()}
    return tuple(f"-D{name}={value}" for name, value in sorted(values.items()))
