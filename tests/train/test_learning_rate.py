"""The learning rate is a function of the step."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.testing.mutants import mutate
from minidist.train.learning_rate import FLOOR, cosine


def check_shape(rate, steps, warmup):
    """Up in equal parts to the peak, then down to a tenth of it, with no jump."""
    rates = [rate(step, peak=2.0, steps=steps, warmup=warmup) for step in range(steps)]
    assert all(0 < r <= 2.0 for r in rates)
    for step in range(warmup):
        assert rates[step] == pytest.approx(2.0 * (step + 1) / warmup)
    assert all(b < a for a, b in pairwise(rates[max(0, warmup - 1) :]))
    if warmup < steps:
        assert rates[-1] == pytest.approx(2.0 * FLOOR)


@given(st.integers(1, 60), st.data())
def test_shape(steps, data):
    check_shape(cosine, steps, data.draw(st.integers(0, steps)))


def test_written_down_values():
    rates = [cosine(step, peak=1.0, steps=4, warmup=0) for step in range(4)]
    assert rates == pytest.approx([0.868198, 0.55, 0.231802, 0.1], abs=1e-6)
    assert cosine(400, peak=1.0, steps=4) == pytest.approx(0.1)


def test_restoring_does_not_advance_it():
    """slime#1547: a warm-up of 100, saved at 10 and resumed three times: step 11 has its rate."""
    rate = cosine(10, peak=1.0, steps=1000, warmup=100)
    assert [cosine(10, peak=1.0, steps=1000, warmup=100) for _ in range(3)] == [rate] * 3
    assert rate == pytest.approx(0.11)


def test_a_warm_up_longer_than_the_run_is_refused():
    with pytest.raises(ConfigError, match="a warm-up of 5 steps does not fit in 4 steps"):
        cosine(0, peak=1.0, steps=4, warmup=5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(step + 1) / warmup", "step / warmup"),
        ("step < warmup", "step <= warmup"),
        ("(step - warmup + 1)", "(step + 1)"),
        ("(1 + cos(pi * progress)) / 2", "cos(pi * progress / 2)"),
    ],
)
def test_a_wrong_schedule_is_seen(old, new):
    broken = mutate(cosine, old, new)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check_shapes(broken)


def check_shapes(rate):
    for steps, warmup in ((7, 0), (9, 3), (4, 4)):
        check_shape(rate, steps, warmup)
    assert rate(1, peak=1.0, steps=4) == pytest.approx(0.55)
