"""How to time two things fairly on a noisy machine.

Absolute times move by a factor of two to five between minutes on a shared machine; ratios of things
timed alternately hold. So all variants are timed in one run, in rounds:

    round 0    A C B        each call after a barrier; the time of the slowest rank counts
    round 1    C B A        the order is drawn anew, since a call finds the caches as the one
    round 2    B A C        before it has left them
    ...                     the median over the rounds, and how far they spread

The allocator must be the same for all. By default glibc gives memory above 32 MiB back to the
system on `free`, so a library that allocates a work buffer per call pays page faults each time, two
to three times the cost of the call, and one that keeps its buffer seems to have the better
algorithm. `tune_allocator` makes the process keep its memory.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

K = TypeVar("K")  # what names a variant

ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def tune_allocator() -> None:
    """Let the allocator keep its memory: call it first, before MPI is loaded."""
    restart_with(ALLOCATOR)


def restart_with(settings: Mapping[str, str]) -> None:
    """Start this process anew with these environment variables, unless it has them already.

    The process keeps its number, and its place among ranks.
    """
    if not settings.items() <= os.environ.items():
        sys.stdout.flush()
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings})


def from_checkout() -> dict[str, str]:
    """Return the environment in which a bare checkout runs: minidist from here, one BLAS thread."""
    root, path = str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")
    if root not in path.split(os.pathsep):
        path = root + (os.pathsep + path if path else "")
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {"PYTHONPATH": path, **dict.fromkeys(threads, "1")}


class Variant(NamedTuple):
    """One of the things compared: `prepare` runs before each sample and is not timed."""

    prepare: Callable[[], object]
    call: Callable[[], object]


class Times(NamedTuple):
    """Seconds per call: the median, and where nine tenths of the samples lie above and below."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The distance of low and high, as a share of the median."""
        return (self.high - self.low) / self.median


def rounds(
    variants: Mapping[K, Variant],
    samples: int,
    warmup: int,
    barrier: Callable[[], object],
    slowest: Callable[[list[float]], list[float]],
    repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[K, list[float]]:
    """Time all variants in rounds and return each one's seconds per call in each round.

    All ranks call it. `slowest` takes this rank's samples and returns, for each, the largest over
    all ranks. `repeats` calls make one sample: more than one for calls of some microseconds.
    """
    names, draw = list(variants), random.Random(0)  # the same draws on all ranks
    taken: dict[K, list[float]] = {name: [] for name in names}
    for i in range(warmup + samples):
        for name in draw.sample(names, len(names)):
            prepare, call = variants[name]
            prepare()
            barrier()
            start = clock()
            for _ in range(repeats):
                call()
            seconds = clock() - start
            if i >= warmup:
                taken[name].append(seconds / repeats)
    return {name: slowest(seconds) for name, seconds in taken.items()}


def speed(mine: list[float], other: list[float]) -> Times:
    """Return how fast `mine` is, with `other` as 1: the quotients of each round, summed up."""
    return summary([o / m for m, o in zip(mine, other, strict=True)])


def summary(seconds: list[float]) -> Times:
    """Return the median and the first and last tenth."""
    if len(seconds) < 2:
        return Times(seconds[0], seconds[0], seconds[0])
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return Times(statistics.median(seconds), tenths[0], tenths[-1])
