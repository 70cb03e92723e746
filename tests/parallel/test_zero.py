"""ZeRO: the stages are the same training, bit for bit where the order of sums is the same."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minidist.comm import run
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.optimizer import SGD, AdamW
from minidist.train.step import Step
from tests.parallel.stubs import with_bucket
from tests.train import plain
from tests.train.plain import Case, ToyCorpus


def trained(comm, case, stage, micro_batches, dtype=np.float64, kind=Zero, **how):
    """Losses, norms and weights after some steps, as bits; and what is left in the ledger."""
    corpus = ToyCorpus(case.length, case.ignored)
    rule = SGD(0.1) if case.optimizer == "sgd" else AdamW(eps=plain.EPS, weight_decay=0.1)
    units = case.units(corpus.labels)
    sync = kind(units, rule, Mesh(comm), stage, dtype=dtype, **how)
    step = Step(
        sync,
        corpus,
        batch=case.batch,
        learning_rate=lambda step: case.lr,
        clip=case.clip,
        micro_batches=micro_batches,
    )
    outcomes = [step(number) for number in range(case.steps)]
    weights = {p.name: p.data.tobytes() for b in sync.gathered() for p in b.layout.parameters}
    assert sync.ledger.held["buffers"] == sync.ledger.held["activations"] == 0
    return outcomes, weights


cases = st.builds(
    Case,
    batch=st.integers(1, 7),
    optimizer=st.sampled_from(["sgd", "adamw"]),
    clip=st.sampled_from([0.0, 0.3]),
    tied=st.booleans(),
    frozen=st.sampled_from([(), ("norm", "blocks.0.mlp.up"), ("embed",)]),
)


def check_stages_agree(case, ranks, micro_batches, kinds=(Zero, Zero, Zero, Zero)):
    """Stages 0 and 1 bit for bit, 2 and 3 bit for bit, and all four with one micro-batch."""
    found = [
        run(trained, case, stage, micro_batches, np.float64, kind, ranks=ranks)
        for stage, kind in enumerate(kinds)
    ]
    alike = [(0, 1), (2, 3), *([(1, 2)] if micro_batches == 1 else [])]
    for one, two in alike:
        same = found[one] == found[two]  # no diff of all the bits
        assert same, f"stages {one} and {two} differ"


@settings(max_examples=settings.default.max_examples // 2)  # each trains four times
@example(Case(), 3, 1)
@example(Case(), 2, 3)
@given(cases, st.integers(1, 5), st.integers(1, 3))
def test_stages_agree_bit_for_bit(case, ranks, micro_batches):
    check_stages_agree(case, ranks, micro_batches)


BUCKET_MUTANTS = {
    "parameters are not gathered after an update": (
        "self.stale = self.stage in (1, 2) and self.comm.size > 1",
        "self.stale = False",
    ),
    "a micro-batch replaces the sum": (
        "out = self.sum if self.stage >= 2 and not self.begun else None",
        "out = self.sum if self.stage >= 2 else None",
    ),
    "the gradient of the step before stays": (
        "self.ring, self.begun = None, False",
        "self.ring = None",
    ),
    "a lent gradient is lent again": (
        "p.grad = None",
        "pass",
    ),
    "the chunk is not in its place": ("flat[self.chunk] = self.stored", "flat[...] = 0"),
}


@pytest.mark.parametrize("name", BUCKET_MUTANTS)
def test_a_wrong_bucket_is_seen(name):
    broken = with_bucket(*BUCKET_MUTANTS[name])
    with pytest.raises((AssertionError, ValueError, RuntimeError, RuntimeWarning)):
        check_all_stages(broken)


def check_all_stages(kind):
    check_stages_agree(Case(layers=2), 3, 2, (Zero, kind, Zero, kind))
    check_stages_agree(Case(layers=2), 3, 1, (Zero, Zero, kind, Zero))
