"""Cases of rope.cu: turned forward and back, from tables and from positions."""

from collections.abc import Iterator

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import numbers, over, unset, wide
from tests.cuda.kernel_cases import TINY, U32, Case, Want

BASE = 10000.0


def pair_sizes(x: np.ndarray) -> np.ndarray:
    """Return |a| + |b| for both elements of each pair: a turned one is no larger."""
    (x64,) = wide(abs(x))
    return x64 + np.roll(x64, x.shape[-1] // 2, axis=-1)


def rope_reference(x, cosines, sines, y, direction, n, length, heads, size):
    x64, cosines64, sines64 = wide(x, cosines[:, None], sines[:, None])
    turn = ops.rope if direction > 0 else ops.rope_backward
    return {3: Want(turn(x64, cosines64, sines64), 3 * U32 * pair_sizes(x) + TINY)}


def rope_from_positions_reference(x, positions, y, base, direction, batch, length, heads, size):
    angles = ops.rope_angles(positions, size, base, np.float64)
    turn = ops.rope if direction > 0 else ops.rope_backward
    return {2: Want(turn(wide(x)[0], *angles), 5 * U32 * pair_sizes(x) + TINY)}


def positions_for(length: int) -> np.ndarray:
    """Return positions in any order, with a very late one."""
    positions = np.random.default_rng(length).permutation(length) * 7
    positions[:1] = 100_003
    return positions


def rope_cases() -> Iterator[Case]:
    shapes = [(1, 1, 1, 2), (2, 3, 5, 6), (1, 17, 2, 32), (3, 5, 1, 10), (0, 4, 2, 8), (2, 0, 2, 8)]
    for direction in (np.float32(1), np.float32(-1)):
        for shape in shapes:
            yield from rope_steps(direction, *shape)


def rope_steps(direction, batch: int, length: int, heads: int, size: int) -> Iterator[Case]:
    shape = batch, length, heads, size
    name, n = "x".join(map(str, shape)) + f" direction {direction}", batch * length * heads * size

    def tables():
        both = ops.rope_angles(positions_for(length), size, BASE, np.float32)
        return [table.reshape(length, size) for table in both]

    def in_place():
        x = numbers(*shape)
        return [x, *tables(), x, direction, n, length, heads, size]

    yield Case(
        f"rope_thread_per_element {name}",
        "rope.cu",
        "rope_thread_per_element",
        (over(n, 64),),
        (64,),
        lambda: [numbers(*shape), *tables(), unset(*shape), direction, n, length, heads, size],
        rope_reference,
    )
    yield Case(
        f"rope_thread_per_pair in place {name}",
        "rope.cu",
        "rope_thread_per_pair",
        (2,),
        (50,),
        in_place,
        rope_reference,
    )
    yield Case(
        f"rope_from_positions {name}",
        "rope.cu",
        "rope_from_positions",
        (2,),
        (50,),
        lambda: [
            numbers(*shape), positions_for(length), unset(*shape), BASE, direction,
            batch, length, heads, size,
        ],
        rope_from_positions_reference,
    )  # fmt: skip
