"""The end of a run in words and numbers: how good the loss is, and what the gradients cost.

    loss on the validation bytes beside what simple predictors make of the same text
    bytes that gradients and parameters took beside the formula of the ZeRO stage

Both are measured here and now: the baselines from the text itself, the traffic from the counters of
the communicator.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from minidist.parallel.zero import Zero
from minidist.train.baselines import Baseline, baselines
from minidist.train.corpus import Corpus, Text

OURS = "this model"


def loss_rows(text: Text, corpus: Corpus, loss: float) -> list[Baseline]:
    """Return the model among the baselines, the best last. Local: rank 0 calls it."""
    ours = Baseline(OURS, float("nan"), loss)
    return sorted([*baselines(text.data, len(corpus.train)), ours], key=lambda r: -r.validation)


def loss_report(rows: Sequence[Baseline]) -> str:
    """Return the table of losses."""
    lines = [
        "nats per byte (bits in brackets); lower is better",
        f"{'':18}{'last 10 %, unseen':>20}{'whole text':>18}",
    ]
    for row in rows:
        whole = f"{'-':>18}" if row.name == OURS else f"{_nats(row.whole):>18}"
        lines.append(f"{row.name:18}{_nats(row.validation):>20}{whole}")
    lines.append("last 10 %: given the first 90 %. whole text: described by itself.")
    return "\n".join(lines)


def _nats(value: float) -> str:
    return f"{value:.3f} ({value / log(2):.2f})"


class Sent(NamedTuple):
    """Bytes that one rank sent in a sitting."""

    gradients: int
    parameters: int
    """At stage 3 in training steps; at stages 1 and 2 all, since each update is gathered once."""


class Turns(NamedTuple):
    """How often things happened in a sitting."""

    steps: int
    skipped: int
    micro_batches: int
    resumed: bool


class Flow(NamedTuple):
    """What all ranks sent of one kind in a sitting, in bytes."""

    kind: str
    formula: int
    sent: int

    @property
    def told(self) -> str:
        """The comparison in words."""
        return "exactly" if self.sent == self.formula else f"NOT equal: measured {self.sent:,}"


def traffic_rows(sync: Zero, sent: Sent, turns: Turns) -> list[Flow]:
    """Return what gradients and parameters took beside the formula. All ranks call it.

    Pieces of a bucket differ by one element where N does not divide it, and so do the ranks; the
    sum over ranks is N - 1 times the bytes that travel, exactly.
    """
    comm = sync.mesh.world
    sums = [sum(of_ranks) for of_ranks in zip(*comm.gather_objects(sent), strict=True)]
    formulas = gradient_bytes(sync, turns), parameter_bytes(sync, turns)
    return [
        Flow(kind, (comm.size - 1) * formula, total)
        for kind, formula, total in zip(Sent._fields, formulas, sums, strict=True)
    ]


def traffic_report(sync: Zero, turns: Turns, rows: Sequence[Flow]) -> str:
    """Return the table of what was sent, as text. Local."""
    ranks = sync.mesh.world.size
    per_step = sum(row.sent for row in rows) / ranks / max(1, turns.steps)
    lines = [
        f"{turns.steps} steps of {turns.micro_batches} micro-batches, stage {sync.stage}, "
        f"{ranks} ranks; sent by all ranks",
        *(
            f"  {r.kind:12}{r.sent:18,} bytes   formula {r.formula:18,} bytes, {r.told}"
            for r in rows
        ),
        f"  per rank and step {per_step:12,.0f} bytes",
    ]
    return "\n".join(lines)


def gradient_bytes(sync: Zero, turns: Turns) -> int:
    """Return the bytes that were reduced or gathered: those that a rank sends, times N / (N - 1).

    Per step 2 Psi at stage 0 (reduce-scatter and all-gather), Psi at stage 1, M Psi above.
    """
    times = {0: 2, 1: 1}.get(sync.stage, turns.micro_batches)
    size = sum(b.layout.size for b in sync.buckets if b.trainable)
    return times * turns.steps * size * int(sync.how.grad_dtype.itemsize)


def parameter_bytes(sync: Zero, turns: Turns) -> int:
    """Return the same of parameters: none at stage 0, Psi a step at 1 and 2, 2M Psi at 3.

    At stages 1 and 2 a resumed run gathers once more, and a skipped step nothing. At stage 3 a
    bucket is gathered for each of the units that use it.
    """
    element = int(sync.how.dtype.itemsize)
    if sync.stage == 0:
        return 0
    if sync.stage == 3:
        size = sum(b.layout.size * len(b.users) for b in sync.buckets)
        return 2 * turns.micro_batches * turns.steps * size * element
    whole = sum(b.layout.size for b in sync.buckets)
    size = sum(b.layout.size for b in sync.buckets if b.trainable)
    return ((turns.steps - turns.skipped) * size + turns.resumed * whole) * element
