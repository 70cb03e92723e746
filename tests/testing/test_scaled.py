"""The training step with a known gradient has that gradient, on any number of ranks."""

import numpy as np
import pytest

from minidist.comm import run
from minidist.testing.scaled import kept, training
from minidist.train.precision import LossScale


def program(comm, stage, scale, bad=None, steps=2):
    step = training(comm, [3.0, 4.0, 2.0**-26], LossScale(scale), stage=stage, bad=bad)
    found = []
    for number in range(steps):
        before = kept(step)
        outcome = step(number)
        found.append((outcome.norm, outcome.skipped, kept(step) != before))
    return found, [b.gradient.copy() for b in step.sync.buckets]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_the_gradient_is_known(ranks, stage):
    """At scale 8 the smallest slope rounds to 0, at 1024 it is there."""
    for scale, small in ((8.0, 0.0), (1024.0, 2.0**-26)):
        found = run(program, stage, scale, ranks=ranks)
        for steps, _ in found:
            assert [s[:2] for s in steps] == [(5.0, False)] * 2
        assert any(moved for steps, _ in found for *_, moved in steps)
        parts = [g for _, (g,) in found]
        whole = parts[0] if stage == 0 else np.concatenate(parts)
        assert whole.tolist() == [3.0, 4.0, small], "the update has taken the scale out in place"


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_bad_element_comes_once(ranks, value):
    found = run(program, 2, 8.0, {1: (1, value)}, 3, ranks=ranks)
    for steps, _ in found:
        assert [skipped for _, skipped, _ in steps] == [False, True, False]
    moved = [any(steps[number][2] for steps, _ in found) for number in range(3)]
    assert moved == [True, False, True]


def test_it_overflows_where_it_says():
    def skipped(scale):
        ((steps, _),) = run(program, 0, scale, ranks=1)
        return steps[0][1]

    assert not skipped(2.0**15)
    assert skipped(2.0**16)
