"""Data parallelism: every rank holds the whole model and a slice of the batch; gradients add up.

    rank 0   forward  |backward unit 2|backward unit 1|backward unit 0|      |update
                                      |~~ ring: 2 ~~~~|
                                                      |~~ ring: 1 ~~~|
                                                                      |~ 0 ~|

Backward goes from the last unit to the first, so the gradients of the last are complete long before
the step ends. Each bucket of parameters starts its ring all-reduce then, and the messages travel
while the earlier units still compute. Nothing runs in the background: a ring moves on when it is
polled, between units, and in every wait.

A bucket is the parameters with the same users, where the users are the units that add to the
gradient. A table that the embedding and the head share has two users, so it has a bucket of its
own, whose ring starts when both have reported. Parameters and gradients of a bucket lie side by
side in one flat buffer each, of which `parameter.data` and `parameter.grad` are views: one ring, no
packing.

Everything is a plain sum. Backward starts with 1 / (valid tokens of the global batch), and after
that nobody divides by a number of ranks, so uneven and empty slices are right.

A parameter that no sample of the batch reaches has the gradient zero on every rank, and zero is a
gradient like any other: it is reduced, and momentum and weight decay act. So a step does not depend
on how many ranks there are, or on which of them met the parameter. A frozen parameter has no
gradient: it is neither reduced nor counted in the norm, and no optimiser sees it.

PyTorch's DistributedDataParallel does the same with buckets of 25 MB that ignore the borders of
units, hooks of autograd in place of `ready`, and a division by the number of ranks (Li et al.,
"PyTorch Distributed", VLDB 2020).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from minidist.arrays import Array, to_host
from minidist.bounds import share
from minidist.collectives import Started, ring, wait_all
from minidist.comm import Comm
from minidist.errors import ConfigError, StepError
from minidist.nn import Parameter, Shard
from minidist.ops.reduce import sum_of_squares
from minidist.parallel.watch import UNSEEN, Watch

TRAFFIC = "gradients"
"""The operation name under which `comm.traffic.by` counts the rings of the buckets."""


class Unit(Protocol):
    """What a model is a list of: as much of it as data parallelism looks at."""

    def parameters(self) -> Sequence[Parameter]:
        """Return all of them; a shared one may appear twice."""


class Bucket:
    """The parameters that the same units use, in a flat buffer, and their gradients in another."""

    def __init__(self, parameters: Sequence[Parameter], users: Sequence[int], dtype: Any, xp: Any):
        self.parameters, self.users = list(parameters), frozenset(users)
        self.name = "unit " + "+".join(map(str, users))
        self.trainable = parameters[0].trainable
        self.offsets = np.cumsum([0, *(p.size for p in parameters)]).tolist()
        self.data = xp.empty(self.offsets[-1], dtype)
        self.grad = xp.zeros(self.offsets[-1] if self.trainable else 0, dtype)
        self.reported: set[int] = set()
        self.ring: Started | None = None
        for p, place in self.places():
            self.data[place] = xp.asarray(p.initial(0, p.size).astype(dtype))
            p.data = self.data[place].reshape(p.local)
            p.grad = self.grad[place].reshape(p.local) if self.trainable else None

    def places(self) -> Iterator[tuple[Parameter, slice]]:
        """Yield each parameter and where it lies in the flat buffers."""
        for p, start, stop in zip(self.parameters, self.offsets, self.offsets[1:], strict=False):
            yield p, slice(start, stop)

    def piece(self, comm: Comm) -> Array:
        """Return the part of the gradient that this rank answers for, as the ring cuts it."""
        start, stop = share(comm, self.grad.size)
        return self.grad[start:stop]


class DataParallel:
    """Keeps the gradients of `units` equal on all ranks of `comm`: the sync object of a step.

    Building it allocates the parameters, in `dtype` and in the array library `xp`, with the same
    first values on every rank and no message, since these are a function of seed and name.
    """

    def __init__(self, units: Sequence[Unit], comm: Comm, dtype: Any, xp: Any = np) -> None:
        self.comm, self.xp = comm, xp
        self.buckets = [Bucket(ps, us, dtype, xp) for us, ps in _by_users(units)]
        self._reduced = [b for b in self.buckets if b.trainable]
        self._of = [[b for b in self._reduced if i in b.users] for i in range(len(units))]
        self._watch: Watch = UNSEEN

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients: what a step all-reduces."""
        return sum(b.grad.nbytes for b in self._reduced)

    def begin(self, watch: Watch = UNSEEN) -> None:
        """Clear the gradients for a new step. Raises StepError if a ring still reads them."""
        if any(b.ring and not b.ring.done for b in self._reduced):
            raise StepError(f"rank {self.comm.rank}: begin() before finish() of the step before")
        self._watch = watch
        for b in self._reduced:
            b.ring, b.reported = None, set()
            b.grad[...] = 0

    def ready(self, unit: int, last: bool = True) -> None:
        """Say that backward of `unit` has added to its gradients; `last`: for the last time.

        With several micro-batches only the last report of a step counts, so one ring carries the
        sum of all. Sends 2(N-1)/N of the bucket from each of N ranks, in 2(N-1) messages. All ranks
        report the same units in the same order.
        """
        if not last:
            return
        for b in self._of[unit]:
            if unit in b.reported:
                raise StepError(f"rank {self.comm.rank}: {b.name} was reported twice in one step")
            b.reported.add(unit)
            if b.reported == b.users:
                channel = self.comm.channel(TRAFFIC, b.name)
                steps = self._watch.ring(b.name, ring.all_reduce.steps(channel, b.grad))
                b.ring = Started(steps, self.comm)

    def poll(self) -> None:
        """Let the rings in flight go as far as the messages that have arrived allow."""
        for b in self._reduced:
            if b.ring and not b.ring.done:
                b.ring.poll()

    def finish(self) -> None:
        """Block until every gradient is the sum over all ranks."""
        for b in self._reduced:
            if b.ring is None:
                missing = sorted(b.users - b.reported)
                raise StepError(f"rank {self.comm.rank}: finish() before ready() of unit {missing}")
        wait_all([b.ring for b in self._reduced if b.ring])

    def squares(self) -> float:
        """Return this rank's share of the squared gradient norm; the sum over ranks is the square.

        Each element counts on one rank only, the one that finished its sum in the ring. The norm of
        pieces is the same number where ranks hold nothing but their piece (ZeRO), and the sum that
        ranks exchange has the same bits everywhere, which a norm computed by each rank on its own
        would not promise.
        """
        total = self.xp.zeros((), self.xp.float64)
        for b in self._reduced:
            total = total + sum_of_squares(b.piece(self.comm))
        return float(to_host(total))

    def scale(self, factor: float) -> None:
        """Multiply all gradients, as clipping does."""
        for b in self._reduced:
            b.grad *= factor

    def shards(self) -> Iterator[tuple[Shard, Array, Array]]:
        """Yield what this rank updates: (shard, flat data, flat gradient), as views.

        Here every rank updates everything, so each shard is a whole parameter.
        """
        for b in self._reduced:
            for p, place in b.places():
                yield Shard(p, 0, p.size), b.data[place], b.grad[place]

    def parameters(self) -> Iterator[Parameter]:
        """Yield each parameter once, frozen ones included."""
        for b in self.buckets:
            yield from b.parameters


def _by_users(units: Sequence[Unit]) -> Iterator[tuple[list[int], list[Parameter]]]:
    """Yield (units, parameters that just these units use and that are reduced alike)."""
    users: defaultdict[Parameter, list[int]] = defaultdict(list)
    for index, unit in enumerate(units):
        for p in dict.fromkeys(unit.parameters()):
            users[p].append(index)
    _check_names(list(users))
    groups = defaultdict[Any, list[Parameter]](list)
    for p, us in users.items():
        groups[tuple(us), p.partial, p.copies, p.trainable].append(p)
    for (us, *_), ps in groups.items():
        yield list(us), ps


def _check_names(parameters: Sequence[Parameter]) -> None:
    """Two parameters of one name would start with the same values and share a checkpoint entry."""
    seen: set[str] = set()
    for p in parameters:
        if p.name in seen:
            raise ConfigError(f"two parameters are called {p.name}: share one or rename one")
        seen.add(p.name)
