"""Randomness is a function: known values, independence of order and shape, uniform bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.ops import random
from minidist.testing import fake_device
from minidist.testing.mutants import mutate, rebind

WORD = 2**64
keys = st.lists(st.integers(0, WORD - 1) | st.text(max_size=5), min_size=1, max_size=5)


def splitmix64(seed, count):
    """The generator as published, in plain integers: its outputs number 0 .. count - 1."""
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % WORD
        z = seed
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        yield z ^ (z >> 31)


def check_published(bits):
    assert list(splitmix64(1234567, 2)) == [6457827717110365317, 3203168211198807973]
    assert bits(np.arange(9)).tolist() == list(splitmix64(0, 9))
    child = int(bits(4))
    assert bits(4, np.arange(9)).tolist() == list(splitmix64(child, 9))


def check_golden(bits):
    """These values are those of every release: checkpoints and reported losses rest on them."""
    assert int(bits(7, 3, "blocks.0.mlp.drop", 11, 5, 100)) == 0xE9F6145E82A243CA
    block = bits(7, 3, "x", np.arange(2)[:, None], np.arange(2))
    want = [[0x736C335F2B4F5792, 0x3541D2455E92F36A], [0xD21D9DCE00615FE6, 0x591C6C7D33E08EB7]]
    assert block.tolist() == want


def check_avalanche(bits):
    """Turning one bit of a key over turns about half of the 64 result bits, each equally often."""
    turned = np.uint64(1) << np.arange(64, dtype=np.uint64)
    key = bits("some", np.arange(200))[:, None]
    changed = bits(key ^ turned, 5) ^ bits(key, 5)
    counts = np.unpackbits(changed.view(np.uint8)).mean()
    assert 0.49 < counts < 0.51
    each = np.unpackbits(changed[..., None].view(np.uint8), axis=-1).mean(axis=(0, 1))
    assert each.min() > 0.45
    assert each.max() < 0.55


CHECKS = [check_published, check_golden, check_avalanche]


@pytest.mark.parametrize("check", CHECKS)
def test_bits(check):
    check(random.bits)


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_published, "word ^ (word >> LAST_SHIFT)", "word"),
        (check_golden, "+ GOLDEN)", "+ LAST_SHIFT)"),
        (check_avalanche, "word *= factor", "word += factor"),
    ],
)
def test_bits_mutants(check, old, new):
    with pytest.raises(AssertionError):
        check(rebind(random.bits, _output=mutate(random._output, old, new)))


@given(keys, st.data())
def test_an_integer_and_an_array_that_holds_it_agree(keys, data):
    place = data.draw(st.integers(0, len(keys) - 1))
    if isinstance(keys[place], str):
        keys[place] = 17
    whole = [*keys[:place], np.array([keys[place], 3], np.uint64), *keys[place + 1 :]]
    assert random.bits(*whole)[0] == random.bits(*keys)


@given(keys)
def test_a_draw_does_not_depend_on_what_was_drawn_before(keys):
    """Traps 92 and 94: no state that one rank could advance and another not."""
    before = random.bits(*keys)
    random.normal("anything", np.arange(3))
    np.random.default_rng(0).normal()
    assert random.bits(*keys) == before


def test_order_and_grouping_of_the_keys_matter():
    draws = {int(random.bits(*k)) for k in ((1, 2), (2, 1), ("1", 2), (12,), (1, 2, 0), (0, 1, 2))}
    assert len(draws) == 6


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_pieces_of_a_broadcast_are_the_pieces_of_the_whole(samples, positions, cut):
    """Trap 95: what a rank draws for its slice is the slice of what one process draws."""
    s, t, c = np.arange(samples)[:, None, None], np.arange(positions)[:, None], np.arange(5)
    whole = random.bits(1, 2, "drop", s, t, c)
    assert np.array_equal(random.bits(1, 2, "drop", s[cut:], t, c), whole[cut:])
    assert np.array_equal(random.bits(1, 2, "drop", s, t[cut:], c), whole[:, cut:])


def test_uniform_and_normal_have_the_right_moments():
    u = random.uniform("u", np.arange(40000))
    assert u.dtype == np.float64
    assert 0 <= u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.002
    n = random.normal("n", np.arange(40000))
    assert abs(n.mean()) < 0.02
    assert abs(n.var() - 1) < 0.03
    assert abs((n**4).mean() - 3) < 0.2
    assert np.isfinite(n).all()


def check_keep(keep):
    """Channel by channel in plain integers: four channels share a word, 16 bits each."""
    mask = keep(0.3, 10, 5, "drop", np.arange(2))
    for row in range(2):
        words = list(splitmix64(int(random.bits(5, "drop", row)), 3))
        lots = [words[c // 4] >> 16 * (c % 4) & 0xFFFF for c in range(10)]
        assert mask[row].tolist() == [lot >= int(0.3 * 65536) for lot in lots]


def test_keep():
    check_keep(random.keep)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[..., :channels]", "[..., ::-1][..., :channels]"),
        ("_output(row, namespace", "_output(row, 0 * namespace"),
        ("(threshold(rate))", "(threshold(rate) // 2)"),
    ],
)
def test_keep_mutants(old, new):
    with pytest.raises(AssertionError):
        check_keep(mutate(random.keep, old, new))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999])
def test_keep_drops_the_share_that_was_asked_for(rate):
    kept = random.keep(rate, 40, 3, np.arange(1000))
    assert kept.dtype == np.bool_
    assert abs((~kept).mean() - rate) < 0.01
    assert np.abs((~kept).mean(0) - rate).max() < 0.06  # each channel, so each part of a word
    assert kept.all() == (rate == 0)


@pytest.mark.parametrize("channels", [0, 1, 3, 4, 5, 8])
def test_keep_of_fewer_channels_is_the_beginning(channels):
    whole = random.keep(0.5, 8, 3, np.arange(4))
    assert np.array_equal(random.keep(0.5, channels, 3, np.arange(4)), whole[:, :channels])


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_keep_refuses_a_rate_that_is_none(rate):
    with pytest.raises(ConfigError, match="rate"):
        random.keep(rate, 4, 3)


def test_device_bits_equal_host_bits():
    s, c = np.arange(3)[:, None], np.arange(4)
    xp = fake_device.xp
    on_device = random.bits(5, "a", xp.asarray(s), 2, xp.asarray(c))
    assert np.array_equal(on_device.get(), random.bits(5, "a", s, 2, c))
    kept = random.keep(0.5, 6, "a", xp.asarray(s))
    assert np.array_equal(kept.get(), random.keep(0.5, 6, "a", s))
