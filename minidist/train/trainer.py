"""A training run from the first step to the last, on each rank.

    prepare     corpus, model, first weights or those of a checkpoint     no messages
    run         step, step, step; log, validate and save now and then
    close       all ranks hold the same weights? a sample, a report, the trace

The loop knows nothing of how a step is computed, and the step nothing of files. All decisions of
the loop are functions of the step number and of what the ranks agreed on in the step, so all ranks
take the same ones.
"""

import sys
import time
from hashlib import sha256
from math import isfinite
from typing import Any

from minidist.arrays import to_host
from minidist.bounds import share
from minidist.comm import Comm
from minidist.errors import DivergedError, MismatchError
from minidist.nn import build_decoder
from minidist.ops.half import up
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.watch import UNSEEN
from minidist.parallel.zero import Zero
from minidist.plan.activations import Activations
from minidist.train import metrics
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.corpus import Corpus, Text
from minidist.train.folder import RunFolder, together
from minidist.train.report import Flow, Sent, Turns, traffic_rows
from minidist.train.saves import Saves
from minidist.train.step import Outcome, Step, evaluate
from minidist.train.stop import StopRequest
from minidist.train.trace import Trace, start_trace, write_trace


class Trainer:
    """One rank's part of a run. Building it computes first values and reads files, no more."""

    def __init__(
        self,
        mesh: Mesh,
        config: TrainConfig,
        layout: Layout,
        session: Session,
        folder: RunFolder,
        text: Text,
        xp: Any,
    ) -> None:
        self.comm, self.config, self.session, self.folder = mesh.world, config, session, folder
        self.layout, self.text, self.xp = layout, text, xp
        self.ledger = Ledger(mesh.world.rank, session.memory_limit)
        self.corpus = Corpus(text, config.context, config.seed)
        precision = config.precision()
        self.sync = Zero(
            build_decoder(config.decoder(), self.corpus.labels, layout.recompute),
            config.make_optimizer(),
            mesh,
            layout.zero,
            dtype=precision.dtype,
            grad_dtype=precision.grad_dtype,
            xp=xp,
            bucket_bytes=layout.bucket_mb * 1e6,
            ledger=self.ledger,
        )
        self.units = self.sync.units
        self.loss_scale = precision.loss_scale()
        self.step = Step(
            self.sync,
            self.corpus,
            batch=config.batch,
            learning_rate=config.learning_rate,
            clip=config.clip,
            micro_batches=layout.micro_batches,
            loss_scale=self.loss_scale,
        )
        self.saves = Saves(mesh.world, config, folder, text, self.sync, self.loss_scale)
        self.done = self.first = self.skipped = 0
        self.in_steps = {GRADIENTS: 0, PARAMETERS: 0}
        self.val_loss: float | None = None

    def resume(self) -> None:
        """Go on from what the run has saved, see `Saves.load`. All ranks call it.

        A run that ended before its first save is started again: it computes the same.
        """
        step = self.saves.load()
        if step is None:
            self.say(f"{self.folder.path} has not saved: it begins again")
        else:
            self.done = self.first = step

    @property
    def leader(self) -> bool:
        """Whether this rank prints and writes."""
        return self.comm.rank == 0

    def say(self, text: str = "") -> None:
        """Print on rank 0."""
        if self.leader:
            print(text, flush=True)

    def open_folder(self) -> None:
        """Make the folder of a new run, or drop the metrics that a resumed one writes again."""
        if not self.leader:
            return
        if self.session.resume:
            metrics.cut_after(self.folder.metrics, self.done)
        else:
            self.folder.create(self.config, self.layout)

    def run(self, stop: StopRequest) -> bool:
        """Train to the last step; False if somebody asked to stop before. All ranks call it."""
        self.say(metrics.HEADER)
        since, tokens, asked = time.perf_counter(), 0, False
        while self.done < self.config.steps and not asked:
            sent = self.comm.traffic.bytes
            outcome = self._one_step(stop.requested)
            sent, tokens = self.comm.traffic.bytes - sent, tokens + outcome.tokens
            if self._is_due(self.config.log_every) or self._is_due(self.config.validate_every):
                now = time.perf_counter()
                self._log(outcome, tokens / (now - since), sent)
                since, tokens = time.perf_counter(), 0
            asked = outcome.stop or self.done == self.session.stop_after
            if asked or self._is_due(self.session.save_every):
                self.save()
        return self.done == self.config.steps

    def _is_due(self, every: int) -> bool:
        return self.done == self.config.steps or (every > 0 and self.done % every == 0)

    def _one_step(self, stop: bool) -> Outcome:
        """Do the next step; the second of a sitting is traced (the first one warms up)."""
        traced = min(self.first + 1, self.config.steps - 1)
        trace = start_trace(self.comm, lambda: self.ledger.total) if self.done == traced else None
        before = {kind: self.comm.traffic.by[kind].bytes for kind in self.in_steps}
        outcome = self.step(self.done, trace or UNSEEN, stop)
        for kind in self.in_steps:
            self.in_steps[kind] += self.comm.traffic.by[kind].bytes - before[kind]
        self.skipped += outcome.skipped
        if trace:
            self._write_trace(trace)
        self.done += 1
        return outcome

    def _write_trace(self, trace: Trace) -> None:
        """Write the trace; without it the run goes on."""
        try:
            write_trace(self.comm, trace, self.folder.trace)
        except OSError as error:
            print(f"minidist train: no trace: {error}", file=sys.stderr, flush=True)

    def _log(self, outcome: Outcome, speed: float, sent: int) -> None:
        self.val_loss = None
        if self._is_due(self.config.validate_every):
            parts = self.step.data.size * self.layout.micro_batches
            batch = -(-self.config.batch // parts)  # on all ranks; no more at once than in training
            self.val_loss = evaluate(self.units, self.corpus, self.comm, self.xp, batch)
            self._must_be_finite(self.val_loss, "validation loss")
        row = metrics.Metrics(self.done, outcome.loss, self.val_loss, speed, sent, outcome.norm)
        self.say(metrics.line(row))
        if self.leader:
            metrics.append(self.folder.metrics, row)

    def save(self) -> None:
        """Save the run, see `Saves.save`. All ranks call it.

        Raises DivergedError on all ranks, and leaves the files as they are, if a weight is not
        finite: nothing could go on from there.
        """
        together(self.comm, self._must_be_finite_here)
        self.saves.save(self.done)

    def _must_be_finite_here(self) -> None:
        for slot, shard, values in self.sync.kept():
            if slot == "weights":
                self._must_be_finite(to_host(abs(up(values)).sum()), shard.parameter.name)

    def _must_be_finite(self, value: Any, what: str) -> None:
        if not isfinite(value):
            raise DivergedError(
                f"after step {self.done}: {what} not finite: training has diverged; lower --lr or "
                "raise --warmup, or go on from the checkpoint before"
            )

    def turns(self) -> Turns:
        """Return how often things have happened in this sitting."""
        steps = self.done - self.first
        return Turns(steps, self.skipped, self.layout.micro_batches, self.first > 0)

    def traffic(self) -> list[Flow]:
        """Return what was sent beside the formula. All ranks call it.

        Call it after `check_replicas`, which gathers what the last update has changed.
        """
        gathered = self.comm.traffic.by[PARAMETERS].bytes
        parameters = self.in_steps[PARAMETERS] if self.sync.stage == 3 else gathered
        return traffic_rows(self.sync, Sent(self.in_steps[GRADIENTS], parameters), self.turns())

    def activations(self) -> Activations:
        """Return the shape of this rank's largest micro-batch."""
        start, stop = share(self.step.data, self.config.batch)
        decoder = self.config.decoder()
        return Activations(
            batch=-(-(stop - start) // self.layout.micro_batches),
            positions=self.config.context,
            width=decoder.width,
            heads=decoder.heads,
            groups=decoder.groups,
            head_size=decoder.head,
            hidden=decoder.inner,
            vocabulary=decoder.vocabulary,
            layers=decoder.layers,
            element=self.sync.how.dtype.itemsize,
            dropout=decoder.dropout > 0,
            recompute=self.layout.recompute,
        )

    def check_replicas(self) -> str:
        """Return the hash of the weights, or raise MismatchError. All ranks call it.

        Where ranks keep pieces, they are gathered as layers would see them.
        """
        digest = sha256()
        for bucket in self.sync.gathered():
            digest.update(to_host(bucket.flat).tobytes())
        return same_everywhere(self.comm, digest.hexdigest())


def same_everywhere(comm: Comm, digest: str) -> str:
    """Return `digest` if all ranks have the same; else raise MismatchError naming who differs."""
    everyone = comm.gather_objects(digest)
    common: str = max(everyone, key=everyone.count)
    others = [rank for rank, d in enumerate(everyone) if d != common]
    if others:
        raise MismatchError(
            f"rank {comm.rank}: after training, ranks {others} hold other weights than the rest: "
            "some gradient was not summed on all ranks; resume from the last checkpoint"
        )
    return common
