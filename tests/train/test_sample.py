"""Drawing bytes: shares of probability, and the same text for the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.nn import DecoderConfig, allocate, build_decoder
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from minidist.train.sample import choose, continue_text

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3]))


def check_shares(kind, temperature, top_k, want):
    """Numbers spread evenly over [0, 1) fall on each token as often as its probability says."""
    drawn = (np.arange(1000) + 0.5) / 1000
    counts = np.bincount([kind(LOGITS, d, temperature, top_k) for d in drawn], minlength=4)
    assert np.allclose(counts / 1000, want, atol=1.1e-3), counts


SHARES = [
    (1.0, 0, [0.1, 0.4, 0.2, 0.3]),
    (0.5, 0, np.array([1, 16, 4, 9]) / 30),
    (0.0, 0, [0, 1, 0, 0]),
    (1.0, 2, [0, 4 / 7, 0, 3 / 7]),
    (1.0, 9, [0.1, 0.4, 0.2, 0.3]),
]


@pytest.mark.parametrize(("temperature", "top_k", "want"), SHARES)
def test_each_token_has_its_share(temperature, top_k, want):
    check_shares(choose, temperature, top_k, want)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ temperature", "* temperature"),
        ("[top_k:]", "[:top_k]"),
        ("drawn * total[-1]", "drawn"),
        ("logits.argmax()", "logits.argmin()"),
    ],
)
def test_a_wrong_choice_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_all_shares(mutate(choose, old, new))


def check_all_shares(kind):
    for share in SHARES:
        check_shares(kind, *share)


@given(st.floats(0, 1, exclude_max=True), st.floats(0.01, 5), st.integers(0, 6))
def test_the_choice_is_always_a_token_with_probability(drawn, temperature, top_k):
    logits = np.array([-np.inf, 3.0, 800.0, -800.0, 799.5])
    assert choose(logits, drawn, temperature, top_k) in {1, 2, 4}


def test_negative_settings_are_refused():
    with pytest.raises(ConfigError, match="temperature -1, top-k 0: must be numbers from 0 on"):
        choose(LOGITS, 0.5, -1)
    with pytest.raises(ConfigError, match="temperature nan"):
        choose(LOGITS, 0.5, float("nan"))
    with pytest.raises(ConfigError, match="-3 tokens cannot be added"):
        list(continue_text([], b"", context=4, tokens=-3))


def test_the_lowest_temperature_takes_the_likeliest():
    assert choose(LOGITS, 0.999, 1e-320) == LOGITS.argmax()


def decoder(xp=np):
    units = build_decoder(DecoderConfig(1, 8, 2, 1, hidden=6, seed=3))
    allocate([p for unit in units for p in unit.parameters()], np.float64, xp)
    return units


def text(units, prompt=b"Romeo, ", **how):
    how = {"context": 6, "tokens": 20, "temperature": 1.0, **how}
    return bytes(continue_text(units, prompt, **how))


def test_a_seed_is_a_text():
    units = decoder()
    assert len(text(units)) == 20
    assert text(units) == text(units)
    assert text(units, tokens=9) == text(units)[:9]
    assert text(units, seed=1) != text(units)
    assert len({text(units, seed=seed)[0] for seed in range(50)}) > 5


def test_the_model_sees_the_end_of_a_long_text():
    units = decoder()
    assert text(units, b"abc" * 9 + b"defghi", tokens=1) == text(units, b"defghi", tokens=1)
    assert text(units, b"", tokens=5) == text(units, b"\n", tokens=5)


def test_it_runs_on_a_device_that_refuses_host_functions():
    assert text(decoder(fake_device.xp), xp=fake_device.xp) == text(decoder())
