"""Cases of elementwise.cu: any of the arrays may be unaligned, and out may be a or b."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.cuda.cases.views import (
    SMALLEST,
    TYPES,
    UNIT,
    Results,
    blocks,
    draw,
    exact,
    single,
    unset,
    view,
)
from tests.cuda.kernel_cases import TINY, U32, Case, Want


def add(out: Any, a: Any, b: Any, n: int) -> Results:
    """One rounding to float32 and one to the type: the same everywhere, so exact."""
    with np.errstate(over="ignore", invalid="ignore"):  # 6e4 + 6e4, inf - inf
        return {0: Want((single(a) + single(b)).astype(out.dtype))}


def largest_of_two(out: Any, a: Any, b: Any, n: int) -> Results:
    """No rounding at all."""
    return {0: Want(np.maximum(single(a), single(b)).astype(out.dtype))}


def add_scaled(out: Any, a: Any, b: Any, alpha: float, n: int) -> Results:
    """Roundings in float32: the product, the sum; one more to the type."""
    product = float(np.float32(alpha)) * exact(b)
    total = exact(a) + product
    rounded = U32 * (np.abs(product) + np.abs(total)) + SMALLEST[out.dtype] + TINY
    # The last rounding sees a number that is off by `rounded`; 1.01 pays for products of errors.
    return {0: Want(total, 1.01 * (rounded + UNIT[out.dtype] * np.abs(total)))}


LAYOUTS = {  # length, where out, a, b begin; None: out is a or b
    "0": (0, (0, 0, 0)),
    "1": (1, (0, 0, 0)),
    "301": (301, (0, 0, 0)),
    "302, unaligned": (302, (1, 2, 3)),
    "303, only b unaligned": (303, (0, 0, 1)),
    "304, only a unaligned": (304, (0, 1, 0)),
    "305, only out unaligned": (305, (1, 0, 0)),
    "300, out is a": (300, (None, 0, 0)),
    "299, out is b, unaligned": (299, (0, None, 1)),
}


def operands(
    name: str, dtype: Any, n: int, starts: tuple[int | None, ...], alpha: float | None
) -> Callable[[], list[Any]]:
    def arguments() -> list[Any]:
        rng = draw(name)
        a, b = (rng.standard_normal(n) for _ in range(2))
        if alpha is None and n > 9:  # what overflows float16, what is not finite
            a[:6], b[:6] = (6e4, np.nan, 1, np.inf, -0.0, np.inf), (6e4, 1, np.nan, 1, 0.0, -np.inf)
        first = view(a, dtype, starts[1] or 0)
        second = view(b, dtype, starts[2] or 0)
        out = unset(n, dtype, starts[0] or 0)
        if starts[0] is None:
            out = first
        elif starts[1] is None:
            out = second
        return [out, first, second, *([] if alpha is None else [alpha]), n]

    return arguments


def elementwise_cases() -> Iterator[Case]:
    operations = {"add": add, "add_scaled": add_scaled, "max": largest_of_two}
    for what, reference in operations.items():
        for kind, dtype in TYPES.items():
            steps = ("", "_stride", "_vec") if kind == "f32" else ("", "_pairs")
            for step in steps:
                kernel = f"{what}_{kind}{step}"
                for layout, (n, starts) in LAYOUTS.items():
                    name = f"{kernel}, {layout}"
                    alpha = 0.3 if what == "add_scaled" else None
                    arguments = operands(name, dtype, n, starts, alpha)
                    grid = (2,) if step else blocks(n, 32)
                    yield Case(name, "elementwise.cu", kernel, grid, (32,), arguments, reference)
