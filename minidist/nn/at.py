"""Where and when: everything a layer needs to know that is not a number of the layer.

Rotary angles, the causal mask, labels and dropout are functions of this record. A rank that holds
the second half of a sequence gets the second half of the positions, and everything follows: no
layer ever counts 0, 1, 2, ...
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minidist.arrays import Array


def nothing(*_: object) -> None:
    """Make no progress, tell nobody: no message is under way, and nobody counts."""


@dataclass(frozen=True, eq=False)
class At:
    """One micro-batch, by its place in the training run.

    ``samples`` (B,) are global sample numbers, ``positions`` (T,) global positions: integer arrays
    that live where the model's arrays live. ``train`` turns dropout on. Containers call
    ``progress`` between layers, so that messages under way advance while the layers compute. A
    layer that computes activations again hands ``recomputed`` the new ctx and the one that it kept,
    so that they are counted.
    """

    step: int
    train: bool
    samples: Array
    positions: Array
    progress: Callable[[], object] = nothing
    recomputed: Callable[[Any, Any], object] = nothing
