"""A decoder in float16 or bfloat16: types, no arithmetic in them, gradients within a bound."""

from math import sqrt

import numpy as np
import pytest

from minidist import nn
from minidist.nn import At, DecoderConfig, LocalAttention, Parameter
from minidist.ops import half
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from tests.nn import test_attention
from tests.nn.test_decoder import TINY, arrays_in, model, parameters, place, step
from tests.nn.test_layers import linear, ready, swiglu, walk, weight
from tests.ops.test_half import BF16, F16, HALF, U

EVERYTHING = DecoderConfig(**TINY, tied=True, bias=True, dropout=0.3)


class Guarded(np.ndarray):
    """A half array that may be moved and converted, and refuses to be computed with."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **keywords):
        operands = [x for x in (*inputs, *out) if isinstance(x, np.ndarray)]
        assert not any(half.is_half(x.dtype) for x in operands), f"{ufunc} in a half type"
        plain = [np.asarray(x) if isinstance(x, Guarded) else x for x in inputs]
        if out:
            keywords["out"] = tuple(np.asarray(x) for x in out)
        found = getattr(ufunc, method)(*plain, **keywords)
        return out[0] if out else found

    def __array_function__(self, function, types, args, keywords):
        arrays = [x for x in arrays_in(args) if half.is_half(x.dtype)]
        assert not arrays, f"{function.__name__} in a half type"
        return super().__array_function__(function, types, args, keywords)


def guarded(x):
    return x.view(Guarded) if half.is_half(x.dtype) else x


@pytest.fixture
def guards(monkeypatch):
    """Make every half array that is stored a guarded one."""
    down = half.down
    monkeypatch.setattr(half, "down", lambda x, dtype: guarded(down(x, dtype)))


def with_float32_gradients(units, dtype=np.float32):
    for p in parameters(units):
        p.data, p.grad = guarded(p.data), guarded(np.zeros(p.local, dtype))


def check_no_arithmetic(units, toy, dtype, grad_dtype=np.float32):
    """A step with guarded arrays; all half arrays in ctx and all that units hand on are guarded."""
    with_float32_gradients(units, grad_dtype)
    at = place()
    x, contexts = toy.tokens(at), []
    for unit in units:
        x, ctx = unit.forward(x, at)
        contexts.append(ctx)
        assert x.dtype == dtype or unit is units[-1]
    kept = [a for a in arrays_in(contexts) if half.is_half(a.dtype)]
    assert len(kept) > 20
    assert all(isinstance(a, Guarded) and a.dtype == dtype for a in kept)
    dy, later = 0.1, []
    for unit in reversed(units):
        dy = unit.backward(contexts.pop(), dy, later)
        assert dy is None or (isinstance(dy, Guarded) and dy.dtype == dtype)
    for weight_gradient in later:
        weight_gradient()
    assert {p.grad.dtype for p in parameters(units)} == {np.dtype(grad_dtype)}


@HALF
@pytest.mark.parametrize("grad_dtype", [np.float32, BF16], ids=str)
def test_nothing_is_computed_in_a_half_type(dtype, grad_dtype, guards):
    check_no_arithmetic(*model(EVERYTHING, dtype), dtype, grad_dtype)


@pytest.mark.parametrize(
    ("cls", "old", "new"),
    [
        (nn.Residual, "ops.add(x, y)", "x + y"),
        (nn.Residual, "ops.add(dy, super().backward(ctx, dy, later))",
         "dy + super().backward(ctx, dy, later)"),
        (nn.Linear, "ops.linear(as_rows(x), self.weight.data, bias)",
         "as_rows(x) @ self.weight.data.T"),
        (nn.Linear, "ops.linear_backward(dy_NF, self.weight.data)", "(dy_NF @ self.weight.data)"),
        (nn.Linear, "ops.linear_weight_gradient(dy_NF, x_ND)", "dy_NF.T @ x_ND"),
        (nn.Linear, "ops.sum_of_rows(dy_NF)", "dy_NF.sum(0)"),
        (nn.Bias, "ops.add(x, self.bias.data)", "x + self.bias.data"),
        (nn.SwiGLU, "ops.accumulate(dx, self.up.backward(x, dup, later))",
         "dx += self.up.backward(x, dup, later)"),
        (nn.Attention, "ops.rope(k_BTGH, *angles)", "ops.rope.__wrapped__(k_BTGH, *angles)"),
        (nn.RMSNorm, "ops.rms_norm(", "ops.rms_norm.__wrapped__("),
        (Parameter, "accumulate(self.grad, gradient)", "self.grad += gradient"),
    ],
)  # fmt: skip
def test_arithmetic_mutants(cls, old, new, guards, monkeypatch):
    units, toy = model(EVERYTHING, F16)
    wrong, found = mutate(cls, old, new), 0
    for thing in [*(x for unit in units for x in walk(unit)), *parameters(units)]:
        if type(thing) is cls:
            object.__setattr__(thing, "__class__", wrong)
            found += 1
    assert found
    with pytest.raises((AssertionError, TypeError)):
        check_no_arithmetic(units, toy, F16, F16)


ONES = np.ones((2, 3), int)
AT = At(3, True, np.arange(2), np.arange(3))


@HALF
@pytest.mark.parametrize(
    "layer",
    [linear("w", 4, 4, bias=True), nn.Bias(weight("b", 4)), nn.RMSNorm(weight("n", 4)),
     swiglu(bias=True), nn.Dropout("d", 0.3), nn.Dropout("d", 0.0), nn.Residual(linear("w", 4, 4)),
     nn.CrossEntropy(lambda at: ONES), nn.Embedding(weight("t", 5, 4))],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_results_have_the_dtype_of_the_input(layer, dtype):
    """And statistics float32, losses float32, gradients of weights float32."""
    ready(layer, dtype)
    for p in layer.parameters():
        p.accumulate = lambda g: types.append(g.dtype)
    types = []
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(dtype)
    embedding, loss = isinstance(layer, nn.Embedding), isinstance(layer, nn.CrossEntropy)
    y, ctx = layer.forward(ONES if embedding else x, AT)
    dx = layer.backward(ctx, 0.5 if loss else y)
    assert y.dtype == (np.float32 if loss else dtype)
    assert dx is None if embedding else dx.dtype == dtype
    assert set(types) <= {np.dtype(np.float32)}
    assert len(types) == len(layer.parameters())
    kept = {a.dtype for a in arrays_in(ctx)} - {np.dtype(bool), np.dtype(int)}
    if isinstance(layer, nn.RMSNorm):
        assert [a.dtype for a in ctx] == [dtype, np.float32]
    else:
        assert kept <= {np.dtype(np.float32) if loss else dtype}


@HALF
@pytest.mark.parametrize("block", [None, 2])
def test_attention_keeps_half_activations_and_float32_statistics(dtype, block):
    layer = test_attention.build(2, 2, core=LocalAttention(block), dtype=dtype)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(dtype)
    y, ctx = layer.forward(x, AT)
    assert y.dtype == dtype
    kept_x, angles, (q, k, v, o, lse, _), out, _ = ctx
    assert {a.dtype for a in (kept_x, q, k, v, o, out)} == {dtype}
    assert {a.dtype for a in (lse, *angles)} == {np.dtype(np.float32)}
    assert np.may_share_memory(o, out), "one array, kept once"
    for p in layer.parameters():
        p.grad = np.zeros(p.local, np.float32)
    assert layer.backward(ctx, y).dtype == dtype


def test_deferred_work_keeps_the_half_arrays():
    """A closure for later must not hold float32 copies: that would be three times the bytes."""
    layer = ready(linear("w", 5, 4), BF16)
    y, ctx = layer.forward(np.ones((3, 4), BF16), AT)
    later = []
    layer.backward(ctx, y, later)
    held = [cell.cell_contents for cell in later[0].__closure__]
    assert {a.dtype for a in held if isinstance(a, np.ndarray)} == {BF16}


@HALF
def test_device_equals_host_bit_for_bit(dtype):
    xp = fake_device.xp
    units, toy = model(EVERYTHING, dtype)
    on_device, device_toy = model(EVERYTHING, dtype, xp)
    device_at = At(4, True, xp.asarray(np.arange(2)), xp.asarray(np.arange(5)))
    loss, gradients = step(units, toy, place(), 0.1)
    device_loss, device_gradients = step(on_device, device_toy, device_at, 0.1)
    assert loss.dtype == np.float32
    assert device_loss.get() == loss
    for name, g in gradients.items():
        assert g.dtype == dtype
        assert device_gradients[name].get().tobytes() == g.tobytes(), name


# --- how far off the gradients are ----------------------------------------------------------------

WIDE = DecoderConfig(layers=2, width=32, heads=4, groups=2, vocabulary=31, bias=True)
SCALE = 2.0**10 / 96
"""Of the loss, so that no gradient is so small that float16 has fewer bits for it."""


def gradient_errors(dtype, change=lambda units: None, scale=SCALE):
    """Return (relative errors of the gradients by name, roundings on the way)."""
    at = At(0, True, np.arange(6), np.arange(16))
    rough, toy = model(WIDE, dtype)
    exact, _ = model(WIDE, np.float32)
    for p, q in zip(parameters(rough), parameters(exact), strict=True):
        q.data, p.grad = p.data.astype(np.float32), np.zeros(p.local, np.float32)
    change(rough)
    roundings, down = 0, half.down

    def counted(x, to):
        nonlocal roundings
        roundings += x.dtype != to
        return down(x, to)

    half.down = counted
    try:
        _, got = step(rough, toy, at, scale)
    finally:
        half.down = down
    _, want = step(exact, toy, at, scale)
    norm = np.linalg.norm
    return {n: float(norm(got[n] - want[n]) / norm(want[n])) for n in want}, roundings


def check_gradients(dtype, u, **how):
    """Errors of the gradients within what the roundings explain.

    The half model is the float32 model with each stored array z replaced by z (1 + d), |d| <= u
    elementwise: in the root mean square, with d anywhere in [-u, u], an error of u |z| / sqrt(3).
    There are n such arrays, forward and backward, and an error made in any may reach any gradient.
    The layers hardly change the *relative* size of an error: matrices of random numbers stretch all
    vectors alike, a norm takes size away, and the stream adds up parts that each bring their own
    error. Errors of different arrays are independent, so their squares add up, to sqrt(n / 3) u at
    the most. A layer that stretched them, or one wrong or missing term, would be far above.
    """
    errors, n = gradient_errors(dtype, **how)
    bound = sqrt(n / 3) * u
    worst = max(errors, key=errors.get)
    assert n > 50
    assert errors[worst] < bound, f"{worst}: {errors[worst]} with {n} roundings, bound {bound}"


@HALF
def test_gradients_are_as_near_as_the_roundings_allow(dtype):
    check_gradients(dtype, U[dtype])


def test_the_bound_tells_bfloat16_from_float16():
    with pytest.raises(AssertionError, match="roundings"):
        check_gradients(BF16, U[F16])


def test_without_a_loss_scale_small_gradients_are_lost():
    """Float16 has steps of 6e-8 at the end of its range. bfloat16 does not mind."""
    check_gradients(BF16, U[BF16], scale=1e-6)
    with pytest.raises(AssertionError, match="roundings"):
        check_gradients(F16, U[F16], scale=1e-6)


@HALF
@pytest.mark.parametrize(
    ("cls", "old", "new"),
    [
        (nn.Residual, "ops.add(dy, super().backward(ctx, dy, later))",
         "super().backward(ctx, dy, later)"),
        (nn.SwiGLU, "ops.accumulate(dx, self.up.backward(x, dup, later))",
         "self.up.backward(x, dup, later)"),
        (nn.Linear, "ops.sum_of_rows(dy_NF)", "ops.sum_of_rows(dy_NF[1:])"),
    ],
)  # fmt: skip
def test_gradient_mutants(cls, old, new, dtype):
    wrong = mutate(cls, old, new)

    def change(units):
        for layer in (x for unit in units for x in walk(unit) if type(x) is cls):
            object.__setattr__(layer, "__class__", wrong)

    with pytest.raises(AssertionError, match="roundings"):
        check_gradients(dtype, U[dtype], change=change)


# --- partial results of attention -----------------------------------------------------------------


def attention_errors(core, dtype, block):
    """Relative errors of o, dq, dk and dv of 64 positions, keys in blocks, against float64."""
    rng = np.random.default_rng(0)
    q, do = rng.normal(size=(2, 1, 64, 2, 2, 8)).astype(dtype)
    k, v = rng.normal(size=(2, 1, 64, 2, 8)).astype(dtype)
    at = At(0, True, np.arange(1), np.arange(64))

    def results(core, q, k, v, do):
        o, ctx = core.forward(q, k, v, at)
        return o, *core.backward(ctx, do)

    got = results(core(block), q, k, v, do)
    want = results(LocalAttention(), *(x.astype(float) for x in (q, k, v, do)))
    norm = np.linalg.norm
    return np.array([norm(g - w) / norm(w) for g, w in zip(map(half.up, got), want, strict=True)])


def check_blocks(core, dtype):
    """Trap 39: errors must not grow by half with the number of blocks; here they hardly change."""
    whole = attention_errors(core, dtype, None)
    for parts in (2, 8, 64):
        assert (attention_errors(core, dtype, 64 // parts) <= 1.1 * whole).all(), parts


@HALF
def test_the_error_of_attention_does_not_grow_with_the_blocks(dtype):
    check_blocks(LocalAttention, dtype)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("half.up(q), half.up(k), half.up(v)", "q, k, v"),
        ("dq += part[0]", "dq += half.up(half.down(part[0], dtype))"),
        ("dq += part[0]", "dq = half.up(half.down(dq + part[0], dtype))"),
    ],
)
def test_rounding_each_block_is_found(old, new):
    with pytest.raises(AssertionError):
        check_blocks(mutate(LocalAttention, old, new), BF16)
