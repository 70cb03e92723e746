"""Cross-entropy and the embedding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import ops
from minidist.errors import ArrayError
from minidist.testing.gradients import check_gradient
from minidist.testing.mutants import mutate
from minidist.testing.strategies import arrays, leading, seeds
from tests.ops import references


def labels_for(seed, lead, vocabulary):
    return np.random.default_rng(seed).integers(-1, vocabulary, lead)


@given(leading(), st.integers(1, 6), seeds, st.data())
def test_loss_is_the_sum_over_valid_labels(lead, vocabulary, seed, data):
    logits, labels = data.draw(arrays((*lead, vocabulary))), labels_for(seed, lead, vocabulary)
    loss, _ = ops.cross_entropy(logits, labels)
    assert loss.shape == ()
    assert np.isclose(loss, references.cross_entropy(logits, labels), atol=1e-12)


def check_gradient_of_loss(backward, logits, labels, scale=0.3):
    _, p = ops.cross_entropy(logits, labels)
    kept = p.copy()
    gradient = backward(scale, p, labels)
    assert np.array_equal(p, kept), "what forward returned has been written into"

    def loss():
        return scale * float(ops.cross_entropy(logits, labels)[0])

    check_gradient(loss, logits, gradient)


@given(leading(), st.integers(1, 6), seeds, st.data())
def test_gradient(lead, vocabulary, seed, data):
    logits, labels = data.draw(arrays((*lead, vocabulary))), labels_for(seed, lead, vocabulary)
    check_gradient_of_loss(ops.cross_entropy_backward, logits, labels)


@pytest.mark.parametrize(
    ("old", "new"),
    [("(labels >= 0) * scale", "(labels >= -1) * scale"), ("-= weight_N", "-= 1.0"),
     ("* weight_N[:, None]", "* scale")],
)  # fmt: skip
def test_gradient_mutants(old, new):
    logits, labels = np.random.default_rng(0).normal(size=(4, 3)), np.array([2, -1, 0, 1])
    with pytest.raises(AssertionError):
        check_gradient_of_loss(mutate(ops.cross_entropy_backward, old, new), logits, labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_logits_cost_the_log_of_the_vocabulary(dtype):
    """Trap 49: V = 10 and not a padded 12."""
    loss, p = ops.cross_entropy(np.zeros((1, 10), dtype), np.array([3]))
    assert loss.dtype == p.dtype == dtype
    assert np.isclose(float(loss), 2.302585092994046, rtol=1e-6)


def test_a_known_loss():
    """Trap 48's numbers, on one process."""
    loss, _ = ops.cross_entropy(np.array([[1.0, 3, 0, 2, -1, 0]]), np.array([1]))
    assert np.isclose(loss, 0.48311, atol=1e-5)


def test_no_valid_label():
    logits, labels = np.random.default_rng(1).normal(size=(2, 3)), np.full(2, -1)
    loss, p = ops.cross_entropy(logits, labels)
    assert loss == 0
    assert not ops.cross_entropy_backward(0.0, p, labels).any()
    assert not ops.cross_entropy_backward(1.0, p, labels).any()


def test_large_logits_do_not_overflow():
    logits = np.float32([[1e4, 0, -1e4], [-1e4, -1e4, -1e4]])
    loss, p = ops.cross_entropy(logits, np.array([1, 2]))
    assert np.isclose(loss, 1e4 + np.log(3), rtol=1e-6)
    assert np.isfinite(p).all()


def check_embedding_backward(backward, dy, ids, rows):
    want = np.zeros((rows, dy.shape[-1]))
    for row, i in zip(dy.reshape(ids.size, dy.shape[-1]), ids.reshape(ids.size), strict=True):
        want[i] += row
    assert np.allclose(backward(dy, ids, rows), want, atol=1e-13)


@given(leading(), st.integers(1, 5), st.integers(0, 4), seeds, st.data())
def test_embedding(lead, rows, width, seed, data):
    ids = np.random.default_rng(seed).integers(0, rows, lead)
    table, dy = data.draw(arrays((rows, width))), data.draw(arrays((*lead, width)))
    y = ops.embedding(ids, table)
    assert y.shape == (*lead, width)
    assert all(np.array_equal(y[i], table[ids[i]]) for i in np.ndindex(lead))
    check_embedding_backward(ops.embedding_backward, dy, ids, rows)


def test_embedding_mutant():
    dy, ids = np.random.default_rng(2).normal(size=(4, 3)), np.array([1, 1, 0, 2])
    wrong = mutate(ops.embedding_backward, "== ids_N)", "== ids_N) * (ids_N < 2)")
    with pytest.raises(AssertionError):
        check_embedding_backward(wrong, dy, ids, 4)


@pytest.mark.parametrize("ids", [[0, 4], [-1, 0]])
def test_embedding_refuses_ids_that_are_no_rows(ids):
    with pytest.raises(ArrayError, match="4 rows"):
        ops.embedding(np.array(ids), np.zeros((4, 2)))
