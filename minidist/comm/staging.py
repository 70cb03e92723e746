"""How an array reaches MPI: as it is, through host memory, or as a device pointer.

    on the host       MPI reads and writes the array itself
    on a device       device --copy--> pinned host buffer --MPI--> host buffer --copy--> device
    on a device, with an MPI that is CUDA-aware: the array itself, once its stream is idle

Kernels run behind the back of the program. Before MPI may read an array, the kernel that fills it
must have ended, so the current stream is waited for (mpi4py/mpi4py#60: random results without). And
a receive is complete only when the copy back to the device is (mpi4jax/mpi4jax#230: old data).

Which way is taken is this rank's own affair: on the wire there are the same bytes. Pinned buffers
(memory that the system must not move) let the device copy at full speed; real libraries also cut
large messages, to copy one piece while the next one travels.

The CuPy parts here were written without a GPU at hand: not run on one. Tests run them on stand-ins.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from minidist.arrays import Array, namespace, to_host


class Way(ABC):
    """How arrays of one kind travel. ``outgoing`` and ``incoming`` give what MPI reads, writes."""

    name = ""

    @abstractmethod
    def outgoing(self, x: Array) -> Array:
        """Return the buffer that MPI shall send: the bytes of ``x``, complete."""

    @abstractmethod
    def incoming(self, x: Array) -> Array:
        """Return the buffer into which MPI shall receive what is for ``x``."""

    @abstractmethod
    def arrived(self, buffer: Array, x: Array) -> None:
        """Bring what has been received into ``x``; done when this returns."""

    @abstractmethod
    def release(self, buffer: Array) -> None:
        """Take a buffer back after its message."""


class InPlace(Way):
    """Host arrays: MPI works on them where they are."""

    name = "in place"

    def outgoing(self, x: Array) -> Array:
        """Return ``x``."""
        return x

    incoming = outgoing

    def arrived(self, buffer: Array, x: Array) -> None:
        """Nothing is left to do: ``buffer`` is ``x``."""

    def release(self, buffer: Array) -> None:
        """Nothing is left to do."""


class Direct(InPlace):
    """Device arrays for an MPI that takes device pointers."""

    name = "device pointers to a CUDA-aware MPI"

    def __init__(self, synchronise: Callable[[], None]) -> None:
        self.synchronise = synchronise

    def outgoing(self, x: Array) -> Array:
        """Return ``x``, after the kernels that fill it or still read it."""
        self.synchronise()
        return x

    incoming = outgoing


class Staged(Way):
    """Device arrays through host buffers, which are kept and lent again."""

    name = "staging through host memory"

    def __init__(self, device: "Device") -> None:
        self.device = device
        self._free: list[Array] = []

    def outgoing(self, x: Array) -> Array:
        """Copy ``x`` to the host."""
        buffer = self.incoming(x)
        self.device.to_host(x, buffer)
        self.device.synchronise()
        return buffer

    def incoming(self, x: Array) -> Array:
        """Lend ``x.nbytes`` bytes of host memory: the beginning of a buffer."""
        large_enough = (i for i, b in enumerate(self._free) if b.nbytes >= x.nbytes)
        i = next(large_enough, None)
        whole = self.device.host_buffer(x.nbytes) if i is None else self._free.pop(i)
        return whole[: x.nbytes]

    def arrived(self, buffer: Array, x: Array) -> None:
        """Copy back to the device, on its current stream, and wait for it."""
        self.device.from_host(buffer, x)
        self.device.synchronise()

    def release(self, buffer: Array) -> None:
        """Keep the buffer for another message."""
        self._free.append(buffer.base)


class Device:
    """What staging needs from an array library; this one needs nothing special from it.

    Buffers are flat arrays of bytes.
    """

    def host_buffer(self, nbytes: int) -> np.ndarray:
        """Allocate host memory."""
        return np.empty(nbytes, np.uint8)

    def to_host(self, x: Array, buffer: np.ndarray) -> None:
        """Copy from the device, perhaps behind the back of the program."""
        buffer[...] = to_host(x).reshape(-1).view(np.uint8)

    def from_host(self, buffer: np.ndarray, x: Array) -> None:
        """Copy to the device, perhaps behind the back of the program."""
        x[...] = namespace(x).asarray(buffer.view(x.dtype).reshape(x.shape))

    def synchronise(self) -> None:
        """Block until all copies and kernels of the current stream have ended."""


class Cupy(Device):
    """CuPy arrays: pinned buffers, and copies on the current stream."""

    def __init__(self) -> None:
        self.cupy: Any = sys.modules["cupy"]

    def host_buffer(self, nbytes: int) -> np.ndarray:
        """Allocate pinned host memory."""
        memory = self.cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        return np.frombuffer(memory, np.uint8, nbytes)

    def to_host(self, x: Array, buffer: np.ndarray) -> None:
        """Start a copy after the kernels that fill ``x``."""
        x.reshape(-1).view(self.cupy.uint8).get(out=buffer, blocking=False)

    def from_host(self, buffer: np.ndarray, x: Array) -> None:
        """Start a copy before the kernels that will read ``x``."""
        x.reshape(-1).view(self.cupy.uint8).set(buffer)

    def synchronise(self) -> None:
        """Block until the current stream is idle."""
        self.cupy.cuda.get_current_stream().synchronize()


class Staging:
    """Chooses the way of each array; the way for device arrays at the first of them."""

    def __init__(self, cuda_aware: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._cuda_aware, self._say = cuda_aware, say
        self._host = InPlace()
        self._ways: dict[str, Way] = {}  # by array library

    def way(self, x: Array) -> Way:
        """Return how ``x`` travels."""
        if isinstance(x, np.ndarray):
            return self._host
        library = type(x).__module__.partition(".")[0]
        if library not in self._ways:
            self._ways[library] = self._choose(library)
            self._say(f"arrays of {library} travel by {self._ways[library].name}")
        return self._ways[library]

    def _choose(self, library: str) -> Way:
        if library != "cupy":
            return Staged(Device())
        device = Cupy()
        return Direct(device.synchronise) if self._cuda_aware() else Staged(device)
