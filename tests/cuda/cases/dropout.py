"""Cases of dropout.cu: the bits of the array version, and so the same products."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import numbers, unaligned_at, unset
from tests.cuda.cases.rope import positions_for
from tests.cuda.kernel_cases import Case, Want

SEED, STEP, LAYER = 12345, 77, "blocks.3.mlp.drop"


def dropout_reference(rate: float) -> Callable[..., Mapping[int, Want]]:
    """As the layer does it, in float32: the bits are the same, and so are the products."""

    def reference(x, y, word, samples, positions, threshold, scale, batch, length, channels):
        keys = (SEED, STEP, LAYER, samples[:, None], positions)
        return {1: Want(x * ops.random.keep(rate, channels, *keys) * scale)}

    return reference


def keys_for(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and positions."""
    return np.arange(batch) * 1000 + 2**40, positions_for(length)


def rate_of(sample: int, position: int, channel: int) -> float:
    """Return the rate that equals the bits of one channel, which is just kept then."""
    word = ops.random.bits(SEED, STEP, LAYER, sample, position, channel // 4)
    return (int(word) >> 16 * (channel % 4) & 0xFFFF) / ops.random.LEVELS


def dropout_cases() -> Iterator[Case]:
    shapes = [(1, 1, 1), (2, 3, 5), (3, 7, 64), (1, 2, 259), (0, 3, 4), (2, 3, 0)]
    samples, positions = keys_for(3, 7)
    edge = rate_of(int(samples[2]), int(positions[5]), 42)
    for kernel in ("thread_per_channel", "thread_per_four", "block_per_row"):
        for shape in shapes:
            yield dropout_case("dropout_" + kernel, 0.1, *shape)
        for rate in (2**-17, edge, 1 - 2**-16):
            yield dropout_case("dropout_" + kernel, rate, 3, 7, 64)
        for at in range(2):
            yield dropout_case("dropout_" + kernel, 0.3, 2, 3, 8, at)


def dropout_case(kernel, rate, batch, length, channels, view=None) -> Case:
    scale = np.float32(1.0 / ops.random.kept(rate))

    def arguments():
        samples, positions = keys_for(batch, length)
        return unaligned_at(view, [
            numbers(batch, length, channels), unset(batch, length, channels),
            ops.random.bits(SEED, STEP, LAYER), samples, positions,
            int(rate * ops.random.LEVELS), scale, batch, length, channels,
        ])  # fmt: skip

    where = "" if view is None else f", argument {view} unaligned"
    return Case(
        f"{kernel} {batch}x{length}x{channels} rate {rate:.6g}{where}",
        "dropout.cu",
        kernel,
        (3,),
        (40,),
        arguments,
        dropout_reference(rate),
    )
