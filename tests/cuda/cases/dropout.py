"""Cases of dropout.cu: the bits of the array version, and so the same products."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from minidist import ops
from minidist.nn.at import At
from minidist.nn.elementwise import Dropout
from tests.cuda.cases.numbers import numbers, unaligned, unset
from tests.cuda.cases.rope import positions_for
from tests.cuda.kernel_cases import Case, Want


def dropout_reference(layer: Dropout, step: int) -> Callable[..., Mapping[int, Want]]:
    """The layer itself, in float32: the bits are the same, and so are the products."""

    def reference(x, y, word, samples, positions, threshold, scale, batch, length, channels):
        return {1: Want(layer.forward(x, At(step, True, samples, positions))[0])}

    return reference


def dropout_cases() -> Iterator[Case]:
    shapes = [(1, 1, 1), (2, 3, 5), (3, 7, 64), (1, 2, 259), (0, 3, 4), (2, 3, 0)]
    for kernel in ("thread_per_channel", "thread_per_four", "block_per_row"):
        for rate in (2**-17, 0.1, 0.5, 1 - 2**-16):
            for shape in shapes if rate == 0.1 else shapes[2:3]:
                yield dropout_case("dropout_" + kernel, rate, *shape, np.ascontiguousarray)
        yield dropout_case("dropout_" + kernel, 0.3, 2, 3, 8, unaligned)


def dropout_case(kernel, rate, batch, length, channels, place) -> Case:
    layer, step = Dropout("blocks.3.mlp.drop", rate, seed=12345), 77
    scale = np.float32(1.0 / ops.random.kept(rate))

    def arguments():
        samples = np.arange(batch) * 1000 + 2**40
        return [
            place(numbers(batch, length, channels)), unset(batch, length, channels),
            ops.random.bits(layer.seed, step, layer.name), samples, positions_for(length),
            int(rate * ops.random.LEVELS), scale, batch, length, channels,
        ]  # fmt: skip

    return Case(
        f"{kernel} {batch}x{length}x{channels} rate {rate:.6g}"
        + (", unaligned" if place is unaligned else ""),
        "dropout.cu",
        kernel,
        (3,),
        (40,),
        arguments,
        dropout_reference(layer, step),
    )
