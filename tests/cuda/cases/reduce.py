"""Cases of reduce.cu.

Most sum small integers: all partial sums are exact, in whatever order, so the result must be.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda.cases.views import Results, draw, exact, single, unset, view
from tests.cuda.kernel_cases import U32, Case, Want

# --- references -----------------------------------------------------------------------------------


def _sum(x: np.ndarray, additions: int) -> Want:
    """A sum is off by at most (additions on the longest way) u (sum of sizes).

    With small integers every partial sum is an integer below 2^24, hence exact: additions = 0.
    """
    x = exact(x)
    return Want(np.array([x.sum()]), 1.01 * additions * U32 * np.abs(x).sum())


def first_alone(additions: int = 0) -> Callable[..., Results]:
    """One sum, in out[0]; the other threads and blocks write nothing."""

    def reference(out: Any, x: Any, n: int) -> Results:
        want = _sum(x, additions)
        values, allowed = exact(out), np.zeros(out.size)
        values[:1], allowed[:1] = want.values, want.allowed
        return {0: Want(values, allowed)}

    return reference


def block_sums(block: int) -> Callable[..., Results]:
    """The sum of the elements of each block, of small integers: out[b] is that of block b."""

    def reference(out: Any, x: Any, n: int) -> Results:
        padded = np.zeros(out.size * block)
        padded[:n] = x
        return {0: Want(padded.reshape(out.size, block).sum(1))}

    return reference


def stride_sums(block: int, fit: bool) -> Callable[..., Results]:
    """The same where a grid strides over x by groups of four, then over what is left over."""

    def reference(out: Any, x: Any, n: int) -> Results:
        in_groups = n // 4 * 4 if fit else 0
        place = np.concatenate([np.arange(in_groups) // 4, np.arange(n - in_groups)])
        owner = place % (out.size * block) // block
        return {0: Want(np.bincount(owner.astype(int), exact(x), out.size))}

    return reference


def grid_total(additions: int = 0) -> Callable[..., Results]:
    """One sum; what the blocks leave in `parts` does not matter, and the counter is 0 again."""

    def reference(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
        return {0: _sum(x, additions), 1: anything(parts), 2: Want(np.zeros(1))}

    return reference


def squares(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
    """In float64: the squares are exact, an addition loses 2^-53, and there are at most n."""
    want = np.array([(exact(x) ** 2).sum()])
    return {0: Want(want, 2.0**-52 * n * want), 1: anything(parts), 2: Want(np.zeros(1))}


def largest(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
    """Exact; NaN wins, and nothing is minus infinity."""
    want = np.array([np.max(x, initial=-np.inf)])
    return {0: Want(want), 1: anything(parts), 2: Want(np.zeros(1))}


def not_finite(found: Any, x: Any, n: int) -> Results:
    """A flag that is set, and never taken back."""
    bad = not np.isfinite(single(x)).all()
    return {0: Want(np.array([max(int(found[0]), int(bad))]))}


def anything(x: np.ndarray) -> Want:
    """Scratch memory."""
    return Want(np.zeros(x.shape), np.inf)


# --- cases ----------------------------------------------------------------------------------------


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
    return lambda: [unset(1, dtype), unset(grid, dtype), view([0], np.uint32)]


def reduce_cases() -> Iterator[Case]:
    for n in (0, 1, 1000):
        yield reduction("sum_one_thread", 1, 32, n, first_alone())
    yield reduction("sum_one_thread", 2, 3, 1000, first_alone(1000), normals)
    for grid, block, n in ((1, 32, 0), (1, 64, 50), (3, 32, 90), (2, 37, 70), (1, 1024, 1000)):
        for kernel in ("sum_interleaved", "sum_sequential"):
            yield reduction(kernel, grid, block, n, block_sums(block), shared=4 * block)
    for grid, block in ((1, 1), (1, 33), (2, 64), (3, 75), (1, 1024)):
        for n, start in ((0, 0), (5, 0), (1003, 0), (1002, 1)):
            sums = stride_sums(block, fit=start == 0)
            yield reduction("sum_warps", grid, block, n, sums, start=start)
            for kernel, dtype, reference in (
                ("sum_last_block", np.float32, grid_total()),
                ("sum_squares", np.float64, squares),
                ("largest", np.float32, largest),
            ):
                before = scratch(grid, dtype)
                yield reduction(kernel, grid, block, n, reference, integers, start, before)
    # The longest way: 2 to 4 elements in each accumulator of a thread, 2 additions for these, 5 in
    # a warp, 1 for two warps, and 7 more for the two blocks: fewer than 40 for 1000 elements.
    two = scratch(2, np.float32)
    many = scratch(1030, np.float32)  # more blocks than the last one has threads
    yield reduction("sum_last_block", 1030, 32, 1200, grid_total(), integers, 0, many)
    yield reduction("sum_last_block", 2, 64, 1000, grid_total(40), normals, 0, two)
    yield reduction("largest", 2, 64, 1000, largest, spoilt(np.nan, np.inf), 0, two)
    yield reduction("largest", 2, 64, 70, largest, spoilt(np.inf), 1, two)
    huge = scratch(2, np.float64)  # squares beyond what float32 holds
    yield reduction("sum_squares", 2, 64, 99, squares, spoilt(1e30, -3e38), 0, huge)
    yield from finite_cases()


def finite_cases() -> Iterator[Case]:
    for suffix, dtype in (("", np.float32), ("_bf16", bfloat16)):
        for n, bad, flag in (
            (0, (), 0),
            (300, (), 0),
            (300, (), 1),
            (300, (np.nan,), 0),
            (301, (-np.inf, 1, np.inf), 0),
            (1, (np.nan,), 0),
            (300, (3e38,), 0),
            (300, (np.nan,) * 140, 0),  # more than one block finds something, and more than one bit
        ):
            kernel = f"find_not_finite{suffix}"
            name = f"{kernel}, {n} with {bad}, flag {flag}"

            def arguments(n=n, bad=bad, flag=flag, dtype=dtype, name=name) -> list[Any]:
                x = view(spoilt(*bad)(name, n, 1), dtype, 1)
                return [view([flag], np.uint32), x, n]

            yield Case(name, "reduce.cu", kernel, (2,), (64,), arguments, not_finite)
