"""Recompute: forget what forward computed, and compute it again when backward comes.

    kept for backward         blocks 1 .. L              the block at work
    none                      everything                 everything
    attention                 all but q, k, v, o         everything
    unit                      the input of each block    everything

A block keeps some sixteen times its input for backward. With "unit" only the inputs stay, and
backward runs the block's forward once more, a third more work in all. The results are the same to
the last bit: dropout is a function of the step and the sample, so it falls on the same elements.

A segment of several layers may be one such layer, see `segments`: fewer inputs stay, and more comes
back at once. `minidist.plan.activations.best_length` tells how long is best: a block keeps so much
beside its input that one block is the best segment of models up to some thirty blocks.

The embedding and the last unit are left as they are. The embedding keeps integers and a mask; the
last unit goes backward right after forward, so its memory would be needed at once again.

Selective recomputation (Korthikanti et al., 2022, section 5) forgets the scores and probabilities
of attention, which grow with the square of the context. Our attention never keeps these, as
FlashAttention does not, so that part is always on. "attention" here goes one step further and
forgets all inside the attention layer, projections included, keeping its input.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minidist.arrays import Array
from minidist.errors import ConfigError
from minidist.nn.at import At
from minidist.nn.layer import Chain, Later, Layer

RECOMPUTE = ("none", "unit", "attention")


@dataclass(frozen=True, eq=False)
class Recompute(Layer):
    """A layer whose ctx is its input and its place.

    Backward runs forward again, at the same place, and hands ``at.recomputed`` what that brought
    back and what was there before. With ``later``, only the weight gradients are deferred: forward
    runs again at once, for the input gradient, and what weight gradients need stays until then.
    """

    layer: Layer

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        y, _ = self.layer.forward(x, at)
        return y, (x, at)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        x, at = ctx
        _, inner = self.layer.forward(x, at)
        at.recomputed(inner, ctx)
        return self.layer.backward(inner, dy, later)


def segments(layers: Sequence[Layer], length: int) -> list[Layer]:
    """Return the layers in segments of `length`, the last perhaps shorter, each computed again.

    They compute what the layers do, to the bit. Chen et al., section 4, algorithm 1. Raises
    ConfigError for a length below 1.
    """
    if length < 1:
        raise ConfigError(f"segments of {length} layers: the length must be at least 1")
    starts = range(0, len(layers), length)
    return [Recompute(Chain(*layers[start : start + length])) for start in starts]
