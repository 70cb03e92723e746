"""Times the ways of a collective in turn, and counts what comes out wrong.

It knows no MPI, so ranks inside one process are measured by the same lines, on the virtual clock.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
from problems import UNTOUCHED, Call, Data, Kind, Problem, Way
from timing import Variant, rounds

from minidist.arrays import Array, to_host
from minidist.comm import Comm
from minidist.device import Device

MODES = ("out-of-place", "in-place")
Key: TypeAlias = tuple[str, str]  # way, mode


class Setting:
    """The ranks, their device and their clock, and how often things are measured."""

    def __init__(
        self,
        comm: Comm,
        device: Device,
        samples: int,
        warmup: int,
        check: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.comm, self.device, self.check = comm, device, check
        self.samples, self.warmup = samples, warmup
        self.real, self.clock = clock is None, clock or time.perf_counter

    def say(self, text: str) -> None:
        """Print on one rank."""
        if self.comm.rank == 0:
            print(text, flush=True)

    def synchronise(self) -> None:
        """Wait for the device, if it is one that works behind the back of the program."""
        if self.device.kind == "cuda":
            self.device.xp.cuda.get_current_stream().synchronize()

    def over(self, call: Callable[[], object]) -> Callable[[], object]:
        """Return the call as one that is over when the device is done."""
        return lambda: (call(), self.synchronise())

    def slowest(self, seconds: list[float]) -> list[float]:
        """Return the largest of each sample over all ranks."""
        return np.max(self.comm.gather_objects(seconds), axis=0).tolist()

    def take(
        self,
        kind: Kind,
        p: Problem,
        ways: Mapping[str, Way],
        modes: Iterable[str] = MODES,
        beside: Mapping[Key, Variant] | None = None,
    ) -> tuple[dict[Key, list[float]], dict[Key, int]]:
        """Return seconds of each round, and wrong elements, of each (way, mode) that there is.

        All ranks call it. ``beside`` is timed in the same rounds and not checked.
        """
        data = kind.data(p)
        places = {mode: Place(self, data, mode) for mode in modes if data.input(mode) is not None}
        calls: dict[Key, Call] = {}
        for name, way in ways.items():
            for mode, place in places.items():
                if (call := way(p, place.x, place.out)) is not None:
                    calls[name, mode] = call
        wrong = {k: places[k[1]].wrong(call) for k, call in calls.items() if self.check}
        variants = {k: Variant(places[k[1]].prepare, self.over(c)) for k, c in calls.items()}
        variants |= beside or {}
        nbytes = p.count * p.dtype.itemsize
        repeats = max(1, min(20, (64 << 10) // nbytes)) if self.real else 1
        times = (self.samples, self.warmup)
        with np.errstate(over="ignore"):  # repeated sums in place may grow beyond a half
            taken = rounds(
                variants, *times, self.comm.barrier, self.slowest, repeats, clock=self.clock
            )
        return taken, wrong


class Place:
    """The arrays in which one mode of a collective works."""

    def __init__(self, setting: Setting, data: Data, mode: str) -> None:
        xp = setting.device.xp
        self.setting, self.want = setting, data.want
        self.fill = xp.asarray(data.input(mode))
        self.x = self.fill.copy()
        room = 0 if data.want is None else data.want.size
        self.out = xp.zeros(room, self.x.dtype) if mode == "out-of-place" else None

    def prepare(self) -> None:
        """Put the input back, so that sums in place do not grow from sample to sample."""
        self.setting.device.xp.copyto(self.x, self.fill)
        self.setting.synchronise()

    def wrong(self, call: Call) -> int:
        """Return how many elements of the result are wrong, on all ranks together."""
        if self.out is not None:
            self.out.fill(UNTOUCHED)
        self.prepare()
        got = call()
        self.setting.synchronise()
        return int(sum(self.setting.comm.gather_objects(differing(got, self.want))))


def differing(got: Array | None, want: np.ndarray | None) -> int:
    """Return how many elements are not what they must be; all, if there are not as many."""
    if want is None:
        return 0
    if got is None or got.size != want.size:
        return want.size
    return np.count_nonzero(to_host(got).reshape(want.size) != want)
