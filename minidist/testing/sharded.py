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
from minidist.bounds import bounds
from minidist.collectives import Started
from minidist.comm import Comm
from minidist.nn import At, Later, Parameter, Shard
from minidist.parallel.bucket import Bucket
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Rule, Zero
from minidist.testing.coded import NOTHING, coded
from minidist.train.optimizer import AdamW

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


def odd_model(comm: Comm, n: int) -> list[Holder]:
    """Return units with a shared table, a scalar, nothing at all, matrices: n elements or more."""
    table = Parameter("table", (n, 2), init=1.0)
    empty, g = Parameter("empty", (0,)), Parameter("g", (n,), init="ones")
    return [
        Holder(comm, table, Parameter("scalar", (), init="ones")),
        Holder(comm, empty, g),
        Holder(comm, Parameter("matrix", (3, n), init=1.0), Parameter("b", (n,), init=1.0)),
        Holder(comm, table),
    ]


def trained(
    comm: Comm, n: int, stage: int, dtype: Any, micro_batches: int = 1, **methods: Any
) -> Array:
    """Return all parameters of the odd model in float64, after three clipped steps of AdamW.

    Gradients depend on the parameters, so a rank that reads old ones is found out. They are whole
    sixteenths, and their sums exact in any order: every stage must give the same bits.
    """

    def gradient(p: Parameter) -> Array:
        return (16 * p.data.astype(np.float32)).round() / 16 * (1 + comm.rank)

    made = machine(Mesh(comm), stage, odd_model(comm, n), AdamW(), dtype=dtype, **methods)
    for step in range(1, 4):
        reduce(made, gradient, micro_batches)
        made.update(0.1, step, 0.5)
    return np.concatenate(list(whole(made))).astype(float)


# --- buffers that tell what is in them ------------------------------------------------------------


def room(bucket: Bucket) -> Array:
    """Return the room that a bucket makes for its whole buffer, with NOTHING but the own chunk."""
    flat = Bucket._room(bucket)
    if flat is not bucket.stored:
        own = flat[bucket.chunk].copy()
        flat[...] = NOTHING
        flat[bucket.chunk] = own
    return flat


def tell_owners(bucket: Bucket, times: int = 1) -> None:
    """Fill the chunk that a rank owns with coded numbers, as an update by every owner does."""
    mine = bucket.stored if bucket.stage == 3 else bucket.stored[bucket.chunk]
    mine[...] = times * coded(bucket.comm.rank, bucket.layout.size)[bucket.chunk]
    bucket.stale = bucket.stage in (1, 2) and bucket.comm.size > 1


def owners(ranks: int, n: int, times: int = 1) -> Array:
    """Return what `tell_owners` makes of a whole buffer: each chunk from its owner."""
    cut = bounds(n, ranks)
    return times * np.concatenate([coded(r, n)[cut[r] : cut[r + 1]] for r in range(ranks)])


def gather_sends(ranks: int, n: int) -> list[int]:
    """Return the elements that each rank sends in a gather: all but its right neighbour's chunk."""
    cut = bounds(n, ranks)
    right = [(r + 1) % ranks for r in range(ranks)]
    return [n - (cut[r + 1] - cut[r]) for r in right]


def seen(bucket: Bucket) -> Array:
    """Return a copy of what a layer reads of a bucket of one parameter, or None."""
    (p,) = bucket.layout.parameters
    return None if p.data is None else p.data.copy()


def drain(comm: Comm) -> None:
    """End what is still in flight, so that a check can say what is wrong with it."""
    for started in list(comm.state.started):
        assert isinstance(started, Started)
        started.wait()
