"""Dropout masks: a function of (seed, step, name, sample, position, channel)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.nn import At, Dropout
from minidist.ops import random
from minidist.testing.mutants import mutate


def place(samples, positions, step=3, train=True):
    return At(step, train, np.asarray(samples), np.asarray(positions))


def mask_of(layer, at, channels):
    """The elements that stay."""
    return layer.forward(np.ones((at.samples.size, at.positions.size, channels)), at)[0] != 0


def test_golden_mask():
    mask = mask_of(Dropout("embed.drop", 0.25, 7), place([10, 11], [5, 6]), 8)
    assert np.packbits(mask).tolist() == [238, 241, 222, 223]


def check_split(cls, samples, positions, ranks):
    """Trap 95: the masks of all slices, put together, are the mask of the whole batch."""
    layer = cls("d", 0.5, 1)
    whole = mask_of(layer, place(np.arange(samples), np.arange(positions)), 6)
    b, t = bounds(samples, ranks), bounds(positions, ranks)
    by_sample = [mask_of(layer, place(np.arange(b[r], b[r + 1]), np.arange(positions)), 6)
                 for r in range(ranks)]  # fmt: skip
    by_position = [mask_of(layer, place(np.arange(samples), np.arange(t[r], t[r + 1])), 6)
                   for r in range(ranks)]  # fmt: skip
    assert np.array_equal(np.concatenate(by_sample), whole)
    assert np.array_equal(np.concatenate(by_position, 1), whole)


@given(st.integers(0, 7), st.integers(0, 7), st.integers(1, 5))
def test_masks_of_slices_are_slices_of_the_mask(samples, positions, ranks):
    check_split(Dropout, samples, positions, ranks)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at.samples,", "at.samples - at.samples[:1],"),
        ("at.positions)", "at.positions - at.positions[:1])"),
    ],
)
def test_split_mutants(old, new):
    with pytest.raises(AssertionError):
        check_split(mutate(Dropout, old, new), 4, 4, 2)


def check_all_keys_matter(cls):
    def mask(name="d", seed=1, step=3):
        return mask_of(cls(name, 0.5, seed), place(np.arange(8), np.arange(8), step), 8)

    masks = [mask(), mask(name="e"), mask(seed=2), mask(step=4)]
    parts = [m[i] for m in masks for i in range(8)] + [m[:, i] for m in masks for i in range(8)]
    parts += [m[..., i] for m in masks for i in range(8)]
    assert len({p.tobytes() for p in parts}) == len(parts)


def test_all_keys_matter():
    check_all_keys_matter(Dropout)


@pytest.mark.parametrize(
    ("key", "constant"),
    [("self.seed", "0"), ("at.step", "0"), ("self.name)", "0)"),
     ("at.samples,", "0 * at.samples,"), ("at.positions)", "0 * at.positions)")],
)  # fmt: skip
def test_key_mutants(key, constant):
    with pytest.raises(AssertionError):
        check_all_keys_matter(mutate(Dropout, key, constant))


def test_running_again_draws_the_same_numbers():
    """Trap 96: recomputation; and trap 94: whatever else is drawn in between."""
    layer, at, x = Dropout("d", 0.5, 1), place(np.arange(2), np.arange(3)), np.ones((2, 3, 4))
    first = layer.forward(x, at)[0]
    random.normal("other", np.arange(10))
    assert np.array_equal(layer.forward(x, at)[0], first)


def test_kept_elements_are_scaled_up_and_the_gradient_takes_the_same_way():
    layer, at = Dropout("d", 0.75, 1), place(np.arange(20), np.arange(20))
    x = np.full((20, 20, 8), 3.0)
    y, ctx = layer.forward(x, at)
    assert set(np.unique(y)) == {0, 12}
    assert abs(y.mean() - 3) < 0.3
    assert np.array_equal(layer.backward(ctx, x), y)


def test_nothing_is_dropped_outside_training():
    x = np.ones((1, 2, 3))
    at = place([0], [0, 1], train=False)
    y, ctx = Dropout("d", 0.5, 1).forward(x, at)
    assert np.array_equal(y, x)
    assert np.array_equal(Dropout("d", 0.5, 1).backward(ctx, x), x)
