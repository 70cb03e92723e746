"""Cases of reduce.cu.

Most sum small integers: all partial sums are exact, in whatever order, so the result must be.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda import references as ref
from tests.cuda.kernel_cases import Case
from tests.cuda.kernel_cases_a import draw, unset, view


def integers(name: str, n: int, start: int) -> np.ndarray:
    """Return small integers as float32: all their sums are exact."""
    return view(draw(name).integers(-99, 100, n), np.float32, start)


def normals(name: str, n: int, start: int) -> np.ndarray:
    return view(draw(name).standard_normal(n), np.float32, start)


def spoilt(*values: float) -> Callable[[str, int, int], np.ndarray]:
    """Return what makes normal numbers, with these values from the middle on."""

    def make(name: str, n: int, start: int) -> np.ndarray:
        x = normals(name, n, start)
        x[n // 2 : n // 2 + len(values)] = values
        return x

    return make


def reduction(
    kernel: str,
    grid: int,
    block: int,
    n: int,
    reference: Callable[..., Any],
    make: Callable[[str, int, int], np.ndarray] = integers,
    start: int = 0,
    before: Callable[[], list[Any]] | None = None,
    shared: int = 0,
) -> Case:
    """Return a case with x and n behind what ``before`` gives: an array of a float per block."""
    name = f"{kernel}, {n} by {grid} x {block}, from {start}, {getattr(make, '__name__', '')}"
    first = before or (lambda: [unset(grid, np.float32)])
    return Case(
        name,
        "reduce.cu",
        kernel,
        (grid,),
        (block,),
        lambda: [*first(), make(name, n, start), n],
        reference,
        shared_mem=shared,
    )


def scratch(grid: int, dtype: Any) -> Callable[[], list[Any]]:
    """Return what makes out, parts and the counter of a reduction in one launch."""
    return lambda: [
        unset(1, dtype),
        unset(grid, dtype),
        view([0], np.uint32),
    ]


def reduce() -> Iterator[Case]:
    for n in (0, 1, 1000):
        yield reduction("sum_one_thread", 1, 32, n, ref.total())
    yield reduction("sum_one_thread", 2, 3, 1000, ref_first(ref.total(1000)), normals)
    for grid, block, n in ((1, 32, 0), (1, 64, 50), (3, 32, 90), (2, 37, 70), (1, 1024, 1000)):
        for kernel in ("sum_interleaved", "sum_sequential"):
            yield reduction(kernel, grid, block, n, ref.block_sums(block), shared=4 * block)
    for grid, block in ((1, 1), (1, 33), (2, 64), (3, 75), (1, 1024)):
        for n, start in ((0, 0), (5, 0), (1003, 0), (1002, 1)):
            x = (n, start)
            sums = ref.stride_sums(block, fit=start == 0)
            yield reduction("sum_warps", grid, block, n, sums, start=start)
            for kernel, dtype, reference in (
                ("sum_last_block", np.float32, ref.grid_total()),
                ("sum_squares", np.float64, ref.squares),
                ("largest", np.float32, ref.largest),
            ):
                before = scratch(grid, dtype)
                yield reduction(kernel, grid, block, x[0], reference, integers, start, before)
    # The longest way: 1 element in 128 threads x 4 accumulators or so, 2 for these, 5 in a warp, 2
    # between warps, then 1 block after another: far fewer than 40 additions for 1000 elements.
    two = scratch(2, np.float32)
    yield reduction("sum_last_block", 2, 64, 1000, ref.grid_total(40), normals, 0, two)
    yield reduction("largest", 2, 64, 1000, ref.largest, spoilt(np.nan, np.inf), 0, two)
    yield reduction("largest", 2, 64, 70, ref.largest, spoilt(np.inf), 1, two)
    huge = scratch(2, np.float64)  # squares beyond what float32 holds
    yield reduction("sum_squares", 2, 64, 99, ref.squares, spoilt(1e30, -3e38), 0, huge)
    yield from finite()


def ref_first(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of a kernel that writes the first element of its output alone."""

    def first(out: Any, x: Any, n: int) -> Any:
        want = reference(out[:1], x, n)[0]
        rest = ref.Want(np.append(want.values, out[1:]), np.append(want.allowed, 0 * out[1:]))
        return {0: rest}

    return first


def finite() -> Iterator[Case]:
    for suffix, dtype in (("", np.float32), ("_bf16", bfloat16)):
        for n, bad, flag in (
            (0, (), 0),
            (300, (), 0),
            (300, (), 1),
            (300, (np.nan,), 0),
            (301, (-np.inf, 1, np.inf), 0),
            (1, (np.nan,), 0),
            (300, (3e38,), 0),
        ):
            kernel = f"find_not_finite{suffix}"
            name = f"{kernel}, {n} with {bad}, flag {flag}"

            def arguments(n=n, bad=bad, flag=flag, dtype=dtype, name=name) -> list[Any]:
                x = view(spoilt(*bad)(name, n, 1), dtype, 1)
                return [view([flag], np.uint32), x, n]

            yield Case(name, "reduce.cu", kernel, (2,), (64,), arguments, ref.not_finite)


CASES = list(reduce())
