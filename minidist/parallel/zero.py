"""ZeRO: ranks that would all keep the same state keep a piece of it each.

    stage 0   plain data parallelism     everybody updates everything
    stage 1   masters and moments cut    a rank updates its chunk; parameters are gathered
    stage 2   gradients cut too          a micro-batch's gradient is reduced and let go
    stage 3   parameters cut too         a unit's parameters are there only while it works

        forward of unit 1 at stage 3, four buckets in flight or in use:

        unit 0   free
        unit 1   |hold: gathered|  compute  |release|
        unit 2                  |~~ gathering ~~~~~~~|hold| ...
        unit 3   not yet

A unit is wrapped so that its forward and backward first hold its buckets, then start to gather the
next unit's, so that the messages travel while this one computes. Stages 1 and 2 have the same
wrapper: there it brings in, once a step, what other ranks have updated, and that hides as well.

Everything goes by elements, not by tensors: see `minidist.parallel.flat`. Elements that a rank
sends in a step of M micro-batches, times (N-1)/N, for Psi parameters: 2 Psi, 2 Psi, (M+1) Psi and
3M Psi; a table that two units share is gathered for each of them at stage 3.

DeepSpeed calls these stages ZeRO-1 to 3; PyTorch's FSDP is stage 3, and its "SHARD_GRAD_OP" keeps
parameters from forward to backward. Source: Rajbhandari et al., "ZeRO", SC 2020, sections 5 and 7.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from minidist.arrays import Array
from minidist.collectives import Started
from minidist.errors import ConfigError
from minidist.nn import At, Later, Shard
from minidist.ops.half import up
from minidist.parallel.bucket import Bucket
from minidist.parallel.data import DataParallel
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.watch import UNSEEN, Watch

LENT = 2
"""Gradient buffers in flight at most at stages 2 and 3: without a limit, all buckets would be in
flight on a slow network, and nothing saved."""


class Rule(Protocol):
    """The optimiser, as far as it matters here: see `minidist.train.optimizer`."""

    slots: tuple[str, ...]
    state: dict[Shard, dict[str, Array]]

    def prepare(self, shard: Shard, data: Array) -> None:
        """Allocate what is kept for a shard."""

    def update(self, shard: Shard, data: Array, grad: Array, lr: float, step: int) -> None:
        """Change `data` in place. `step` counts updates from 1."""


class Held:
    """A unit whose parameters are whole while it works, at every stage."""

    def __init__(self, unit: Any, index: int, zero: "Zero") -> None:
        self.unit, self.index, self.zero = unit, index, zero

    def parameters(self) -> Any:
        """Return those of the unit."""
        return self.unit.parameters()

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        """Gather this unit, start to gather the next, and run."""
        with self.zero.using(self.index, self.index + 1):
            result: tuple[Array, Any] = self.unit.forward(x, at)
            return result

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        """Gather this unit again if it was freed, start to gather the one before, and run."""
        with self.zero.using(self.index, self.index - 1):
            return self.unit.backward(ctx, dy, later)


class Zero(DataParallel):
    """The state of a model, cut over the data axes of a mesh as the stage says, and its updates.

    All ranks build it alike and call its methods in the same order. `units` are those to run.
    `ledger` books every byte: see `minidist.parallel.ledger`. Other arguments: `DataParallel`.
    Raises ConfigError for another stage than 0 to 3.
    """

    def __init__(
        self,
        units: Sequence[Any],
        optimizer: Rule,
        mesh: Mesh,
        stage: int = 0,
        *,
        dtype: Any,
        grad_dtype: Any = None,
        xp: Any = np,
        bucket_bytes: float = 0,
        ledger: Ledger | None = None,
    ) -> None:
        if stage not in (0, 1, 2, 3):
            raise ConfigError(f"rank {mesh.world.rank}: there is no ZeRO stage {stage}: 0, 1, 2, 3")
        super().__init__(
            units,
            mesh,
            dtype,
            xp,
            grad_dtype=grad_dtype,
            bucket_bytes=bucket_bytes,
            ledger=ledger,
            stage=stage,
        )
        self.optimizer, self.stage = optimizer, stage
        self._used = [[b for b in self.buckets if i in b.users] for i in range(len(units))]
        self._lent: list[Started] = []
        self.units = [Held(unit, i, self) for i, unit in enumerate(units)]
        for b in self._reduced:
            for shard, place in b.layout.shards(b.own):
                optimizer.prepare(shard, b.weights[place])
                moments = optimizer.state.get(shard, {}).values()
                self.ledger.take("moments", sum(m.nbytes for m in moments))

    # --- during a step ----------------------------------------------------------------------------

    def begin(self, watch: Watch = UNSEEN) -> None:
        """Clear the gradients for a new step. Raises StepError if a ring still reads them."""
        super().begin(watch)
        self._lent = []

    def fetch(self, unit: int) -> None:
        """Start to gather what `unit` will need, if there is such a unit and anything to gather."""
        if 0 <= unit < len(self._used):
            for b in self._used[unit]:
                b.fetch()

    @contextmanager
    def using(self, unit: int, ahead: int) -> Iterator[list[Bucket]]:
        """Have the parameters of `unit` for a `with` block, those of `ahead` on the way."""
        buckets = self._used[unit]
        for b in buckets:
            b.hold()
        self.fetch(ahead)
        yield buckets
        for b in buckets:
            b.release()

    def poll(self) -> None:
        """Let the messages in flight go as far as what has arrived allows."""
        super().poll()
        for b in self.buckets:
            if b.gathering is not None:
                b.gathering.poll()

    def _launch(self, bucket: Bucket, final: bool) -> Started:
        """Start a reduction; at stages 2 and 3 only when fewer than two are under way.

        Waiting is safe in any schedule: the other ranks of a data group do the same actions.
        """
        if bucket.ring is not None:
            bucket.ring.wait()  # of the micro-batch before: both add to one sum
        self._lent = [ring for ring in self._lent if not ring.done]
        while self.stage >= 2 and len(self._lent) >= LENT:
            self._lent.pop(0).wait()
        ring = super()._launch(bucket, final)
        self._lent.append(ring)
        return ring

    # --- between steps ----------------------------------------------------------------------------

    def update(self, rate: float, step: int, factor: float = 1.0) -> None:
        """Do update number `step` (from 1) with the gradients times `factor`. No messages.

        Masters move, and are rounded once into the parameters. Other ranks' chunks are gathered
        when a unit wants them.
        """
        for b in self._reduced:
            for shard, place in b.layout.shards(b.own):
                grad = _times(b.gradient[place], factor, self.how.master)
                self.optimizer.update(shard, b.weights[place], grad, rate, step)
            b.refresh()

    def refresh(self) -> None:
        """Follow a change of what `kept` yields: the parameters are rounded from it again."""
        for b in self.buckets:
            b.refresh()

    def kept(self) -> Iterator[tuple[str, Shard, Array]]:
        """Yield what this rank keeps, as (slot, shard, flat array): writable, and no copies.

        The slots are "weights", which are the masters where there are any, and the optimiser's.
        """
        for b in self.buckets:
            for shard, place in b.layout.shards(b.own):
                yield "weights", shard, b.weights[place]
                for slot, value in self.optimizer.state.get(shard, {}).items():
                    yield slot, shard, value

    def answers(self) -> Iterator[tuple[str, Shard, Array]]:
        """Yield, of what this rank keeps, what it answers for: each element on one rank.

        That is its chunk, on the first of the ranks that hold the same one.
        """
        counted = [b for b in self.buckets if b.counted]
        chunks = {s.parameter: s for b in counted for s, _ in b.layout.shards(b.chunk)}
        for slot, shard, values in self.kept():
            part = chunks.get(shard.parameter)
            if part is not None:
                start, stop = part.start - shard.start, part.stop - shard.start
                yield slot, part, values[start:stop]

    def gradients(self) -> Iterator[tuple[Shard, Array]]:
        """Yield the reduced gradient of what this rank answers for: tests compare it."""
        for b in self._reduced:
            for shard, place in b.layout.shards(b.chunk) if b.counted else []:
                yield shard, b.sum[place]

    def gathered(self) -> Iterator[Bucket]:
        """Yield each bucket while its parameters are whole and up to date. All ranks call it."""
        for b in self.buckets:
            b.hold()
            yield b
            b.release()


def _times(grad: Array, factor: float, dtype: Any) -> Array:
    """Return the gradient times a factor in the masters' dtype, in place where it has that."""
    if grad.dtype != dtype:
        grad = up(grad).astype(dtype)
    if factor != 1.0:
        grad *= factor
    return grad
