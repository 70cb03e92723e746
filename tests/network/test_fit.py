"""The line is exact on exact times, near on noisy ones, and always one that a link can have."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import Link
from minidist.errors import ConfigError
from minidist.network import fit, knee, worst_error
from minidist.testing.mutants import mutate

SIZES = [8 * 4**k for k in range(12)]  # 8 B to 32 MiB

EQUATIONS = "np.stack([1 / t, n / t], axis=1), np.ones(len(t))"
UNWEIGHTED = mutate(fit, EQUATIONS, "np.stack([t * 0 + 1, n], axis=1), t")


def times(link, sizes=SIZES):
    return [link.latency + n / link.bandwidth for n in sizes]


def check_exact(fit, link, sizes=SIZES):
    found = fit(sizes, times(link, sizes))
    assert found.latency == pytest.approx(link.latency, rel=1e-9, abs=1e-18)
    assert found.bandwidth == pytest.approx(link.bandwidth, rel=1e-9)


@given(
    latency=st.floats(1e-8, 1e-2),
    knee=st.floats(10, 1e7),
    sizes=st.sets(st.integers(0, 1 << 28), min_size=0, max_size=8),
)
def test_exact_on_exact_times(latency, knee, sizes):
    check_exact(fit, Link(latency, knee / latency), [0, 1 << 28, *sizes])


@pytest.mark.parametrize("link", [Link(0.0, 1e9), Link(1e-6, 1e9), Link(5.0, 3.0)])
def test_exact_on_links_at_the_edge(link):
    check_exact(fit, link)
    check_exact(fit, link, [8, 9])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[1 / t, n / t]", "[1 / t, n]"),
        ("float(1 / per_byte)", "float(per_byte)"),
        ("float(latency)", "float(latency) / 2"),
        ("np.ones(len(t))", "t"),
    ],
)
def test_mutants(old, new):
    with pytest.raises((AssertionError, ConfigError)):
        check_exact(mutate(fit, old, new), Link(1e-6, 1e9))


def check_noise(fit):
    """Five percent of noise on every time moves neither latency nor bandwidth by ten percent."""
    link = Link(2e-6, 5e9)
    for seed in range(50):
        noise = np.random.default_rng(seed).uniform(0.95, 1.05, len(SIZES))
        found = fit(SIZES, noise * times(link))
        assert found.latency == pytest.approx(link.latency, rel=0.1)
        assert found.bandwidth == pytest.approx(link.bandwidth, rel=0.1)


def test_noise():
    check_noise(fit)


def test_noise_of_the_large_messages_drowns_the_latency_without_weights():
    with pytest.raises(AssertionError):
        check_noise(UNWEIGHTED)


KINKS = {
    "eager to rendezvous": [
        (1e-6 if n <= 4096 else 3e-6) + n / (4e9 if n <= 4096 else 8e9) for n in SIZES
    ],
    "beyond the caches": [1e-6 + n / (10e9 if n <= 1 << 21 else 5e9) for n in SIZES],
}


@pytest.mark.parametrize("kink", KINKS)
def test_a_kink_costs_less_than_its_own_size(kink):
    """Both halves are within a factor of three or two of each other; the line is in between."""
    line = fit(SIZES, KINKS[kink])
    assert 0.9e-6 <= line.latency <= 3e-6
    assert worst_error(line, SIZES, KINKS[kink]) < 0.5
    poor = UNWEIGHTED(SIZES, KINKS[kink])
    assert worst_error(poor, SIZES, KINKS[kink]) > 0.9, "plain ones miss the short messages"


def test_never_a_negative_latency():
    link = fit([100, 200], [1.0, 3.0])  # a line through both would begin at -1 s
    # Through zero: the sum of n/t over that of its squares is (100 + 200/3) / (100² + (200/3)²).
    assert link[:2] == (0, pytest.approx((100**2 + (200 / 3) ** 2) / (100 + 200 / 3)))
    curved = fit(SIZES, [1e-9 * n**1.2 for n in SIZES])
    assert curved.latency == 0
    assert 0 < curved.bandwidth < float("inf")
    broken = mutate(fit, "latency < 0", "latency < -9")
    assert broken([100, 200], [1.0, 3.0]).latency < 0, "that is what it would be"


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ([], [], "0 sizes, 0 times: give two different sizes"),
        ([8], [1.0], "1 sizes, 1 times"),
        ([8, 8], [1.0, 2.0], "give two different sizes"),
        ([8, 16], [1.0], "2 sizes, 1 times"),
        ([[8, 16]], [[1.0, 2.0]], "give two different sizes"),
        ([-8, 16], [1.0, 2.0], "a message of -8.0 bytes"),
        ([8, float("inf")], [1.0, 2.0], "finite"),
        ([8, 16], [0.0, 0.0], "does this clock stand still?"),
        ([8, 16], [float("nan"), 1.0], "nan s: times are above 0"),
        ([8, 16], [1.0, -1.0], "-1.0 s: times are above 0"),
        ([8, 16], [1.0, float("inf")], "inf s: times are above 0, and finite"),
        ([8, float("inf")], [1.0, 2.0], "a message of inf bytes"),
        ([0, 8], [1e-6, 1e-6], "measure larger ones too"),
        ([8, 16], [2.0, 1.0], "take no longer than those of 8: "),
        ([8, 16], [1.0, 1.0], "measure larger ones too"),
    ],
)
def test_refusals(sizes, seconds, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        fit(sizes, seconds)


def test_the_knee_is_where_a_message_takes_twice_its_latency():
    link = Link(2e-6, 5e9)
    assert knee(link) == 1e4
    assert times(link, [knee(link)]) == [pytest.approx(2 * link.latency)]
    assert knee(Link(0.0, 1e9)) == 0


def test_worst_error_is_relative():
    assert worst_error(Link(1.0, 1.0), [1, 9], [2.0, 20.0]) == 0.5
