"""The attention layer: central differences, grouped heads, key blocks, no heads at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.nn import At, Attention, Linear, LocalAttention, Parameter, allocate
from minidist.testing.gradients import check_layer, run_backward
from minidist.testing.mutants import mutate
from minidist.testing.strategies import arrays, places, sizes
from tests.ops import references


def build(groups, heads, size=2, width=5, core=None, bias=False, cls=Attention, dtype=float):
    def linear(name, rows, columns):
        p = [Parameter(name, (rows, columns), init=0.7, seed=2)]
        return Linear(*p, Parameter(name + ".b", (rows,), init=0.7, seed=2) if bias else None)

    q, kv = groups * heads * size, groups * size
    layer = cls(
        linear("q", q, width), linear("k", kv, width), linear("v", kv, width),
        linear("out", width, q), size, heads, 10.0, core or LocalAttention(),
    )  # fmt: skip
    allocate(layer.parameters(), dtype)
    return layer


@given(sizes(3), sizes(4), sizes(2), st.integers(1, 3), st.booleans(), st.data())
def test_backward(samples, length, groups, heads, bias, data):
    """Empty batches, empty sequences, and a rank that holds no group included."""
    layer = build(groups, heads, bias=bias)
    x = data.draw(arrays((samples, length, 5)))
    check_layer(layer, x, data.draw(places(samples, length)))


def check_forward(layer):
    """Against projections, complex rotation and loops, head by head."""
    groups, heads, size = 2, 3, layer.head_size
    x = np.random.default_rng(0).normal(size=(2, 4, 5))
    positions = np.array([3, 1, 7, 4])
    y, _ = layer.forward(x, At(0, True, np.arange(2), positions))

    def project(linear, count):
        return (x @ linear.weight.data.T).reshape(2, 4, count, size)

    q = references.rope(project(layer.q, groups * heads), positions, layer.rope_base)
    k = references.rope(project(layer.k, groups), positions, layer.rope_base)
    q = q.reshape(2, 4, groups, heads, size)
    o, _ = references.attention(q, k, project(layer.v, groups), positions, positions)
    assert np.allclose(y, o.reshape(2, 4, -1) @ layer.out.weight.data.T, atol=1e-12)


@pytest.mark.parametrize("core", [LocalAttention(), LocalAttention(key_block=1), LocalAttention(3)])
def test_forward(core):
    check_forward(build(2, 3, core=core))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("q_BTNH.reshape(*lead, groups, self.heads_per_group, size)",
         "q_BTNH.reshape(*lead, self.heads_per_group, groups, size).swapaxes(2, 3)"),
        ("ops.rope(k_BTGH, *angles)", "k_BTGH"),
        ("ops.rope_angles(at.positions,", "ops.rope_angles(at.positions * 0 + at.positions.min(),"),
    ],
)  # fmt: skip
def test_forward_mutants(old, new):
    with pytest.raises(AssertionError):
        check_forward(build(2, 3, cls=mutate(Attention, old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ops.rope_backward(dk_BTGH, *angles)", "dk_BTGH"),
        ("ops.accumulate(dx, self.v.", "(lambda dx, part: None)(dx, self.v."),
        ("do = self.out.backward(o, dy, later)", "do = self.out.backward(o, dy)"),
    ],
)
def test_backward_mutants(old, new):
    layer = build(2, 2, cls=mutate(Attention, old, new))
    at, x = At(0, True, np.arange(2), np.arange(3)), np.random.default_rng(1).normal(size=(2, 3, 5))
    with pytest.raises(AssertionError):
        check_all_deferred(layer, x, at)


def check_all_deferred(layer, x, at):
    check_layer(layer, x, at)
    later = []
    y, ctx = layer.forward(x, at)
    run_backward(layer, ctx, y, later)
    assert len(later) == 4


def test_all_four_weight_gradients_can_be_deferred():
    at, x = At(0, True, np.arange(2), np.arange(3)), np.random.default_rng(1).normal(size=(2, 3, 5))
    check_all_deferred(build(2, 2), x, at)


@given(st.integers(0, 6), st.integers(1, 4), st.data())
def test_key_blocks_and_merge_equal_the_whole(length, block, data):
    at = At(0, True, np.arange(2), np.array(data.draw(st.permutations(range(length))), int))
    x = data.draw(arrays((2, length, 5)))
    whole, blocks = build(2, 2), build(2, 2, core=LocalAttention(block))
    (y, ctx), (y_blocks, ctx_blocks) = whole.forward(x, at), blocks.forward(x, at)
    assert np.allclose(y, y_blocks, atol=1e-13)
    (dx, gradients), (dx_blocks, others) = (
        run_backward(whole, ctx, y),
        run_backward(blocks, ctx_blocks, y),
    )
    assert np.allclose(dx, dx_blocks, atol=1e-13)
    assert all(np.allclose(gradients[n], others[n], atol=1e-13) for n in gradients)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype(dtype):
    layer, x = build(2, 2, dtype=dtype), np.ones((2, 3, 5), dtype)
    y, ctx = layer.forward(x, At(0, True, np.arange(2), np.arange(3)))
    dx, gradients = run_backward(layer, ctx, y)
    assert {a.dtype for a in (y, dx, *gradients.values())} == {np.dtype(dtype)}


def test_moving_all_positions_changes_nothing():
    """Rotary positions and a causal mask know distances and order only."""
    layer, x = build(2, 2), np.random.default_rng(2).normal(size=(2, 4, 5))
    y, _ = layer.forward(x, At(0, True, np.arange(2), np.arange(4)))
    moved, _ = layer.forward(x, At(0, True, np.arange(2), np.arange(4) + 1000))
    assert np.allclose(y, moved, atol=1e-10)
