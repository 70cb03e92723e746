"""Attention against loops; merging; rows without keys; grouped heads; the blocks it is cut into."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist import ops
from minidist.ops import blocks
from minidist.ops.attention import _attend, _attend_backward
from minidist.ops.blocks import visible_blocks
from minidist.testing import fake_device
from minidist.testing.gradients import check_gradient
from minidist.testing.mutants import mutate, rebind
from minidist.testing.strategies import distinct, seeds
from tests.ops import references

POSITIONS = st.lists(st.integers(0, 9), max_size=6, unique=True).map(lambda p: np.array(p, int))


def problem(seed, q_pos, k_pos, batch=2, groups=2, heads=2, size=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    q = 2 * distinct(rng, (batch, len(q_pos), groups, heads, size), dtype)
    k, v = (2 * distinct(rng, (batch, len(k_pos), groups, size), dtype) for _ in range(2))
    return q, k, v, q_pos, k_pos


def under(outer, inner, old, new):
    """The function ``outer`` with a mutant of ``inner``, which it calls."""
    return rebind(outer, **{inner.__name__: mutate(inner, old, new)})


small = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3))


@given(seeds, POSITIONS, POSITIONS, small)
def test_attention_equals_loops(seed, q_pos, k_pos, shape):
    """Any positions in any order, queries that see nothing, no keys, no heads, no samples."""
    given_ = problem(seed, q_pos, k_pos, *shape)
    o, lse = ops.attention(*given_)
    want_o, want_lse = references.attention(*given_)
    assert np.allclose(o, want_o, atol=1e-13)
    assert np.allclose(lse, want_lse, atol=1e-13)


def check_backward(backward, problem_, seed=0):
    q, k, v, q_pos, k_pos = problem_
    do = distinct(np.random.default_rng(seed), q.shape)
    o, lse = ops.attention(*problem_)
    gradients = backward(do, q, k, v, o, lse, q_pos, k_pos)

    def loss():
        return float((ops.attention(*problem_)[0] * do).sum())

    for x, dx, name in zip((q, k, v), gradients, "qkv", strict=True):
        check_gradient(loss, x, dx, name)


@given(seeds, POSITIONS, POSITIONS, small)
def test_backward_equals_central_differences(seed, q_pos, k_pos, shape):
    check_backward(ops.attention_backward, problem(seed, q_pos, k_pos, *shape), seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ds_SC *= p_SC", "pass"),
        ("_beside(do_BTGRH, -mean_BTGR)", "_beside(do_BTGRH, 0.0)"),
        ("dq_CH *= scale", "pass"),
        ("dv_BGSH[:, :, s] +=", "dv_BGSH[:, :, s] ="),
    ],
)
def test_backward_mutants(old, new):
    given_ = problem(1, np.arange(70), np.arange(70), 1, 1, 2)
    check_backward(ops.attention_backward, given_)
    with pytest.raises(AssertionError):
        check_backward(under(ops.attention_backward, _attend_backward, old, new), given_)


def check_long(attention):
    """Several blocks of queries and of samples, keys in another order than their positions."""
    positions = np.random.default_rng(0).permutation(150)
    for q_pos, k_pos in ((np.arange(150), np.arange(150)), (positions[:70], positions)):
        given_ = problem(3, q_pos, k_pos, 3, 1, 2, 2)
        o, lse = attention(*given_)
        want_o, want_lse = references.attention(*given_)
        assert np.allclose(o, want_o, atol=1e-13)
        assert np.allclose(lse, want_lse, atol=1e-13)


def test_long_sequences_in_several_blocks():
    check_long(ops.attention)


def check_blocks(visible, q_pos, k_pos):
    """Each visible pair is in exactly one block, and hidden pairs are masked or left out."""
    weight = np.zeros((len(q_pos), len(k_pos)))
    for t, s, bias in visible(q_pos, k_pos, float):
        part = np.ones((s.stop - s.start, t.stop - t.start))
        part[len(part) - len(bias) :] *= np.exp(bias[..., 0])
        weight[t, s] += part.T
    assert np.array_equal(weight, q_pos[:, None] >= k_pos)


@given(
    st.integers(0, 200), st.integers(0, 200), seeds, st.sampled_from(["sorted", "zigzag", "any"])
)
def test_blocks_hold_each_visible_pair_once(queries, keys, seed, order):
    rng = np.random.default_rng(seed)
    q_pos, k_pos = rng.permutation(300)[:queries], rng.permutation(300)[:keys]
    if order != "any":
        q_pos, k_pos = np.sort(q_pos), np.sort(k_pos)
    if order == "zigzag":
        k_pos = np.concatenate(
            [k_pos[: keys // 4], k_pos[keys // 2 :], k_pos[keys // 4 : keys // 2]]
        )
    check_blocks(visible_blocks, q_pos, k_pos)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k_pos_S <= q_pos_T[t].max()", "k_pos_S < q_pos_T[t].max()"),
        ("> q_pos_T[t].min()", "> q_pos_T[t].max()"),
        ("int(seen[-1]) + 1", "int(seen[-1])"),
    ],
)
def test_blocks_mutants(old, new):
    k_pos = np.concatenate([np.arange(100, 200), np.arange(100)])
    with pytest.raises(AssertionError):
        check_blocks(mutate(visible_blocks, old, new), np.arange(200), k_pos)


def test_hidden_keys_are_skipped():
    """Causal attention over sorted positions computes little more than half of the scores."""
    found = visible_blocks(np.arange(512), np.arange(512), float)
    scores = sum((b.queries.stop - b.queries.start) * (b.keys.stop - b.keys.start) for b in found)
    assert scores == 512 * (512 + blocks.QUERIES) / 2


def test_one_block_on_a_device():
    positions = fake_device.xp.asarray(np.arange(100))
    (block,) = visible_blocks(positions, positions, float)
    assert block[:2] == (slice(0, 100), slice(0, 100))


def check_merge(merge):
    """Any cut of the keys into parts, merged, is the whole."""
    positions = np.array([3, 0, 2, 5, 1, 4])
    q, k, v, q_pos, k_pos = problem(4, positions, positions)
    for cut in range(7):
        first = ops.attention(q, k[:, :cut], v[:, :cut], q_pos, k_pos[:cut])
        second = ops.attention(q, k[:, cut:], v[:, cut:], q_pos, k_pos[cut:])
        for got, want in zip(
            merge(*first, *second), ops.attention(q, k, v, q_pos, k_pos), strict=True
        ):
            assert np.allclose(got, want, atol=1e-13)


def check_merge_far_apart(merge):
    """Trap 44: the exponential of a raw difference overflows."""
    one, two = np.float32([[1, 2]]), np.float32([[3, 4]])
    near, far = np.zeros(1, np.float32), np.full(1, 1000, np.float32)
    for a, b in (((one, near), (two, far)), ((two, far), (one, near))):
        o, lse = merge(*a, *b)
        assert o.tolist() == [[3, 4]]
        assert lse.tolist() == [1000]
        assert o.dtype == lse.dtype == np.float32


def check_merge_of_nothing(merge):
    """Trap 45: (-inf) - (-inf) is not a number."""
    none, zero = np.full(1, -np.inf, np.float32), np.zeros((1, 2), np.float32)
    o, lse = merge(zero, none, zero, none)
    assert o.tolist() == [[0, 0]]
    assert lse.tolist() == [-np.inf]
    o, lse = merge(zero, none, zero + 5, np.float32([2]))
    assert o.tolist() == [[5, 5]]
    assert lse.tolist() == [2]


MERGES = [check_merge, check_merge_far_apart, check_merge_of_nothing]


@pytest.mark.parametrize("check", MERGES)
def test_merge(check):
    check(ops.merge)


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_merge, "o1 * w1[..., None]", "o1 + 0"),
        (check_merge_far_apart, "xp.exp(lse1 - highest), xp.exp(lse2 - highest)",
         "xp.exp(lse1), xp.exp(lse2)"),
        (check_merge_of_nothing, "xp.maximum(xp.maximum(lse1, lse2), _lowest(lse1))",
         "xp.maximum(lse1, lse2)"),
    ],
)  # fmt: skip
def test_merge_mutants(check, old, new):
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        check(mutate(ops.merge, old, new))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_see_no_key(dtype):
    """Trap 45: output 0, lse -inf, gradient 0; and no NaN, no warning on the way."""
    given_ = problem(5, np.array([0, 7, 1]), np.array([4, 5]), dtype=dtype)
    q, k, v, q_pos, k_pos = given_
    o, lse = ops.attention(*given_)
    assert np.isneginf(lse[:, [0, 2]]).all()
    assert not o[:, [0, 2]].any()
    dq, dk, dv = ops.attention_backward(np.ones_like(q), q, k, v, o, lse, q_pos, k_pos)
    assert not dq[:, [0, 2]].any()
    assert dq[:, 1].any()
    for x in (o, dq, dk, dv):
        assert x.dtype == dtype
        assert np.isfinite(x).all()


def test_every_query_blind():
    q, k, v, q_pos, k_pos = problem(6, np.arange(3), np.arange(10, 14))
    o, lse = ops.attention(q, k, v, q_pos, k_pos)
    assert not o.any()
    assert np.isneginf(lse).all()
    for x in ops.attention_backward(np.ones_like(q), q, k, v, o, lse, q_pos, k_pos):
        assert not x.any()


def test_weights_are_causal_in_global_positions():
    """Trap 46: with v one-hot of the position, row i's weights are 0 beyond i and sum to 1."""
    for positions in (np.arange(8), np.array([0, 1, 6, 7, 2, 3, 4, 5])):
        q, k, _, q_pos, k_pos = problem(7, positions, positions, 1, 1, 1, 8)
        v = np.eye(8)[positions][None, :, None]
        weights = ops.attention(q, k, v, q_pos, k_pos)[0][0, :, 0, 0]
        assert np.allclose(weights.sum(-1), 1)
        assert not weights[np.arange(8) > positions[:, None]].any()
        assert weights[np.arange(8) <= positions[:, None]].all()


