"""Optimisers: they see pieces of parameters, and keep state per piece.

An optimiser is handed a `Shard`, that is a row-major range of a parameter, with its data and its
gradient as flat arrays. Whether the range is the whole parameter (plain data parallelism) or a part
of it (ZeRO) makes no difference to element-wise arithmetic, as long as nothing is concluded from
the shape of the flat piece. Hence weight decay asks for the number of dimensions of the WHOLE
parameter: matrices decay, norm weights and biases do not.

The number of the update comes from the caller and is not counted here, so a resumed run cannot
restart the bias correction of Adam.
"""

from typing import Protocol

from minidist.arrays import Array, namespace
from minidist.nn import Shard
from minidist.ops.optim import adamw, sgd

State = dict[str, Array]


class Optimizer(Protocol):
    """What a training step needs, and a checkpoint."""

    slots: tuple[str, ...]
    """Names of the arrays that are kept per shard."""
    state: dict[Shard, State]

    def prepare(self, shard: Shard, data: Array) -> None:
        """Allocate what is kept for a shard, so that its memory is known before the first step."""

    def update(self, shard: Shard, data: Array, grad: Array, lr: float, step: int) -> None:
        """Change `data` in place. `step` counts updates from 1."""


def state_of(optimizer: Optimizer, shard: Shard, data: Array) -> State:
    """Return the arrays kept for a shard, zero at first."""
    if shard not in optimizer.state:
        xp = namespace(data)
        optimizer.state[shard] = {slot: xp.zeros_like(data) for slot in optimizer.slots}
    return optimizer.state[shard]


class SGD:
    """Plain gradient descent: a wrong factor in a gradient shows at once, Adam would hide it."""

    slots: tuple[str, ...] = ()

    def __init__(self, weight_decay: float = 0.0) -> None:
        self.weight_decay = weight_decay
        self.state: dict[Shard, State] = {}

    def prepare(self, shard: Shard, data: Array) -> None:
        """Do nothing: nothing is kept."""

    def update(self, shard: Shard, data: Array, grad: Array, lr: float, step: int) -> None:
        """Subtract lr * (grad + decay * data)."""
        sgd(data, grad, lr, _decay(shard, self.weight_decay))


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019)."""

    slots: tuple[str, ...] = ("m", "v")

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.state: dict[Shard, State] = {}

    def prepare(self, shard: Shard, data: Array) -> None:
        """Allocate both moments, zero at first."""
        state_of(self, shard, data)

    def update(self, shard: Shard, data: Array, grad: Array, lr: float, step: int) -> None:
        """Shrink matrices, then move along the mean gradient over the root of the mean square."""
        kept = state_of(self, shard, data)
        decay = _decay(shard, self.weight_decay)
        adamw(data, grad, kept["m"], kept["v"], lr, *self.betas, self.eps, decay, step)


def _decay(shard: Shard, weight_decay: float) -> float:
    return weight_decay if len(shard.parameter.shape) > 1 else 0.0
