"""Layers without a matrix: RMSNorm and dropout."""

from dataclasses import dataclass
from typing import Any

from minidist import ops
from minidist.arrays import Array
from minidist.nn.at import At
from minidist.nn.layer import Later, Layer
from minidist.nn.parameter import Parameter


@dataclass(frozen=True, eq=False)
class RMSNorm(Layer):
    """Divide each row by its root mean square, then scale each channel by a weight."""

    weight: Parameter
    eps: float = 1e-5

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        y, r = ops.rms_norm(x, self.weight.data, self.eps)
        return y, (x, r)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        x, r = ctx
        dx, dweight = ops.rms_norm_backward(dy, x, self.weight.data, r)
        self.weight.accumulate(dweight)
        return dx


@dataclass(frozen=True, eq=False)
class Dropout(Layer):
    """Set a share ``rate`` of the elements to 0 and scale the others up; nothing unless training.

    x is (B, T, channels). Which elements fall is a function of the seed, the step, this layer's
    name, the global sample, the global position and the channel: never of the rank, of the order of
    execution or of how often the layer is run.
    """

    name: str
    rate: float
    seed: int = 0

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        if not (at.train and self.rate):
            return x, None
        key = (self.seed, at.step, self.name)
        return ops.dropout(x, self.rate, key, at.samples, at.positions)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        return dy if ctx is None else ops.dropout_backward(dy, self.rate, ctx)
