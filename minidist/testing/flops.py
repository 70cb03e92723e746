"""Count the operations of products with weights while a real model runs.

with counted_products() as seen:
    ... forward, backward ...
sum(seen)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from minidist import ops
from minidist.arrays import Array

Op = Callable[..., Array]


@contextmanager
def counted_products() -> Iterator[list[int]]:
    """Append 2 x rows x columns x inner length of each product of a linear layer to a list.

    These are the three of `minidist.ops.linear`. The products inside attention have no weight and
    are not counted. In every thread of this process, for the time of the `with` block.
    """
    seen: list[int] = []

    def counting(op: Op, inner: Callable[[Any, Any], int]) -> Op:
        def counted(a: Array, b: Array, *more: Any) -> Array:
            y = op(a, b, *more)
            seen.append(2 * y.size * inner(a, b))
            return y

        return counted

    with patch.multiple(
        ops,
        linear=counting(ops.linear, lambda x_ND, w_FD: x_ND.shape[1]),
        linear_backward=counting(ops.linear_backward, lambda dy_NF, w_FD: dy_NF.shape[1]),
        linear_weight_gradient=counting(
            ops.linear_weight_gradient, lambda dy_NF, x_ND: dy_NF.shape[0]
        ),
    ):
        yield seen
