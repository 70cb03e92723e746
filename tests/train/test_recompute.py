"""Recomputing in a training step: the same update and the same messages, and fewer bytes booked."""

import numpy as np
import pytest

from minidist.comm import run
from minidist.nn import RECOMPUTE, At, DecoderConfig, allocate, build_decoder
from minidist.nn.activations import alive
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train.optimizer import AdamW
from minidist.train.step import Step
from tests.train.plain import ToyCorpus

MODEL = DecoderConfig(layers=3, width=8, heads=2, groups=1, vocabulary=11, dropout=0.3)
BATCH = 4


def train(comm, recompute, stage, step_kind=Step):
    """Two steps of two micro-batches. What a rank has computed, what it has sent, its ledger."""
    corpus, ledger = ToyCorpus(6, 0.3), Ledger(comm.rank)
    units = build_decoder(MODEL, corpus.labels, recompute)
    zero = Zero(units, AdamW(), Mesh(comm), stage, dtype=np.float32, ledger=ledger)
    step = step_kind(zero, corpus, batch=BATCH, learning_rate=lambda step: 0.01, micro_batches=2)
    outcomes = [step(number) for number in range(2)]
    weights = [values.tobytes() for _, _, values in zero.kept()]
    return (outcomes, weights), comm.traffic.by, ledger


def highest(recompute, samples):
    """The most bytes of activations that are there at once, counted storage by storage."""
    corpus = ToyCorpus(6, 0.3)
    units = build_decoder(MODEL, corpus.labels, recompute)
    allocate(dict.fromkeys(p for u in units for p in u.parameters()), np.float32, gradients=True)
    again = []
    at = At(0, True, np.arange(samples), np.arange(6), recomputed=lambda *ctx: again.append(ctx))
    x, kept, dy, most = corpus.tokens(at), [], 1.0, 0
    for unit in units:
        x, ctx = unit.forward(x, at)
        kept.append(ctx)
    for unit in reversed(units):
        dy = unit.backward(kept[-1], dy)
        most = max(most, alive(*kept, *(inner for inner, _ in again)))
        again.clear()
        kept.pop()
    return most


def check(recompute, ranks, stage, step_kind=Step):
    without = run(train, "none", stage, ranks=ranks)
    for rank, (result, sent, ledger) in enumerate(
        run(train, recompute, stage, step_kind, ranks=ranks)
    ):
        assert result == without[rank][0]
        assert sent == without[rank][1]
        assert ledger.peak["activations"] == highest(recompute, BATCH // ranks // 2)
        assert ledger.held["activations"] == 0


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize(("ranks", "stage"), [(1, 0), (2, 3)])
def test_same_update_and_same_messages(recompute, ranks, stage):
    check(recompute, ranks, stage)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("alive(context, besides=kept)", "alive(context)"),
        ("alive(context, besides=kept)", "0"),
        ("kept + self._again)", "kept)"),
    ],
    ids=["booked twice", "not booked", "not given back"],
)
def test_mutants(old, new):
    with pytest.raises(AssertionError):
        check("unit", 1, 0, mutate(Step, old, new))


def test_less_is_held():
    none, unit, attention = (highest(kind, 2) for kind in RECOMPUTE)
    assert unit < attention < none
