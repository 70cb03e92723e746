"""RMSNorm, rotary positions, SwiGLU: against textbook formulas and central differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import ops
from minidist.ops.norm import rms_norm_backward
from minidist.testing.gradients import check_gradient
from minidist.testing.mutants import mutate
from minidist.testing.strategies import arrays, leading
from tests.ops import references


@given(leading(), st.integers(1, 5), st.data())
def test_rms_norm(lead, width, data):
    x, weight = data.draw(arrays((*lead, width))), data.draw(arrays((width,)))
    y, _ = ops.rms_norm(x, weight, 1e-5)
    assert np.allclose(y, references.rms_norm(x, weight, 1e-5), rtol=1e-13)


def check_rms_norm_backward(backward, x, weight, dy):
    _, r = ops.rms_norm(x, weight, 1e-2)
    dx, dweight = backward(dy, x, weight, r)

    def loss():
        return float((ops.rms_norm(x, weight, 1e-2)[0] * dy).sum())

    check_gradient(loss, x, dx)
    check_gradient(loss, weight, dweight)


@given(leading(), st.integers(1, 5), st.data())
def test_rms_norm_backward(lead, width, data):
    x, dy = data.draw(arrays((*lead, width))), data.draw(arrays((*lead, width)))
    check_rms_norm_backward(rms_norm_backward, x, data.draw(arrays((width,))), dy)


@pytest.mark.parametrize(
    ("old", "new"),
    [("* (r_N * mean_N)", "* mean_N"), ("dx_ND *= r_N[:, None]", "pass"), ("* r_N /", "/")],
)
def test_rms_norm_backward_mutants(old, new):
    rng = np.random.default_rng(1)
    x, weight, dy = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=(3, 4))
    with pytest.raises(AssertionError):
        check_rms_norm_backward(mutate(rms_norm_backward, old, new), x, weight, dy)


def check_rope(rope, x, positions):
    angles = ops.rope_angles(positions, x.shape[-1], 100.0, x.dtype)
    y = rope(x, *angles)
    assert np.allclose(y, references.rope(x, positions, 100.0), atol=1e-12)
    assert np.allclose(ops.rope_backward(y, *angles), x, atol=1e-12), "a rotation, turned back"


@given(leading(1), st.integers(0, 5), st.integers(0, 3), st.integers(1, 4), st.data())
def test_rope(lead, length, heads, half, data):
    x = data.draw(arrays((*lead, length, heads, 2 * half)))
    check_rope(ops.rope, x, np.array(data.draw(st.permutations(range(9)))[:length], int))


@pytest.mark.parametrize(("old", "new"), [("::-1, :]", ":, :]"), ("x_TNH * cos", "x_TNH + cos")])
def test_rope_mutants(old, new):
    x = np.random.default_rng(2).normal(size=(2, 3, 1, 4))
    with pytest.raises(AssertionError):
        check_rope(mutate(ops.rope, old, new), x, np.arange(1, 4))


def test_a_rotated_product_depends_on_the_distance_only():
    """Trap 163 is the other pairing of channels, which passes this too: see the reference."""
    rng = np.random.default_rng(3)
    q, k = rng.normal(size=(1, 1, 8)), rng.normal(size=(1, 1, 8))

    def product(i, j):
        turned = [
            ops.rope(x, *ops.rope_angles(np.array([p]), 8, 50.0, float))
            for x, p in ((q, i), (k, j))
        ]
        return float((turned[0] * turned[1]).sum())

    assert np.isclose(product(5, 2), product(105, 102), rtol=1e-12)
    assert not np.isclose(product(5, 2), product(5, 3), rtol=1e-3)


def test_rope_angles_are_exact_at_large_positions():
    cos, _ = ops.rope_angles(np.array([1_000_003]), 2, 1e4, np.float32)
    assert cos[0, 0, 0] == np.float32(np.cos(1_000_003.0))


def check_swiglu_backward(backward, gate, up, dh):
    dgate, dup = backward(dh, gate, up)

    def loss():
        return float((references.swiglu(gate, up) * dh).sum())

    check_gradient(loss, gate, dgate)
    check_gradient(loss, up, dup)


@given(leading(), st.data())
def test_swiglu(lead, data):
    gate, up, dh = (data.draw(arrays(lead)) for _ in range(3))
    assert np.allclose(ops.swiglu(gate, up), references.swiglu(gate, up), rtol=1e-13)
    check_swiglu_backward(ops.swiglu_backward, gate, up, dh)


@pytest.mark.parametrize(
    ("old", "new"),
    [("silu - silu * s", "silu + silu * s"), ("silu *= d", "silu *= g"), ("s *= d", "pass")],
)
def test_swiglu_mutants(old, new):
    gate, up, dh = np.random.default_rng(4).normal(size=(3, 2, 3))
    with pytest.raises(AssertionError):
        check_swiglu_backward(mutate(ops.swiglu_backward, old, new), gate, up, dh)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_swiglu_saturates_without_a_warning(dtype):
    gate = np.array([-1e4, -2e3, 0, 200, 1e4], dtype)
    h = ops.swiglu(gate, np.ones(5, dtype))
    assert h.tolist() == [0, 0, 0, 200, 1e4]
    dgate, _ = ops.swiglu_backward(np.ones(5, dtype), gate, np.ones(5, dtype))
    assert dgate.tolist() == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("size", [0, 1, (1 << 15) - 1, (1 << 15) + 1])
def test_swiglu_covers_every_piece(size):
    gate, up = np.random.default_rng(5).normal(size=(2, size))
    assert np.allclose(ops.swiglu(gate, up), references.swiglu(gate, up), rtol=1e-12)
    dgate, dup = ops.swiglu_backward(np.ones(size), gate, up)
    assert dgate.shape == dup.shape == (size,)
    assert np.allclose(dup, references.swiglu(gate, np.ones(size)), rtol=1e-12)
