"""What the kernels must compute, in NumPy: `reference` functions of cases (see kernel_cases.py).

Each takes the arguments of its kernel and returns {position: Want}. Where one rounding at most is
made, or all numbers are small integers, the result is exact. Elsewhere the reference is computed in
float64, and a bound is derived from the number of roundings: u = 2^-24 times the size of what is
rounded. A GPU may contract a * b + c to one rounding (FMA), which is no more than two, and flush
what is smaller than 2^-126 to zero; both stay within the bounds.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda.kernel_cases import TINY, U16, U32, UB16, Want

Results = dict[Any, Want]

UNIT = {np.dtype(np.float32): U32, np.dtype(np.float16): U16, np.dtype(bfloat16): UB16}
SMALLEST = {np.dtype(np.float32): TINY, np.dtype(np.float16): 2.0**-25, np.dtype(bfloat16): TINY}
"""The absolute error of a rounding where numbers get too small for a relative one."""


def _single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def _exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# --- elementwise.cu -------------------------------------------------------------------------------


def add(out: Any, a: Any, b: Any, n: int) -> Results:
    """One rounding to float32 and one to the type: the same everywhere, so exact."""
    with np.errstate(over="ignore", invalid="ignore"):  # 6e4 + 6e4, inf - inf
        return {0: Want((_single(a) + _single(b)).astype(out.dtype))}


def largest_of_two(out: Any, a: Any, b: Any, n: int) -> Results:
    """No rounding at all."""
    return {0: Want(np.maximum(_single(a), _single(b)).astype(out.dtype))}


def add_scaled(out: Any, a: Any, b: Any, alpha: float, n: int) -> Results:
    """Roundings in float32: the product, the sum; one more to the type."""
    product = float(np.float32(alpha)) * _exact(b)
    total = _exact(a) + product
    rounded = U32 * (np.abs(product) + np.abs(total)) + SMALLEST[out.dtype] + TINY
    # The last rounding sees a number that is off by `rounded`; 1.01 pays for products of errors.
    return {0: Want(total, 1.01 * (rounded + UNIT[out.dtype] * np.abs(total)))}


# --- pack.cu --------------------------------------------------------------------------------------


def convert(to: Any, source: Any, scale: float, n: int) -> Results:
    """A product and a rounding to the type, both the same everywhere."""
    return {0: Want((_single(source) * np.float32(scale)).astype(to.dtype))}


def pack(flat: Any, tensors: list, *rest: Any) -> Results:
    """The tensors one behind the other."""
    joined = np.concatenate([_single(x).reshape(-1) for x in tensors] or [np.zeros(0)])
    return {0: Want((_single(joined) * np.float32(rest[-1])).astype(flat.dtype))}


def unpack(flat: Any, tensors: list, offsets: Any, *rest: Any) -> Results:
    """Pieces of the flat buffer."""
    scaled = _single(flat) * np.float32(rest[-1])
    pieces = [scaled[a:b] for a, b in pairwise(offsets)]
    return {
        (1, j): Want(piece.reshape(x.shape).astype(x.dtype))
        for j, (piece, x) in enumerate(zip(pieces, tensors, strict=True))
    }


# --- reduce.cu ------------------------------------------------------------------------------------
#
# A sum of n numbers has an error of at most (additions on the longest way) u (sum of sizes).
# With small integers every partial sum is an integer below 2^24, hence exact: additions = 0.


def _sum(x: np.ndarray, additions: int) -> Want:
    x = _exact(x)
    return Want(np.array([x.sum()]), 1.01 * additions * U32 * np.abs(x).sum())


def total(additions: int = 0) -> Callable[..., Results]:
    """One sum."""
    return lambda out, x, n: {0: _sum(x, additions)}


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
        return {0: Want(np.bincount(owner.astype(int), _exact(x), out.size))}

    return reference


def grid_total(additions: int = 0) -> Callable[..., Results]:
    """One sum; what the blocks leave in `parts` does not matter, and the counter is 0 again."""

    def reference(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
        return {0: _sum(x, additions), 1: anything(parts), 2: Want(np.zeros(1))}

    return reference


def squares(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
    """In float64: the squares are exact, an addition loses 2^-53, and there are at most n."""
    want = np.array([(_exact(x) ** 2).sum()])
    return {0: Want(want, 2.0**-52 * n * want), 1: anything(parts), 2: Want(np.zeros(1))}


def largest(out: Any, parts: Any, arrived: Any, x: Any, n: int) -> Results:
    """Exact; NaN wins, and nothing is minus infinity."""
    want = np.array([np.max(x, initial=-np.inf)])
    return {0: Want(want), 1: anything(parts), 2: Want(np.zeros(1))}


def not_finite(found: Any, x: Any, n: int) -> Results:
    """A flag that is set, and never taken back."""
    bad = not np.isfinite(_single(x)).all()
    return {0: Want(np.array([max(int(found[0]), int(bad))]))}


def anything(x: np.ndarray) -> Want:
    """Scratch memory."""
    return Want(np.zeros(x.shape), np.inf)


# --- adamw.cu -------------------------------------------------------------------------------------


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
    x, g, m, v = _exact(x), _exact(g), _exact(m), _exact(v)
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
