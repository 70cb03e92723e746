"""Sums of activations and of gradients, formed in float32 where the arrays are of a half type."""

from minidist.arrays import Array
from minidist.ops import half


@half.stored(1)
def add(x: Array, y: Array) -> Array:
    """Return x + y in the dtype of x; y may be smaller and is then repeated, as a bias is."""
    return x + y


def accumulate(total: Array, x: Array) -> None:
    """Add x to ``total`` in place. A half total is rounded once for each x."""
    if half.is_half(total.dtype):
        total[...] = half.down(half.up(total) + half.up(x), total.dtype)
    else:
        total += half.up(x)


@half.stored(0)
def sum_of_rows(x_ND: Array) -> Array:
    """Return the sum (D,) over the rows: the gradient of a bias. Float32 if x is of a half type."""
    return x_ND.sum(0)
