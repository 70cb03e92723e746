"""One step of a small decoder: by one process, and by ranks that work it off in micro-batches.

    loss, grads = one_process()
    run(on_ranks, 3, ranks=2)           the same on both ranks, up to rounding

A third of the labels do not count, so ranks and micro-batches have different counts of them. Whole
training steps of the package are compared with more care in tests/train/test_step.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidist.arrays import Array
from minidist.comm import Comm
from minidist.nn import At, DecoderConfig, allocate, build_decoder
from minidist.ops.random import bits, uniform
from minidist.parallel.data import DataParallel, mean, micro_batches
from minidist.parallel.mesh import Mesh

LENGTH, BATCH, VOCABULARY = 4, 5, 11
SHAPE = DecoderConfig(
    layers=2, width=8, heads=2, groups=1, hidden=6, vocabulary=VOCABULARY, tied=True
)
BUCKET = 3000
"""Bytes: a block of the decoder has more in float64, its last unit less."""

Result = tuple[float, dict[str, Array]]


def tokens(at: At, ahead: int = 0) -> Array:
    """Return tokens (B, T), a function of sample and position."""
    numbers = bits(1, "token", at.samples[:, None], at.positions + ahead)
    return (numbers % np.uint64(VOCABULARY)).astype(np.int64)


def labels(at: At) -> Array:
    """Return the next tokens (B, T); -1 where a label does not count."""
    drop = uniform(1, "ignored", at.samples[:, None], at.positions) < 0.35
    return np.where(drop, -1, tokens(at, 1))


def valid(at: At) -> int:
    """Return how many labels count."""
    return int((labels(at) >= 0).sum())


def place(start: int, stop: int, progress: Callable[[], object] = lambda: None) -> At:
    """Return the place of the samples `start` to `stop`."""
    return At(0, True, np.arange(start, stop), np.arange(LENGTH), progress)


def micro_step(
    units: Sequence[Any], at: At, scale: float, report: Callable[[int], object]
) -> float:
    """Run forward and backward of one micro-batch; return the sum of its losses.

    Gradients are those of that sum times ``scale``. ``report(index)`` after each unit's backward.
    """
    x, contexts = tokens(at), []
    for unit in units:
        x, context = unit.forward(x, at)
        contexts.append(context)
    dy: Any = scale
    for index in reversed(range(len(units))):
        dy = units[index].backward(contexts.pop(), dy)
        report(index)
    return float(x)


def one_process() -> Result:
    """Return loss and gradients of the whole batch, without ranks, buckets or micro-batches."""
    units = build_decoder(SHAPE, labels)
    own = list(dict.fromkeys(p for unit in units for p in unit.parameters()))
    allocate(own, np.float64, gradients=True)
    at = place(0, BATCH)
    loss = micro_step(units, at, 1 / valid(at), lambda unit: None)
    return loss / valid(at), {p.name: p.grad for p in own}


def on_ranks(
    comm: Comm,
    parts: int,
    kind: type[DataParallel] = DataParallel,
    cut: Callable[..., list[tuple[int, int]]] = micro_batches,
    average: Callable[..., float] = mean,
) -> Result:
    """Return the same as this rank has it after ``parts`` micro-batches. All ranks call it.

    ``kind``, ``cut`` and ``average`` are what a lesson puts in the place of the package's own.
    """
    units = build_decoder(SHAPE, labels)
    sync = kind(units, Mesh(comm), np.float64, bucket_bytes=BUCKET)
    scale = 1 / valid(place(0, BATCH))  # every rank counts the labels of the whole batch
    sync.begin()
    total = count = 0.0
    for part, (start, stop) in enumerate(cut(comm, BATCH, parts)):
        at = place(start, stop, sync.poll)
        last = part == parts - 1
        total += micro_step(units, at, scale, lambda unit, last=last: sync.ready(unit, last))  # type: ignore[misc]
        count += valid(at)
    sync.finish()
    return average(comm, total, count), {p.name: p.grad for p in sync.parameters()}


def differences(right: Result, mine: Result) -> dict[str, float]:
    """Return by how much the loss and each gradient are off, at most."""
    off = {name: float(np.abs(mine[1][name] - g).max()) for name, g in right[1].items()}
    return {**off, "the loss": abs(mine[0] - right[0])}
