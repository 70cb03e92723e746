"""What a layer is, and the two ways to put layers together.

    y, ctx = layer.forward(x, at)
    dx     = layer.backward(ctx, dy)          gradients go to parameter.accumulate(...)

`forward` returns what `backward` needs, and a layer remembers nothing: no attribute changes after
construction. So one layer can have any number of micro-batches under way (pipelines need that),
and can be run again to recompute what was thrown away.

A weight gradient is needed only at the end of the step, an input gradient at once, by the layer
before. If ``later`` is a list, layers append the weight gradient's computation to it instead of
running it: a schedule may fill its idle time with those (zero-bubble pipelines).

PyTorch records this graph while forward runs; here the reader can see it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from minidist import ops
from minidist.arrays import Array
from minidist.nn.at import At
from minidist.nn.parameter import Parameter

Later: TypeAlias = list[Callable[[], None]] | None


class Layer(ABC):
    """A function of arrays with a hand-written backward.

    A layer never writes into an array it was handed. Unless it says otherwise it acts on the last
    axis and takes any leading shape, sizes of 0 included. Its results have the dtype of x. That may
    be a half type, so a layer leaves all arithmetic to `minidist.ops`.
    """

    @abstractmethod
    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        """Return (y, what backward needs)."""

    @abstractmethod
    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        """Return dx; add the parameters' gradients, or append that work to ``later``."""

    def parameters(self) -> list[Parameter]:
        """Return the parameters of this layer and of the layers in it; a shared one twice."""
        found: list[Parameter] = []
        for value in vars(self).values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Parameter):
                    found.append(part)
                elif isinstance(part, Layer):
                    found.extend(part.parameters())
        return found


class Chain(Layer):
    """Layers one after the other. Messages under way make progress between them."""

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        contexts = []
        for layer in self.layers:
            x, ctx = layer.forward(x, at)
            contexts.append(ctx)
            at.progress()
        return x, (contexts, at)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        contexts, at = ctx
        for layer, c in zip(reversed(self.layers), reversed(contexts), strict=True):
            dy = layer.backward(c, dy, later)
            at.progress()
        return dy


class Residual(Chain):
    """y = x + chain(x). The gradient takes both ways, and the two are added."""

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        y, ctx = super().forward(x, at)
        return ops.add(x, y), ctx

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        return ops.add(dy, super().backward(ctx, dy, later))
