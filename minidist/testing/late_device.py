"""A device that does its work late: a stand-in for a GPU and its stream.

A GPU is told what to do, and does it behind the back of the program, in the order of its stream.
Most of the time it is quick enough, so a program that forgets to wait is right most of the time.
This one does nothing before somebody waits for it, so such a program is wrong every time.

    device = LateDevice()
    device.launch(lambda: np.copyto(x, 7))      a kernel that fills x
    x                                           as it was
    device.synchronise()
    x                                           filled
"""

from collections.abc import Callable

import numpy as np

from minidist.comm.staging import Device


class LateDevice(Device):
    """Its arrays are NumPy arrays; what has been asked for is in ``stream`` until it is done."""

    def __init__(self) -> None:
        self.stream: list[Callable[[], object]] = []

    def launch(self, kernel: Callable[[], object]) -> None:
        """Ask for a kernel: it runs when everything before it has, and not before a wait."""
        self.stream.append(kernel)

    def host_buffer(self, nbytes: int) -> np.ndarray:
        """Allocate host memory, with bytes that make no number (NaN)."""
        return np.full(nbytes, 0xFF, np.uint8)

    def to_host(self, x: np.ndarray, buffer: np.ndarray) -> None:
        """Ask for a copy from the device."""
        self.launch(lambda: np.copyto(buffer, x.reshape(-1).view(np.uint8)))

    def from_host(self, buffer: np.ndarray, x: np.ndarray) -> None:
        """Ask for a copy to the device."""
        self.launch(lambda: np.copyto(x, buffer.view(x.dtype).reshape(x.shape)))

    def synchronise(self) -> None:
        """Do all that has been asked for, in its order."""
        while self.stream:
            self.stream.pop(0)()
