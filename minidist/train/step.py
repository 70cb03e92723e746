"""One training step, on the global batch, as each rank runs it.

    batch     samples k*B .. (k+1)*B, the same on any number of ranks; this rank takes a slice
    total     valid labels of the whole batch: every rank counts them itself, before forward
    M times, for each micro-batch of the slice:
    forward   unit by unit -> the SUM of the losses of this micro-batch
    backward  starts with scale/total, unit by unit from the end; each reports, and its ring starts
    then
    finish    all rings are done: every rank holds its part of the gradient of the whole batch
    agree     one small all-reduce: the square of the norm, the loss, a wish to stop
    update    clip by the global norm, take out the loss scale, then the optimiser

Dividing once, at the start of backward and by a number that all ranks agree on, makes every
reduction a plain sum. A mean on each rank and then a mean of the means gives a token more weight if
it lands on a rank with few valid ones, a mistake that many training programs have made; a mean of
the means of micro-batches is the same mistake.

Micro-batches save memory: the activations of one are gone before the next begins. A micro-batch may
be empty, and is run all the same, since its reductions take all ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from minidist.arrays import Array, to_host
from minidist.bounds import share
from minidist.collectives import ring
from minidist.comm import Comm
from minidist.errors import ConfigError, DivergedError
from minidist.nn import At
from minidist.nn.activations import alive
from minidist.parallel.data import mean, micro_batches
from minidist.parallel.watch import UNSEEN, Watch
from minidist.parallel.zero import Zero
from minidist.train.corpus import Corpus
from minidist.train.precision import LossScale


@dataclass(frozen=True)
class Outcome:
    """What a step tells, the same on every rank."""

    loss: float
    """Nats per valid token of the global batch, before the update."""
    norm: float
    """Of the whole gradient, before clipping and without the loss scale."""
    tokens: int
    """Valid labels in the global batch."""
    stop: bool
    """Some rank wants to stop after this step."""
    skipped: bool = False
    """The gradient overflowed, so nothing was updated; the loss scale is smaller now."""


class Step:
    """A training step that can be called. All ranks call it with the same step number.

    `micro_batches` is how many parts a rank's slice is worked off in. `loss_scale` is that of the
    dtype: see `minidist.train.precision`.
    """

    def __init__(
        self,
        sync: Zero,
        corpus: Corpus,
        *,
        batch: int,
        learning_rate: Callable[[int], float],
        clip: float = 0.0,
        micro_batches: int = 1,
        loss_scale: LossScale | None = None,
    ) -> None:
        if micro_batches < 1:
            raise ConfigError(f"{micro_batches} micro-batches: there must be at least 1")
        self.sync, self.corpus, self.batch = sync, corpus, batch
        self.units, self.comm = sync.units, sync.mesh.world
        self.data = sync.mesh.comm("dp", "ep")
        self.learning_rate, self.clip = learning_rate, clip
        self.micro_batches = micro_batches
        self.loss_scale = loss_scale or LossScale.constant()
        self._again = 0

    def __call__(self, step: int, watch: Watch = UNSEEN, stop: bool = False) -> Outcome:
        """Do update number `step` (0-based). `stop`: this rank wants this step to be the last.

        Sends what the stage sends, see `minidist.parallel.zero`, and one message of three numbers.
        Raises DivergedError on every rank if the loss or the norm is not finite; nothing is updated
        then. A dynamic loss scale skips a step with such a norm, and is halved.
        """
        with watch.span(f"step {step}"), self.loss_scale.quiet():
            total = self._valid(self._at(step, 0, self.batch))
            self.sync.begin(watch)
            self.sync.fetch(0)
            scale = self.loss_scale.scale / total if total else 0.0
            loss = 0.0
            for number, at in enumerate(self._micro_batches(step)):
                loss += self._forward_backward(at, scale, number == self.micro_batches - 1, watch)
            with watch.span("wait for gradients"):
                self.sync.finish()
            outcome = self._agree(step, loss, total, stop)
            if not outcome.skipped:
                with watch.span("update"):
                    self._update(step, outcome.norm)
            self.loss_scale.skipped += outcome.skipped
            self.loss_scale.update(not outcome.skipped)
        return outcome

    def _at(self, step: int, start: int, stop: int) -> At:
        """The place of samples `start` to `stop` of this step's batch."""
        xp = self.sync.xp
        samples = xp.arange(step * self.batch + start, step * self.batch + stop)
        positions = xp.arange(self.corpus.length)
        return At(step, True, samples, positions, self.sync.poll, self._recomputed)

    def _recomputed(self, context: Any, kept: Any) -> None:
        """Book what backward has brought back; it is gone again at the end of its unit."""
        nbytes = alive(context, besides=kept)
        self.sync.ledger.take("activations", nbytes)
        self._again += nbytes

    def _micro_batches(self, step: int) -> list[At]:
        """The parts of this rank's slice, some perhaps empty."""
        parts = micro_batches(self.data, self.batch, self.micro_batches)
        return [self._at(step, start, stop) for start, stop in parts]

    def _valid(self, at: At) -> int:
        return int((to_host(self.corpus.labels(at)) >= 0).sum())

    def _forward_backward(self, at: At, scale: float, last: bool, watch: Watch) -> float:
        """Leave the gradient of scale * (this micro-batch's losses) on its way; return their sum.

        `last`: no other micro-batch of this step follows.
        """
        x: Array = self.corpus.tokens(at)
        contexts = []
        ledger = self.sync.ledger
        for index, unit in enumerate(self.units):
            with watch.span(f"forward unit {index}"):
                x, context = unit.forward(x, at)
            kept = alive(context)
            ledger.take("activations", kept)
            contexts.append((context, kept))
            del context
        dy: Any = scale
        for index in reversed(range(len(self.units))):
            context, kept = contexts.pop()
            with watch.span(f"backward unit {index}"):
                dy = self.units[index].backward(context, dy)
            del context
            ledger.give("activations", kept + self._again)
            self._again = 0
            self.sync.ready(index, last)
        return float(to_host(x))

    def _agree(self, step: int, loss: float, total: int, stop: bool) -> Outcome:
        """Sum over ranks what each knows a part of. The same bits on all of them."""
        mine = np.array([self.sync.squares(), loss, stop], dtype=np.float64)
        squares, loss, stops = ring.all_reduce(self.comm, mine).tolist()
        loss, norm = loss / max(1, total), sqrt(squares) / self.loss_scale.scale
        overflow = not isfinite(norm)
        if not isfinite(loss) or (overflow and not self.loss_scale.dynamic):
            raise DivergedError(
                f"step {step}: loss {loss}, gradient norm {norm}: training has diverged; lower "
                "--lr or raise --warmup"
            )
        return Outcome(loss, norm, total, stops > 0, overflow)

    def _update(self, step: int, norm: float) -> None:
        factor = self.clip / norm if self.clip and norm > self.clip else 1.0
        number = step + 1 - self.loss_scale.skipped
        self.sync.update(self.learning_rate(step), number, factor / self.loss_scale.scale)


def evaluate(units: Sequence[Any], corpus: Corpus, comm: Comm, xp: Any, batch: int) -> float:
    """Return the loss over all validation bytes, in nats per byte. All ranks call it.

    `units` with the loss at the end. Each rank takes a slice of the windows, in batches; one
    message of two numbers. All ranks run equally many batches, the last ones of some perhaps empty:
    where ranks keep pieces of the parameters, each forward takes all of them.
    """
    start, stop = share(comm, corpus.validation_windows)
    longest = -(-corpus.validation_windows // comm.size)
    rounds = -(-longest // batch)
    sums = np.zeros(2)
    for first in range(start, start + rounds * batch, batch):
        samples = xp.arange(min(first, stop), min(first + batch, stop))
        at = At(0, False, samples, xp.arange(corpus.length))
        x = corpus.tokens(at)
        for unit in units:
            x = unit.forward(x, at)[0]  # what is for backward goes at once
        sums += float(to_host(x)), int((to_host(corpus.labels(at)) >= 0).sum())
    return mean(comm, *sums)
