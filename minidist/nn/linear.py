"""Linear maps, the embedding table, and a bias on its own.

Suffixes: D inputs, F outputs, N all leading axes as one.
"""

from dataclasses import dataclass
from typing import Any

from minidist import ops
from minidist.arrays import Array, as_rows
from minidist.nn.at import At
from minidist.nn.layer import Later, Layer
from minidist.nn.parameter import Parameter


@dataclass(frozen=True, eq=False)
class Linear(Layer):
    """y = x W^T + b, with W (F, D) and b (F,) or none.

    All leading axes become one, so that each of the three products is a single large one:

        y_NF = x_ND W_DF^T          dx_ND = dy_NF W_FD          dW_FD = dy_FN^T x_ND
    """

    weight: Parameter
    bias: Parameter | None = None

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        bias = None if self.bias is None else self.bias.data
        y_NF = ops.linear(as_rows(x), self.weight.data, bias)
        return y_NF.reshape(*x.shape[:-1], self.weight.local[0]), x

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        x: Array = ctx
        x_ND, dy_NF = as_rows(x), as_rows(dy)

        def weight_gradient() -> None:
            self.weight.accumulate(ops.linear_weight_gradient(dy_NF, x_ND))
            if self.bias is not None:
                self.bias.accumulate(ops.sum_of_rows(dy_NF))

        if later is None:
            weight_gradient()
        else:
            later.append(weight_gradient)
        return ops.linear_backward(dy_NF, self.weight.data).reshape(x.shape)


@dataclass(frozen=True, eq=False)
class Bias(Layer):
    """y = x + b: the bias of a product whose terms are summed over several ranks.

    Inside that product each of t ranks would add it, and the sum would hold it t times.
    """

    bias: Parameter

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        return ops.add(x, self.bias.data), None

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        self.bias.accumulate(ops.sum_of_rows(as_rows(dy)))
        return dy


@dataclass(frozen=True, eq=False)
class Embedding(Layer):
    """y = table[ids]: the first layer. Integer ids of any shape; they have no gradient.

    The dtype of the table becomes that of all activations.
    """

    table: Parameter

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        return ops.embedding(x, self.table.data), x

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        """Add the table's gradient. Returns None: there is nothing to differentiate by."""
        self.table.accumulate(ops.embedding_backward(dy, ctx, self.table.local[0]))
        return None
