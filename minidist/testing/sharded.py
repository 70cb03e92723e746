"""Training states small enough to read, with some methods replaced: for lessons and tests of ZeRO.

    zero = machine(Mesh(comm), 3, [Holder(comm, vector)], bucket={"fetch": yours})
    step(zero, gradients)

The units own parameters and compute nothing but time; the optimiser adds a gradient to its weight,
so a weight that was 0 says what has been summed into it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minidist.arrays import Array
from minidist.comm import Comm
from minidist.nn import At, Later, Parameter, Shard
from minidist.parallel.bucket import Bucket
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Rule, Zero

Gradient = Callable[[Parameter], Array]
Methods = Mapping[str, Callable[..., Any]]


class Adds:
    """An optimiser that adds the gradient to the weight."""

    slots: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.state: dict[Shard, dict[str, Array]] = {}

    def prepare(self, shard: Shard, data: Array) -> None:
        """Do nothing: nothing is kept."""

    def update(self, shard: Shard, data: Array, grad: Array, lr: float, step: int) -> None:
        """Add, whatever the rate is."""
        data += grad


class Holder:
    """A unit that owns parameters, and adds ``gradient(p)`` to each of them in backward.

    ``seconds``: of forward, on the virtual clock; backward takes twice that. The messages in flight
    are polled ``polls`` times meanwhile.
    """

    gradient: Gradient

    def __init__(self, comm: Comm, *own: Parameter, seconds: float = 0.0, polls: int = 8) -> None:
        self.comm, self.own, self.seconds, self.polls = comm, own, seconds, polls

    def parameters(self) -> Sequence[Parameter]:
        """Return all of them."""
        return self.own

    def forward(self, x: Any, at: At) -> tuple[Any, At]:
        """Take the time of forward."""
        self._work(self.seconds, at)
        return x, at

    def backward(self, ctx: At, dy: Any, later: Later = None) -> Any:
        """Add the gradients and take the time of backward."""
        for p in self.own:
            p.accumulate(self.gradient(p).reshape(p.local))
        self._work(2 * self.seconds, ctx)
        return dy

    def _work(self, seconds: float, at: At) -> None:
        for _ in range(self.polls if seconds else 0):
            self.comm.compute(seconds / self.polls)
            at.progress()


def machine(
    mesh: Mesh,
    stage: int,
    units: Sequence[Holder],
    rule: Rule | None = None,
    *,
    dtype: Any = np.float64,
    zero: Methods | None = None,
    bucket: Methods | None = None,
    **how: Any,
) -> Zero:
    """Return the training state of these units; ``zero`` and ``bucket`` are methods to put in."""
    made = Zero(units, rule or Adds(), mesh, stage, dtype=dtype, **how)
    made.__class__ = type("YourZero", (Zero,), dict(zero or {}))
    for b in made.buckets:
        b.__class__ = type("YourBucket", (Bucket,), dict(bucket or {}))
    return made


def reduce(zero: Zero, gradient: Gradient, micro_batches: int = 1) -> None:
    """Run forward and backward of so many micro-batches and wait until gradients are reduced."""
    at = At(0, True, np.arange(1), np.arange(1), zero.poll)
    zero.begin()
    zero.fetch(0)
    for left in reversed(range(micro_batches)):
        _forward_backward(zero, gradient, at, last=left == 0)
    zero.finish()


def _forward_backward(zero: Zero, gradient: Gradient, at: At, last: bool) -> None:
    contexts = [unit.forward(1.0, at)[1] for unit in zero.units]
    for index in reversed(range(len(zero.units))):
        zero.units[index].unit.gradient = gradient
        zero.units[index].backward(contexts[index], 1.0)
        zero.ready(index, last)


def whole(zero: Zero) -> Iterable[Array]:
    """Yield a copy of each bucket's parameters as layers read them. All ranks call it."""
    for b in zero.gathered():
        yield b.flat.copy()
