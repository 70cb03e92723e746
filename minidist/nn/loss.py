"""The last layer of training: logits to a sum of losses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from minidist import ops
from minidist.arrays import Array
from minidist.nn.at import At
from minidist.nn.layer import Later, Layer

Labels: TypeAlias = Callable[[At], Array]
"""From a place in the run to the integer labels (B, T); a negative label is ignored."""


@dataclass(frozen=True, eq=False)
class CrossEntropy(Layer):
    """Sum of the losses over the valid labels, as a 0-d array.

    The backward pass is started with ``scale`` = 1 / (valid labels in the *global* batch), or 0 if
    there are none. It is the only divisor in the program, so every sum over micro-batches and ranks
    is a plain sum, however unevenly the valid labels fall.

    Of half logits, the loss and the probabilities that are kept are float32.
    """

    labels: Labels

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        labels = self.labels(at)
        loss, probabilities = ops.cross_entropy(x, labels)
        return loss, (probabilities, labels, x.dtype)

    def backward(self, ctx: Any, dy: float, later: Later = None) -> Array:
        probabilities, labels, dtype = ctx
        return ops.half.down(ops.cross_entropy_backward(dy, probabilities, labels), dtype)
