"""The keyed permutation, and the corpus that reads through it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.testing.mutants import mutate
from minidist.train import order
from minidist.train.order import permute


def check_permutation(shuffle, n, *key):
    """Every item comes once, and where it goes does not depend on what else is asked for."""
    image = shuffle(np.arange(n), n, *key)
    assert sorted(image.tolist()) == list(range(n))
    assert int(shuffle(n // 2, n, *key)) == image[n // 2]


@given(st.integers(1, 300), st.integers(0, 2**64), st.integers(0, 50))
def test_every_item_comes_once(n, seed, epoch):
    check_permutation(permute, n, seed, "order", epoch)


@given(st.integers(1, 10**12), st.data())
def test_any_item_of_a_huge_set_is_computed_alone(n, data):
    index = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20, unique=True))
    image = permute(index, n, 3)
    assert len(set(image.tolist())) == len(index)
    assert 0 <= image.min() <= image.max() < n
    assert image.tolist() == [int(permute(i, n, 3)) for i in index]


def test_the_shape_of_the_index_stays():
    assert permute(np.arange(6).reshape(2, 3), 6, 1).shape == (2, 3)
    assert permute(np.zeros((0, 3), int), 6, 1).shape == (0, 3)
    assert permute(np.arange(0), 0, 1).shape == (0,)


def test_another_key_is_another_order():
    orders = {
        tuple(permute(np.arange(50), 50, seed, epoch)) for seed in range(5) for epoch in range(5)
    }
    assert len(orders) == 25


def test_an_order_looks_random():
    """Neighbours land far apart, and places are taken evenly (chi-square, 63 degrees)."""
    image = permute(np.arange(6400), 6400, 1)
    assert abs(np.abs(np.diff(image)).mean() / 6400 - 1 / 3) < 0.02
    first = np.array([permute(0, 64, seed) for seed in range(6400)])
    counts = np.bincount(first, minlength=64)
    assert ((counts - 100) ** 2 / 100).sum() < 120


def test_an_index_outside_is_refused():
    with pytest.raises(ConfigError, match="index 7 of 7 items"):
        permute([0, 7], 7, 1)


@pytest.mark.parametrize(
    ("target", "old", "new"),
    [
        ("_network", "left ^ (bits", "left & (bits"),
        ("permute", "outside = x >= n", "outside = x > n"),
        ("permute", "x[outside] = _network(x[outside]", "x[...] = _network(x"),
    ],
)
def test_a_wrong_permutation_is_seen(target, old, new):
    broken = mutate(getattr(order, target), old, new)
    if target == "_network":
        broken = mutate(permute, "_half_bits(n), key", "_half_bits(n), key", _network=broken)
    with pytest.raises(AssertionError):
        check_small_sets(broken)


def check_small_sets(shuffle):
    for n in range(1, 40):
        check_permutation(shuffle, n, 1)
