"""Half types: an operation on them is the float32 operation, and one rounding."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist import ops
from minidist.errors import ConfigError
from minidist.ops import half
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from minidist.testing.strategies import arrays, shapes

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
HALF = pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
U = {BF16: 2.0**-8, F16: 2.0**-11}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


LABELS = np.array([[0, 3, -1], [2, 2, 5]])
ANGLES = ops.rope_angles(np.arange(3), 6, 1e4, F16)
X, Y, W = numbers(2, 3, 6), numbers(2, 3, 6, seed=1), numbers(6, seed=2)
R = ops.rms_norm(X, W, 1e-5)[1]
P = ops.cross_entropy(X, LABELS)[1]
HEADS, KEYS, VALUES = (
    numbers(2, 3, 2, 2, 4),
    numbers(2, 3, 2, 4, seed=1),
    numbers(2, 3, 2, 4, seed=2),
)
LSE = numbers(2, 3, 2, 2, seed=3)
PLACES = np.arange(3), np.arange(3)
TURNED = numbers(2, 3, 2, 6)
MASK = np.arange(36).reshape(2, 3, 6) % 3 > 0
ROWS, TABLE = numbers(9, 6, seed=4), numbers(5, 6, seed=5)

# The operation, its arguments, and how many results are stored. All float32 arrays in the list
# become half, except the statistics R, P and LSE and the angles, which stay float32.
CALLS = {
    "rms_norm": ((X, W, 1e-5), 1),
    "rms_norm_backward": ((Y, X, W, R), 1),
    "swiglu": ((X, Y), 1),
    "swiglu_backward": ((Y, X, Y), 2),
    "rope": ((TURNED, *ANGLES), 1),
    "rope_backward": ((TURNED, *ANGLES), 1),
    "attention": ((HEADS, KEYS, VALUES, *PLACES), 1),
    "attention_backward": ((HEADS, HEADS, KEYS, VALUES, HEADS, LSE, *PLACES), 3),
    "merge": ((HEADS, LSE, HEADS[::-1], LSE[::-1]), 1),
    "dropout": ((X, 0.3, (1, "d"), np.arange(2), np.arange(3)), 1),
    "dropout_backward": ((X, 0.3, MASK), 1),
    "embedding": ((LABELS % 5, TABLE), 0),
    "embedding_backward": ((X, LABELS % 5, 5), 0),
    "cross_entropy": ((X, LABELS), 0),
    "cross_entropy_backward": ((0.5, P, LABELS), 0),
    "linear": ((ROWS, TABLE, W[:5]), 1),
    "linear_backward": ((ROWS[:, :5], TABLE), 1),
    "linear_weight_gradient": ((ROWS, ROWS), 0),
    "add": ((X, W), 1),
    "sum_of_rows": ((ROWS,), 0),
}
STATISTICS = [R, P, LSE, LSE[::-1], *ANGLES]
ELSEWHERE = {"accumulate", "adamw", "half", "random", "rope_angles", "sgd"}


def test_every_operation_is_among_the_calls():
    assert set(CALLS) | ELSEWHERE == set(ops.__all__)


def halved(x, dtype):
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        return x
    return x if any(x is s for s in STATISTICS) else x.astype(dtype)


def results_of(found):
    return found if isinstance(found, tuple) else (found,)


def check_call(operation, name, dtype):
    """The results have the bits of the float32 operation, rounded once or not at all."""
    args, stored = CALLS[name]
    given_ = [halved(x, dtype) for x in args]
    before = [np.copy(x) for x in given_]
    wide = [half.up(x) if isinstance(x, np.ndarray) else x for x in given_]
    want = results_of(getattr(ops, name)(*wide))
    got = results_of(operation(*given_))
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        w = w.astype(dtype) if i < stored or name == "embedding" else w
        assert g.dtype == w.dtype, f"result {i} is {g.dtype}"
        assert g.tobytes() == w.tobytes(), f"result {i} has other bits"
    assert all(np.array_equal(a, b) for a, b in zip(given_, before, strict=True)), "written into"


@HALF
@pytest.mark.parametrize("name", CALLS)
def test_an_operation_computes_in_float32_and_rounds_once(name, dtype):
    check_call(getattr(ops, name), name, dtype)


STORES, KEEPS = "kept + found[results:]", "kept + tuple(down(x, args[0].dtype) for x in found[1:])"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("swiglu", "not any(_is_half_array(x) for x in args)", "True"),
        ("linear", "up(x) if _is_half_array(x) else x for x in args", "x for x in args"),
        ("rms_norm", "tuple(down(x, args[0].dtype) for x in found[:results])", "found[:results]"),
        ("rms_norm", STORES, KEEPS),
        ("attention", STORES, KEEPS),
        ("sum_of_rows", "if results else found", "if True else found"),
    ],
)
def test_stored_mutants(name, old, new):
    wrong = mutate(half.stored, old, new)(CALLS[name][1])(getattr(ops, name).__wrapped__)
    with pytest.raises(AssertionError):
        check_call(wrong, name, F16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wider_types_are_left_alone(dtype):
    """No copy, and the operation itself: nothing of a float32 run can change."""
    x = X.astype(dtype)
    assert half.up(x) is x
    assert half.down(x, dtype) is x
    seen = []
    half.stored(1)(lambda *args: seen.extend(args))(x, 3, "key")
    assert seen[0] is x


@HALF
def test_up_is_exact_and_down_rounds_to_the_nearest(dtype):
    every = np.arange(2**16, dtype=np.uint16).view(dtype)
    every = every[np.isfinite(every.astype(np.float32))]
    assert half.up(every).dtype == np.float32
    assert half.down(half.up(every), dtype).tobytes() == every.tobytes()
    assert half.down(every, dtype) is every
    x = (numbers(1000) + 3).clip(1, 7)
    error = abs(half.up(half.down(x, dtype)) - x)
    assert (error <= U[dtype] * x).all()
    assert (error > 0.9 * U[dtype] * x).any(), "the unit roundoff is reached"


def test_what_is_too_large_becomes_infinite_without_a_warning():
    assert half.down(np.array([7e4, -7e4], np.float32), F16).tolist() == [np.inf, -np.inf]


def test_names():
    assert [half.named(n).name for n in half.NAMES] == list(half.NAMES)
    assert [n for n in half.NAMES if half.is_half(half.named(n))] == list(half.HALF)
    assert [half.wide(half.named(n)).name for n in half.NAMES] == ["float64", *["float32"] * 3]
    assert not half.is_half(np.int16)
    with pytest.raises(ConfigError, match="'bf16': choose one of float64, float32, bfloat16"):
        half.named("bf16")


def check_accumulate(accumulate, total, x):
    want = (total.astype(np.float32) + x.astype(np.float32)).astype(total.dtype)
    accumulate(total, x)
    assert total.tobytes() == want.tobytes()


JUST_ABOVE = np.ones(1, BF16), np.full(1, 2.0**-8 * (1 + 2.0**-10), np.float32)
"""The sum is just above the middle between 1 and the next number; x rounded first, on it."""


@given(shapes(2), st.sampled_from([BF16, F16]), st.sampled_from([BF16, F16, None]), st.data())
@example((1,), BF16, None, None)
def test_accumulate_rounds_once(shape, dtype, other, data):
    if data is None:
        check_accumulate(ops.accumulate, *(x.copy() for x in JUST_ABOVE))
        return
    total, x = data.draw(arrays(shape, dtype)), data.draw(arrays(shape, other or np.float32))
    check_accumulate(ops.accumulate, total, x)


@pytest.mark.parametrize(
    ("old", "new"),
    [("half.up(x), total", "half.up(half.down(x, total.dtype)), total"),
     ("half.up(total) + half.up(x)", "total + half.down(x, total.dtype)")],
)  # fmt: skip
def test_accumulate_mutants(old, new):
    with pytest.raises(AssertionError):
        check_accumulate(mutate(ops.accumulate, old, new), *(x.copy() for x in JUST_ABOVE))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accumulate_in_wide_types_is_in_place_and_takes_half(dtype):
    total = np.ones(3, dtype)
    ops.accumulate(total, np.full(3, 2.0**-9, BF16))
    assert (total == 1 + 2.0**-9).all()
    assert total.dtype == dtype


def check_long_sum(total):
    """1000 times 0.01, which as a bfloat16 is 0.01001."""
    x = np.full((1000, 1), 0.01, BF16)
    assert abs(float(total(x)[0]) - 10.01) < 0.001


def test_a_sum_does_not_stall():
    check_long_sum(ops.sum_of_rows)
    check_long_sum(lambda x: ops.linear_weight_gradient(np.ones_like(x), x)[0])
    check_long_sum(lambda x: ops.embedding_backward(x, np.zeros(1000, int), 1)[0])


def test_a_sum_in_bfloat16_stalls_at_4():
    def step_by_step(x):
        total = np.zeros(1, BF16)
        for row in x:
            ops.accumulate(total, row)
        return total

    assert step_by_step(np.full((1000, 1), 0.01, BF16))[0] == 4
    with pytest.raises(AssertionError):
        check_long_sum(step_by_step)


@HALF
def test_on_a_device(dtype):
    xp = fake_device.xp
    x, w = X.astype(dtype), W.astype(dtype)
    y, r = ops.rms_norm(xp.asarray(x), xp.asarray(w), 1e-5)
    want = ops.rms_norm(x, w, 1e-5)
    assert y.get().tobytes() == want[0].tobytes()
    assert r.get().tobytes() == want[1].tobytes()
    total = xp.asarray(x)
    ops.accumulate(total, y)
    assert total.dtype == dtype
    assert np.isnan(xp.empty(3, dtype).get().astype(np.float32)).all(), "garbage, as of other types"
