"""One optimiser step on flat arrays."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import ops
from minidist.testing.mutants import mutate
from minidist.testing.strategies import distinct, seeds

SETTING = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def reference(x, gradients, lr, beta1, beta2, eps, weight_decay):
    """Algorithm 2 of the paper, one element at a time, with the bias corrections spelled out."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        x -= lr * weight_decay * x + lr * (m / (1 - beta1**t)) / (
            math.sqrt(v / (1 - beta2**t)) + eps
        )
    return x


def run(adamw, data, gradients, lr=0.1):
    data, m, v = data.copy(), np.zeros_like(data), np.zeros_like(data)
    for t, g in enumerate(gradients, 1):
        adamw(data, g, m, v, lr, **SETTING, t=t)
    return data


def check_adamw(adamw, size=1.0):
    rng = np.random.default_rng(0)
    data, gradients = rng.normal(size=7), size * rng.normal(size=(5, 7))
    want = [reference(x, g, 0.1, **SETTING) for x, g in zip(data, gradients.T, strict=True)]
    assert np.allclose(run(adamw, data, gradients), want, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e-8])  # as small as eps, so that its place shows
def test_adamw(size):
    check_adamw(ops.adamw, size)


@pytest.mark.parametrize(
    ("old", "new", "size"),
    [
        ("1.0 - beta1**t", "1.0 - beta1", 1.0),
        ("below *= root", "pass", 1.0),
        ("x *= keep", "g = g + weight_decay * x", 1.0),
        ("below += eps", "pass", 1e-8),
    ],
)
def test_adamw_mutants(old, new, size):
    with pytest.raises(AssertionError):
        check_adamw(mutate(ops.adamw, old, new), size)


@given(seeds, st.integers(0, 9))
def test_cutting_the_state_anywhere_changes_no_bit(seed, cut):
    """What ZeRO rests on: a shard's update is the shard of the whole's update."""
    rng = np.random.default_rng(seed)
    data, gradients = distinct(rng, (9,), np.float32), [distinct(rng, (9,), np.float32)] * 3
    whole = run(ops.adamw, data, gradients)
    parts = [
        run(ops.adamw, data[s], [g[s] for g in gradients]) for s in (slice(cut), slice(cut, 9))
    ]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("size", [0, 1, (1 << 15) + 3])
def test_every_piece_is_updated_in_place(size):
    rng = np.random.default_rng(1)
    data, grad = rng.normal(size=size).astype(np.float32), rng.normal(size=size).astype(np.float32)
    before, m, v = data.copy(), np.zeros_like(data), np.zeros_like(data)
    ops.adamw(data, grad, m, v, np.float64(0.5), **{**SETTING, "weight_decay": 0.0}, t=1)
    assert np.allclose(data, before - 0.5 * np.sign(grad), atol=1e-3)
    assert data.dtype == np.float32
    ops.sgd(data, grad, np.float64(0.5))
    assert np.allclose(data, before - 0.5 * np.sign(grad) - 0.5 * grad, atol=1e-3)


def test_a_lost_step_count_would_show():
    """Trap 124: constant gradient 1; each step of Adam is then the learning rate."""
    data, m, v = np.zeros(1), np.zeros(1), np.zeros(1)
    for t in range(1, 11):
        before = data.copy()
        ops.adamw(data, np.ones(1), m, v, 0.01, 0.9, 0.999, 1e-12, 0.0, t)
        assert np.isclose((before - data).item(), 0.01, rtol=1e-9)


def test_decay_shrinks_by_lr_times_decay():
    """Trap 100: no gradient, decay 0.1, learning rate 0.1."""
    for update in (
        lambda x: ops.sgd(x, np.zeros(3), 0.1, 0.1),
        lambda x: ops.adamw(x, np.zeros(3), np.zeros(3), np.zeros(3), 0.1, 0.9, 0.95, 1e-8, 0.1, 1),
    ):
        x = np.array([1.0, -2.0, 4.0])
        update(x)
        assert np.allclose(x, [0.99, -1.98, 3.96], rtol=1e-14)


def test_sgd_does_not_hide_a_factor():
    x, y = np.ones(2), np.ones(2)
    ops.sgd(x, np.array([1.0, 2.0]), 0.1)
    ops.sgd(y, np.array([2.0, 4.0]), 0.1)
    assert np.allclose(x, [0.9, 0.8])
    assert np.allclose(y, [0.8, 0.6])
