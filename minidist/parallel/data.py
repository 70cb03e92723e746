"""Data parallelism: every rank holds the whole model and a slice of the batch; gradients add up.

    rank 0   forward  |backward unit 2|backward unit 1|backward unit 0|      |update
                                      |~~ ring: 2 ~~~~|
                                                      |~~ ring: 1 ~~~|
                                                                      |~ 0 ~|

Two versions. `ParameterByParameter` does what comes to mind first: after backward, a ring for each
parameter. It waits for all the messages, and there are many small ones.

`DataParallel` has one ring for a bucket of parameters, and starts it as soon as backward has left
the bucket's units: backward goes from the last unit to the first, so the gradients of the last are
complete long before the step ends. The messages travel while earlier units still compute. Nothing
runs in the background: a ring moves on when it is polled, between layers, and in every wait. (A
thread that waits for messages could poll instead; Python's threads would take turns with the
layers.) All ranks report units in the same order, so they start rings in the same order.

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

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minidist.arrays import to_host
from minidist.bounds import Seat, bounds, share
from minidist.collectives import Started, ring, wait_all
from minidist.errors import StepError
from minidist.nn import DATA, Parameter, allocate
from minidist.ops.half import is_half
from minidist.ops.reduce import sum_of_squares
from minidist.parallel.bucket import GRADIENTS, Bucket, Storage
from minidist.parallel.flat import Unit, group
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.watch import UNSEEN, Watch


def micro_batches(comm: Seat, batch: int, parts: int) -> list[tuple[int, int]]:
    """Return where this rank's micro-batches of a batch start and stop: ``parts`` pairs.

    Together those of all ranks are `range(batch)`, each sample once, in the order of ranks. Some
    may be empty, and are run all the same: their reductions take all ranks. Local.
    """
    start, stop = share(comm, batch)
    return [(start + a, start + b) for a, b in pairwise(bounds(stop - start, parts))]


def mean(comm: Any, total: float, count: float) -> float:
    """Return the mean of all that the ranks have, from the sum and the count of each; 0 of nothing.

    All ranks call it, and get the same bits. Sends one array of two float64. A mean of the ranks'
    means would give what lies on a rank with few a greater weight.
    """
    total, count = ring.all_reduce(comm, np.array([total, count], dtype=np.float64)).tolist()
    return total / max(1.0, count)


class ParameterByParameter:
    """Sums gradients after backward, one parameter after the other: the version to measure against.

    All parameters are partial over the data axes alone, in one dtype that is its own master.
    """

    def __init__(self, units: Sequence[Unit], mesh: Mesh, dtype: Any, xp: Any = np) -> None:
        self.comm, self.xp = mesh.comm(*DATA), xp
        self._parameters = list(dict.fromkeys(p for unit in units for p in unit.parameters()))
        allocate(self._parameters, dtype, xp, gradients=True)

    def begin(self, watch: Watch = UNSEEN) -> None:
        """Clear the gradients for a new step."""
        for p in self._parameters:
            p.grad[...] = 0

    def ready(self, unit: int, last: bool = True) -> None:
        """Do nothing yet: the gradients are summed when all of them are there."""

    def poll(self) -> None:
        """Do nothing: no message is under way during backward."""

    def finish(self) -> None:
        """Sum each gradient over all ranks. Sends 2(N-1)/N of it, in 2(N-1) messages each."""
        for p in self._parameters:
            if p.trainable:
                ring.all_reduce(self.comm.channel(GRADIENTS, p.name), p.grad)

    def parameters(self) -> Iterator[Parameter]:
        """Yield each parameter once, frozen ones included."""
        yield from self._parameters


class DataParallel:
    """Sums gradients bucket by bucket, while backward goes on: the sync object of a step.

    Building it allocates the state, in `dtype` and in the array library `xp`, with the same first
    values on every rank and no message, since these are a function of seed and name. Gradients are
    kept and sent in `grad_dtype`, by default that of the masters: float32 for half types, else
    `dtype`. `bucket_bytes`: join the buckets of neighbouring units until each has that many bytes
    of gradient.

    How much of the state a rank keeps is `stage`, see `minidist.parallel.zero`; here it is all.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        mesh: Mesh,
        dtype: Any,
        xp: Any = np,
        *,
        grad_dtype: Any = None,
        bucket_bytes: float = 0,
        ledger: Ledger | None = None,
        stage: int = 0,
    ) -> None:
        self.mesh, self.xp = mesh, xp
        self.ledger = ledger or Ledger(mesh.world.rank)
        dtype = np.dtype(dtype)
        master = np.dtype(np.float32) if is_half(dtype) else dtype
        grad = master if grad_dtype is None else np.dtype(grad_dtype)
        self.how = Storage(stage, dtype, grad, master, xp, self.ledger)
        groups = group(units, bucket_bytes / grad.itemsize)
        self.buckets = [Bucket(g, mesh, self.how) for g in groups]
        self._reduced = [b for b in self.buckets if b.trainable]
        self._of = [[b for b in self._reduced if i in b.users] for i in range(len(units))]
        self._reported = {b: set[int]() for b in self._reduced}
        self._finished = {b: set[int]() for b in self._reduced}

    def begin(self, watch: Watch = UNSEEN) -> None:
        """Clear the gradients for a new step. Raises StepError if a ring still reads them."""
        if any(b.ring and not b.ring.done for b in self._reduced):
            raise StepError(f"{self._rank}: begin() before finish() of the step before")
        for b in self.buckets:
            b.watch = watch
        for b in self._reduced:
            b.begin()
            self._reported[b], self._finished[b] = set(), set()

    def ready(self, unit: int, last: bool = True) -> None:
        """Say that backward of `unit` has added to its gradients; `last`: for the last time.

        A bucket is reduced when all its users have reported: at stages 0 and 1 for the last time,
        so one ring carries the sum of all micro-batches; at stages 2 and 3 each time. Sends
        (N-1)/N of the bucket from each of N ranks, at stage 0 twice that. All ranks report the same
        units in the same order.
        """
        for b in self._of[unit]:
            reported, finished = self._reported[b], self._finished[b]
            if unit in reported or unit in finished:
                raise StepError(f"{self._rank}: {b.name} was reported twice by unit {unit}")
            reported.add(unit)
            if last:
                finished.add(unit)
            final = finished == b.users
            if final or (b.stage >= 2 and reported | finished == b.users):
                self._launch(b, final)
            if reported == b.users or b.stage < 2:
                reported.clear()

    def _launch(self, bucket: Bucket, final: bool) -> Started:
        return bucket.start(final)

    def poll(self) -> None:
        """Let the messages in flight go as far as what has arrived allows."""
        for b in self.buckets:
            if b.ring and not b.ring.done:
                b.ring.poll()

    def finish(self) -> None:
        """Block until every gradient is the sum over all ranks that have a part of it."""
        for b in self._reduced:
            missing = sorted(b.users - self._finished[b])
            if missing:
                raise StepError(f"{self._rank}: finish() before ready() of unit {missing}")
        wait_all([b.ring for b in self._reduced if b.ring])
        wait_all([b.complete() for b in self._reduced if b.rest])

    def squares(self) -> float:
        """Return this rank's share of the squared gradient norm; the sum over ranks is the square.

        Each element counts on one rank only, the one that finished its sum. The norm of chunks is
        the same number where ranks hold nothing but their chunk, and the sum that ranks exchange
        has the same bits everywhere, which a norm computed by each rank on its own would not
        promise.
        """
        total = self.xp.zeros((), self.xp.float64)
        for b in self._reduced:
            if b.counted:
                total = total + sum_of_squares(b.sum)
        return float(to_host(total))

    def parameters(self) -> Iterator[Parameter]:
        """Yield each parameter once, frozen ones included."""
        for b in self.buckets:
            yield from b.layout.parameters

    @property
    def _rank(self) -> str:
        return f"rank {self.mesh.world.rank}"
