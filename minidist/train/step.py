"""One training step, on the global batch, as each rank runs it.

    batch     samples k*B .. (k+1)*B, the same on any number of ranks; this rank takes a slice
    total     valid labels of the whole batch: every rank counts them itself, before forward
    forward   unit by unit -> the SUM of the losses of this slice
    backward  starts with 1/total, unit by unit from the end; each reports, and its ring starts
    finish    all rings are done: every rank holds the gradient of the whole batch
    agree     one small all-reduce: the square of the norm, the loss, a wish to stop
    update    clip by the global norm, then the optimiser

Dividing once, at the start of backward and by a number that all ranks agree on, makes every
reduction a plain sum. A mean on each rank and then a mean of the means gives a token more weight if
it lands on a rank with few valid ones, a mistake that many training programs have made.
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
from minidist.errors import DivergedError
from minidist.nn import At
from minidist.parallel.data import DataParallel
from minidist.parallel.watch import UNSEEN, Watch
from minidist.train.corpus import Corpus
from minidist.train.optimizer import Optimizer


@dataclass(frozen=True)
class Outcome:
    """What a step tells, the same on every rank."""

    loss: float
    """Nats per valid token of the global batch, before the update."""
    norm: float
    """Of the whole gradient, before clipping."""
    tokens: int
    """Valid labels in the global batch."""
    stop: bool
    """Some rank wants to stop after this step."""


class Step:
    """A training step that can be called. All ranks call it with the same step number."""

    def __init__(
        self,
        units: Sequence[Any],
        sync: DataParallel,
        optimizer: Optimizer,
        corpus: Corpus,
        comm: Comm,
        *,
        batch: int,
        learning_rate: Callable[[int], float],
        clip: float = 0.0,
    ) -> None:
        self.units, self.sync, self.optimizer = units, sync, optimizer
        self.corpus, self.comm, self.batch = corpus, comm, batch
        self.learning_rate, self.clip = learning_rate, clip

    def __call__(self, step: int, watch: Watch = UNSEEN, stop: bool = False) -> Outcome:
        """Do update number `step` (0-based). `stop`: this rank wants this step to be the last.

        Sends the gradients once around each ring, and one message of three numbers. Raises
        DivergedError on every rank if the loss or the norm is not finite; nothing is updated then.
        """
        with watch.span(f"step {step}"):
            total = self._valid(self._at(step, 0, self.batch))
            self.sync.begin(watch)
            loss = self._forward_backward(self._slice(step), 1 / total if total else 0.0, watch)
            with watch.span("wait for gradients"):
                self.sync.finish()
            outcome = self._agree(loss, total, stop)
            self._check(step, outcome)
            with watch.span("update"):
                self._update(step, outcome.norm)
        return outcome

    def _at(self, step: int, start: int, stop: int) -> At:
        """The place of samples `start` to `stop` of this step's batch."""
        xp = self.sync.xp
        samples = xp.arange(step * self.batch + start, step * self.batch + stop)
        return At(step, True, samples, xp.arange(self.corpus.length), self.sync.poll)

    def _slice(self, step: int) -> At:
        return self._at(step, *share(self.comm, self.batch))

    def _valid(self, at: At) -> int:
        return int((to_host(self.corpus.labels(at)) >= 0).sum())

    def _forward_backward(self, at: At, scale: float, watch: Watch) -> float:
        """Leave the gradient of scale * (this slice's losses) on its way; return their sum."""
        x: Array = self.corpus.tokens(at)
        contexts = []
        for index, unit in enumerate(self.units):
            with watch.span(f"forward unit {index}"):
                x, context = unit.forward(x, at)
            contexts.append(context)
        dy: Any = scale
        for index in reversed(range(len(self.units))):
            with watch.span(f"backward unit {index}"):
                dy = self.units[index].backward(contexts.pop(), dy)
            self.sync.ready(index)
        return float(to_host(x))

    def _agree(self, loss: float, total: int, stop: bool) -> Outcome:
        """Sum over ranks what each knows a part of. The same bits on all of them."""
        mine = np.array([self.sync.squares(), loss, stop], dtype=np.float64)
        squares, loss, stops = ring.all_reduce(self.comm, mine).tolist()
        return Outcome(loss / max(1, total), sqrt(squares), total, stops > 0)

    def _check(self, step: int, outcome: Outcome) -> None:
        if not (isfinite(outcome.loss) and isfinite(outcome.norm)):
            raise DivergedError(
                f"step {step}: loss {outcome.loss}, gradient norm "
                f"{outcome.norm}: training has diverged; lower --lr or raise --warmup"
            )

    def _update(self, step: int, norm: float) -> None:
        if self.clip and norm > self.clip:
            self.sync.scale(self.clip / norm)
        rate = self.learning_rate(step)
        for shard, data, grad in self.sync.shards():
            self.optimizer.update(shard, data, grad, rate, step + 1)


def evaluate(units: Sequence[Any], corpus: Corpus, comm: Comm, xp: Any, batch: int) -> float:
    """Return the loss over all validation bytes, in nats per byte. All ranks call it.

    `units` with the loss at the end. Each rank takes a slice of the windows, in batches; one
    message of two numbers.
    """
    start, stop = share(comm, corpus.validation_windows)
    sums = np.zeros(2)
    for first in range(start, stop, batch):
        samples = xp.arange(first, min(first + batch, stop))
        at = At(0, False, samples, xp.arange(corpus.length))
        x = corpus.tokens(at)
        for unit in units:
            x, _ = unit.forward(x, at)
        sums += float(to_host(x)), int((to_host(corpus.labels(at)) >= 0).sum())
    loss, count = ring.all_reduce(comm, sums).tolist()
    return float(loss / max(1.0, count))
