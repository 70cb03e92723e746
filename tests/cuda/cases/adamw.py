"""Cases of adamw.cu: early and late updates, skipped ones, zero gradients, odd lengths."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda.cases.views import (
    Results,
    draw,
    exact,
    view,
)
from tests.cuda.kernel_cases import TINY, U32, UB16, Case, Want


def adamw(x: Any, g: Any, m: Any, v: Any, flag: Any, *scalars: Any) -> Results:
    """Float32 throughout."""
    new_x, new_m, new_v = _adamw(x, g, m, v, flag, *scalars)
    return {0: new_x, 2: new_m, 3: new_v}


def adamw_bf16(x: Any, master: Any, g: Any, m: Any, v: Any, flag: Any, *scalars: Any) -> Results:
    """The parameter is the master with one more rounding; untouched where the step is skipped."""
    new, new_m, new_v = _adamw(master, g, m, v, flag, *scalars)
    rounded = Want(new.values, new.allowed + UB16 * (np.abs(new.values) + new.allowed))
    if flag is not None and flag[0]:
        rounded = Want(x)
    return {0: rounded, 1: new, 3: new_m, 4: new_v}


def _adamw(x: Any, g: Any, m: Any, v: Any, flag: Any, *scalars: Any) -> tuple[Want, Want, Want]:
    if flag is not None and flag[0]:
        return Want(x), Want(m), Want(v)
    keep, rate_m, rate_v, root, eps, step = (float(np.float32(s)) for s in scalars[:6])
    x, g, m, v = exact(x), exact(g), exact(m), exact(v)
    u = 1.01 * U32  # pays for products of errors
    # m + (g - m) * rate_m: the difference, the product, the sum.
    dm = (g - m) * rate_m
    new_m = m + dm
    off_m = u * (2 * np.abs(dm) + np.abs(new_m)) + TINY
    # v + (g * g - v) * rate_v: the square, the difference, the product, the sum.
    dv = (g * g - v) * rate_v
    new_v = v + dv
    off_v = u * (g * g * rate_v + 2 * np.abs(dv) + np.abs(new_v)) + 3 * TINY
    # below = sqrt(v) * root + eps: sqrt(v + off) - sqrt(v) <= off / sqrt(v), and <= sqrt(off);
    # then the roundings of sqrt, product and sum.
    square_root = np.sqrt(new_v)
    off_root = np.minimum(off_v / np.maximum(square_root, 1e-300), np.sqrt(off_v))
    below = square_root * root + eps
    off_below = off_root * root + 3 * u * below
    # x * keep - m / below * step: product; quotient and product; difference.
    moved = new_m / below * step
    off_moved = off_m / below * step + np.abs(moved) * (off_below / below + 2 * u)
    new_x = x * keep - moved
    off_x = u * (np.abs(x * keep) + np.abs(new_x)) + 1.01 * off_moved + 2 * TINY
    return Want(new_x, off_x), Want(new_m, off_m), Want(new_v, off_v)


def scalars_of(t: int) -> list[float]:
    """Return keep, rate_m, rate_v, root, eps, step of update t."""
    lr, beta1, beta2, eps, decay = 0.01, 0.9, 0.95, 1e-8, 0.1
    root = 1.0 / math.sqrt(1.0 - beta2**t)
    return [1.0 - lr * decay, 1.0 - beta1, 1.0 - beta2, root, eps, lr / (1.0 - beta1**t)]


def state(
    name: str, n: int, starts: tuple[int, ...], flag: int | None, t: int, half: bool
) -> Callable[[], list[Any]]:
    def arguments() -> list[Any]:
        rng = draw(name)
        values = rng.standard_normal((3, n)) * [[1.0], [0.1], [0.1]]
        x, g, m = (view(*xs) for xs in zip(values, [np.float32] * 3, starts, strict=False))
        v = view(rng.standard_normal(n) ** 2 * 0.01, np.float32, starts[3])
        if t == 1:
            m[:], v[:] = 0, 0
        g[:2] = 0  # where m and v stay 0, the step must not be 0 / 0
        there = None if flag is None else np.array([flag], np.uint32)
        if half:
            tail = [view(g, bfloat16, starts[1]), m, v, there, *scalars_of(t), n]
            return [view(x, bfloat16, starts[4]), x, *tail]
        return [x, g, m, v, there, *scalars_of(t), n]

    return arguments


def adamw_cases() -> Iterator[Case]:
    layouts = {
        "0": (0, (0, 0, 0, 0, 0), 0, 1),
        "7": (7, (0, 0, 0, 0, 0), None, 1),
        "301": (301, (0, 0, 0, 0, 0), 0, 100),
        "302, unaligned": (302, (1, 2, 3, 1, 1), 0, 2),
        "303, m unaligned": (303, (0, 0, 1, 0, 0), None, 3),
        "303, g unaligned": (303, (0, 1, 0, 0, 0), None, 3),
        "303, v unaligned": (303, (0, 0, 0, 1, 0), None, 3),
        "303, x or its master unaligned": (303, (1, 0, 0, 0, 0), None, 3),
        "303, x in 16 bits unaligned": (303, (0, 0, 0, 0, 1), None, 3),
        "300, skipped, by a flag of many bits": (300, (0, 0, 0, 0, 0), 6, 5),
        "300, skipped": (300, (0, 0, 0, 0, 0), 1, 5),
    }
    for kind, reference in (("f32", adamw), ("bf16", adamw_bf16)):
        for step in ("", "_vec"):
            for layout, what in layouts.items():
                kernel = f"adamw_{kind}{step}"
                name = f"{kernel}, {layout}"
                arguments = state(name, *what, kind == "bf16")
                yield Case(name, "adamw.cu", kernel, (2,), (32,), arguments, reference)
