"""Cases of rms_norm.cu: RMSNorm and its gradients."""

from collections.abc import Iterator

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import numbers, over, unaligned_at, unset, wide
from tests.cuda.kernel_cases import TINY, U32, Case, Want

EPS = np.float32(1e-5)


def rms_norm_reference(x, weight, y, r, eps, rows, width):
    """Terms of one sign: the mean square is off by (width + 2) u, its root by half of that."""
    want_y, want_r = ops.rms_norm(*wide(x, weight), float(eps))
    relative = (width / 2 + 8) * U32
    return {
        2: Want(want_y, relative * abs(want_y) + TINY),
        3: Want(want_r.reshape(rows), relative * abs(want_r.reshape(rows))),
    }


def rms_norm_dx_reference(dy, x, weight, r, dx, rows, width):
    r64 = wide(r)[0][:, None]
    dy64, x64, weight64 = wide(dy, x, weight)
    want, _ = ops.rms_norm_backward(dy64, x64, weight64, r64)
    size = abs(dy64 * weight64)
    along = (size * abs(x64)).mean(-1, keepdims=True) * r64**2 if width else 0.0
    allowed = r64 * (4 * U32 * size + (width + 10) * U32 * abs(x64) * along) + TINY
    return {4: Want(want, allowed)}


def rms_norm_partial_reference(parts):
    """Part j of the rows is a batch of its own to the array version."""

    def reference(dy, x, r, partial, rows, width):
        want, allowed, step = np.zeros((parts, width)), np.zeros((parts, width)), -(-rows // parts)
        for part in range(parts):
            some = slice(part * step, (part + 1) * step)
            dy64, x64, r64 = wide(dy[some], x[some], r[some])
            _, want[part] = ops.rms_norm_backward(dy64, x64, np.ones(width), r64[:, None])
            allowed[part] = (step + 3) * U32 * abs(dy64 * x64 * r64[:, None]).sum(0) + TINY
        return {3: Want(want, allowed)}

    return reference


def column_sums_reference(partial, dweight, parts, width):
    (parts64,) = wide(partial)
    return {1: Want(parts64.sum(0), parts * U32 * abs(parts64).sum(0) + TINY)}


def rms_norm_cases() -> Iterator[Case]:
    shapes = [(1, 1), (3, 5), (7, 32), (33, 36), (2, 257), (5, 128), (0, 4), (1, 1027)]
    launches = [
        ("rms_norm_row_per_thread", 64, lambda rows: over(rows, 64)),
        ("rms_norm_row_per_block", 50, lambda rows: over(rows, 1)),
        ("rms_norm_row_per_block", 128, lambda rows: 2),  # a block does several rows
        ("rms_norm_row_per_warp", 96, lambda rows: over(rows, 3)),
        ("rms_norm_row_per_warp", 32, lambda rows: 2),
    ]
    for kernel, block, grid in launches:
        for rows, width in shapes:
            yield Case(
                f"{kernel} {rows}x{width} by {block}",
                "rms_norm.cu",
                kernel,
                (grid(rows),),
                (block,),
                lambda rows=rows, width=width: [
                    numbers(rows, width), numbers(width, seed=1), unset(rows, width), unset(rows),
                    EPS, rows, width,
                ],
                rms_norm_reference,
            )  # fmt: skip
    for at in range(3):  # x, weight or y does not begin on a multiple of 16 bytes
        yield Case(
            f"rms_norm_row_per_warp, argument {at} unaligned",
            "rms_norm.cu",
            "rms_norm_row_per_warp",
            (3,),
            (64,),
            lambda at=at: unaligned_at(
                at, [numbers(5, 8), numbers(8, seed=1), unset(5, 8), unset(5), EPS, 5, 8]
            ),
            rms_norm_reference,
        )
    yield Case(
        "rms_norm of zeros",
        "rms_norm.cu",
        "rms_norm_row_per_block",
        (2,),
        (32,),
        lambda: [np.zeros((2, 3), np.float32), numbers(3), unset(2, 3), unset(2), EPS, 2, 3],
        rms_norm_reference,
    )
    for rows, width in shapes:
        yield from rms_norm_backward_cases(rows, width)


def rms_norm_backward_cases(rows: int, width: int) -> Iterator[Case]:
    def r():
        return ops.rms_norm(numbers(rows, width), numbers(width, seed=1), float(EPS))[1].reshape(
            rows
        )

    yield Case(
        f"rms_norm_backward_dx {rows}x{width}",
        "rms_norm.cu",
        "rms_norm_backward_dx",
        (min(over(rows, 1), 20),),
        (70,),
        lambda: [
            numbers(rows, width, seed=2), numbers(rows, width), numbers(width, seed=1), r(),
            unset(rows, width), rows, width,
        ],
        rms_norm_dx_reference,
    )  # fmt: skip
    for parts in (1, 4):
        yield Case(
            f"rms_norm_backward_partial {rows}x{width} in {parts} parts",
            "rms_norm.cu",
            "rms_norm_backward_partial",
            (over(width, 32), parts),
            (32,),
            lambda parts=parts: [
                numbers(rows, width, seed=2), numbers(rows, width), r(), unset(parts, width),
                rows, width,
            ],
            rms_norm_partial_reference(parts),
        )  # fmt: skip
    yield Case(
        f"rms_norm_backward_dweight of {rows} parts of {width}",
        "rms_norm.cu",
        "rms_norm_backward_dweight",
        (over(width, 48),),
        (48,),
        lambda: [numbers(rows, width, seed=3), unset(width), rows, width],
        column_sums_reference,
    )
