"""How fast is the device? The timings of `gpu_check`, host and device in turn.

matmul      square matrices, GFLOP/s = 2 n^3 / time
copy        one array to another in the same memory, GB/s of payload
staging     between device and host memory, GB/s; pinned memory, which the system may not move,
            is what the device can read by itself
decoder     forward, backward, AdamW of a decoder of 4 layers, tokens/s
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from device_checks import Model
from device_ops import Target
from timing import Times, Variant, rounds, summary

from minidist.nn import DecoderConfig


@dataclass
class Timing:
    """One figure: `value` in `unit`, from the median of `times`."""

    name: str
    where: str
    value: float
    unit: str
    times: Times


def take(target: Target, calls: dict[str, Callable[[], object]], samples: int) -> dict[str, Times]:
    """Time calls in turn; each ends when the device is idle. One round is not counted."""

    def finished(call: Callable[[], object]) -> Callable[[], None]:
        return lambda: (call(), target.synchronise())

    variants = {name: Variant(target.synchronise, finished(call)) for name, call in calls.items()}
    taken = rounds(variants, samples, 1, target.synchronise, list)
    return {name: summary(seconds) for name, seconds in taken.items()}


def matmul(target: Target, sizes: tuple[int, ...]) -> Iterator[Timing]:
    """On the device at all sizes, on the host at the smallest."""
    for n in sizes:
        calls = {}
        for where, xp in places(target):
            if where == target.name or n == min(sizes):
                a = xp.ones((n, n), np.float32)
                calls[where] = lambda a=a: a @ a
        for where, times in take(target, calls, 9).items():
            yield Timing(f"matmul {n}", where, 2e-9 * n**3 / times.median, "GFLOP/s", times)


def copy(target: Target, nbytes: int) -> Iterator[Timing]:
    """On the device and on the host."""
    calls = {}
    for where, xp in places(target):
        x, out = xp.ones(nbytes // 4, np.float32), xp.zeros(nbytes // 4, np.float32)
        calls[where] = lambda xp=xp, x=x, out=out: xp.copyto(out, x)
    for where, times in take(target, calls, 9).items():
        yield Timing(f"copy {nbytes >> 20} MiB", where, nbytes / times.median / 1e9, "GB/s", times)


def staging(target: Target, nbytes: int) -> Iterator[Timing]:
    """Both directions, with the buffers of `minidist.comm.staging` and with ordinary memory."""
    x, (_, device) = target.xp.ones(nbytes // 4, np.float32), target.staging()
    calls = {}
    for kind, buffer in (
        ("pinned", device.host_buffer(nbytes)),
        ("ordinary", np.zeros(nbytes, np.uint8)),
    ):
        calls[f"to host, {kind}"] = lambda b=buffer: device.to_host(x, b)
        calls[f"from host, {kind}"] = lambda b=buffer: device.from_host(b, x)
    for name, times in take(target, calls, 9).items():
        yield Timing(name, target.name, nbytes / times.median / 1e9, "GB/s", times)


def decoder(target: Target, width: int, batch: int, length: int, samples: int) -> Iterator[Timing]:
    """A step of training in float32, on the device and on the host."""
    config = DecoderConfig(layers=4, width=width, heads=max(2, width // 32), groups=2)
    calls: dict[str, Callable[[], Any]] = {}
    for where, xp in places(target):
        model = Model(config, np.float32, xp, batch, length)
        calls[where] = lambda m=model: (m.gradients(), m.update())
    for where, times in take(target, calls, samples).items():
        speed = batch * length / times.median
        yield Timing(f"decoder step, width {width}", where, speed, "tokens/s", times)


def places(target: Target) -> list[tuple[str, Any]]:
    """Return what is compared, as (name, array library)."""
    return [(target.name, target.xp), ("numpy", np)]


def timings(target: Target) -> Iterator[tuple[str, Callable[[], Iterator[Timing]]]]:
    """Yield (name, what to time). Without a real device the sizes are tiny: only the code runs."""
    if target.real:
        yield "matmul", lambda: matmul(target, (1024, 4096, 8192))
        yield "copy", lambda: copy(target, 256 << 20)
        yield "staging", lambda: staging(target, 64 << 20)
        for width, samples in ((128, 9), (256, 9), (1024, 3)):
            yield f"decoder {width}", lambda w=width, n=samples: decoder(target, w, 8, 128, n)
    else:
        yield "matmul", lambda: matmul(target, (4, 8))
        yield "copy", lambda: copy(target, 1 << 10)
        yield "staging", lambda: staging(target, 1 << 10)
        yield "decoder 8", lambda: decoder(target, 8, 2, 4, 2)
