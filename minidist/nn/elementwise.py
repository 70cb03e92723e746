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
        mask = self.mask(at, x.shape[-1])
        return self._apply(x, mask), mask

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        return dy if ctx is None else self._apply(dy, ctx)

    def mask(self, at: At, channels: int) -> Array:
        """Return the bool array (B, T, channels) of the elements that stay."""
        keys = (self.seed, at.step, self.name, at.samples[:, None], at.positions)
        return ops.random.keep(self.rate, channels, *keys)

    def _apply(self, x: Array, mask: Array) -> Array:
        y = x * mask
        y *= 1.0 / ops.random.kept(self.rate)
        return y