def check_heads(attention):
    """Trap 50: 8 query heads over 4 key heads; query head h reads key head h // 2."""
    positions = np.arange(3)
    q, k, _, q_pos, k_pos = problem(8, positions, positions, 1, 4, 2)
    v = np.broadcast_to(np.arange(4.0)[:, None], k.shape)
    o, _ = attention(q, k, v, q_pos, k_pos)
    heads = o.reshape(1, 3, 8, 3)
    assert np.allclose(heads, np.arange(8)[:, None] // 2)


def test_query_head_reads_the_key_head_of_its_group():
    check_heads(ops.attention)


def test_heads_mutant():
    with pytest.raises(AssertionError):
        check_heads(
            under(ops.attention, _attend, "_put(o1_BTGRI[:, t],", "_put(o1_BTGRI[:, t, ::-1],")
        )


def test_long_mutant():
    with pytest.raises(AssertionError):
        check_long(
            under(ops.attention, _attend, "v1_BGSI[:, :, s])", "(s.stop < 128) * v1_BGSI[:, :, s])")
        )


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_large_scores_do_not_overflow(scale):
    q, k, v, q_pos, k_pos = problem(9, np.arange(4), np.arange(4), dtype=np.float32)
    o, lse = ops.attention(q * np.float32(scale), k * np.float32(scale), v, q_pos, k_pos)
    assert np.isfinite(o).all()
    assert np.isfinite(lse).all()
    assert o.dtype == lse.dtype == np.float32
