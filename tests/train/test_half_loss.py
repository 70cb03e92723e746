"""Half types learn the corpus as float32 does: the loss stays in a band that is stated here."""

import numpy as np
import pytest

from minidist.comm import run
from minidist.nn import DecoderConfig, build_decoder
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.config import TrainConfig
from minidist.train.corpus import Corpus, read_text
from minidist.train.precision import Precision
from minidist.train.step import Step, evaluate
from tests.parallel.stubs import with_bucket
from tests.tiers import fast_and_slow

BAND = 2.0**-8
"""Nats a byte. The unit roundoff of bfloat16, so what one rounding does to a logit of size 1; the
mean over thousands of bytes has less of it. float16, with three more bits, has to stay as close."""


def losses(comm, dtype, steps, lr=4e-3, kind=Zero, whole=False):
    """The training loss of each step, and at the end that of the validation part."""
    corpus = Corpus(read_text(), 32, 1)
    units = build_decoder(DecoderConfig(2, 32, 4, 2), corpus.labels)
    types, config = Precision(dtype), TrainConfig()
    sync = kind(units, config.make_optimizer(), Mesh(comm), 1, dtype=types.dtype)
    how = {"clip": 1.0, "loss_scale": types.loss_scale(), "learning_rate": lambda step: lr}
    step = Step(sync, corpus, batch=16, **how)
    found = [step(number) for number in range(steps)]
    told = [o.loss for o in found if not o.skipped]
    return [*told, evaluate(sync.units, corpus, comm, np, 64)] if whole else told


def worst(dtype, steps=12):
    """The largest distance from the losses in float32, and how far float32 has come."""
    wanted = run(losses, "float32", steps, ranks=2)[0]
    found = run(losses, dtype, steps, ranks=2)[0]
    assert len(found) == len(wanted), "no step was skipped"
    return max(abs(a - b) for a, b in zip(found, wanted, strict=True)), wanted[0] - wanted[-1]


@pytest.mark.parametrize("dtype", fast_and_slow(["bfloat16", "float16"], 1))
def test_the_first_steps_have_the_losses_of_float32(dtype):
    distance, learned = worst(dtype)
    assert distance < BAND < learned / 100


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixty_steps_end_at_the_validation_loss_of_float32(dtype):
    wanted = run(losses, "float32", 60, 4e-3, Zero, True, ranks=2)[0]
    found = run(losses, dtype, 60, 4e-3, Zero, True, ranks=2)[0]
    assert wanted[-1] < 3.0, "float32 has learned something"
    assert abs(found[-1] - wanted[-1]) < BAND


@pytest.mark.slow
def test_updates_without_masters_leave_the_band():
    """Weights that are rounded to bfloat16 in each update lose what is below half a unit."""
    wrong = with_bucket("if self.trainable and how.dtype != how.master:", "if False:")
    wanted = run(losses, "float32", 30, 5e-4, ranks=1)[0]
    kept = run(losses, "bfloat16", 30, 5e-4, ranks=1)[0]
    lost = run(losses, "bfloat16", 30, 5e-4, wrong, ranks=1)[0]
    assert abs(kept[-1] - wanted[-1]) < BAND < abs(lost[-1] - wanted[-1])
