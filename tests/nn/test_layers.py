"""Every layer: backward against central differences, on any leading shape; nothing is written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.nn import (
    At,
    Bias,
    Chain,
    CrossEntropy,
    Dropout,
    Embedding,
    Layer,
    Linear,
    Parameter,
    Residual,
    RMSNorm,
    SwiGLU,
    allocate,
)
from minidist.testing.gradients import check_layer, fingerprint
from minidist.testing.mutants import mutate
from minidist.testing.strategies import arrays, leading, places, seeds, sizes

AT = At(3, True, np.arange(2), np.arange(3))


def weight(name, *shape):
    return Parameter(name, shape, init=0.7, seed=1)


def linear(name, rows, columns, bias=False):
    return Linear(weight(name, rows, columns), weight(name + ".b", rows) if bias else None)


def ready(layer, dtype=np.float64):
    allocate(layer.parameters(), dtype)
    return layer


def swiglu(width=4, hidden=3, bias=False):
    return SwiGLU(
        linear("gate", hidden, width, bias), linear("up", hidden, width, bias),
        linear("down", width, hidden),
    )  # fmt: skip


widths = st.integers(1, 5)


@given(leading(), sizes(), sizes(), st.booleans(), st.data())
def test_linear(lead, columns, rows, bias, data):
    layer = ready(linear("w", rows, columns, bias))
    x = data.draw(arrays((*lead, columns)))
    check_layer(layer, x, AT)
    y = layer.forward(x, AT)[0]
    want = np.einsum("...d,fd->...f", x, layer.weight.data) + (layer.bias.data if bias else 0)
    assert np.allclose(y, want, atol=1e-13)


@given(leading(), widths, st.data())
def test_bias(lead, width, data):
    check_layer(ready(Bias(weight("b", width))), data.draw(arrays((*lead, width))), AT)


@given(leading(), widths, st.data())
def test_rms_norm(lead, width, data):
    layer = ready(RMSNorm(weight("n", width), 1e-2))
    check_layer(layer, data.draw(arrays((*lead, width))), AT)


@given(leading(), widths, sizes(), st.booleans(), st.data())
def test_swiglu(lead, width, hidden, bias, data):
    check_layer(ready(swiglu(width, hidden, bias)), data.draw(arrays((*lead, width))), AT)


@given(leading(), widths, widths, seeds)
def test_embedding(lead, rows, width, seed):
    ids = np.random.default_rng(seed).integers(0, rows, lead)
    check_layer(ready(Embedding(weight("table", rows, width))), ids, AT)


@given(leading(), widths, seeds, st.data())
def test_cross_entropy(lead, vocabulary, seed, data):
    labels = np.random.default_rng(seed).integers(-1, vocabulary, lead)
    check_layer(CrossEntropy(lambda at: labels), data.draw(arrays((*lead, vocabulary))), AT)


@given(sizes(4), sizes(4), widths, st.sampled_from([0.0, 0.3, 0.9]), st.booleans(), st.data())
def test_dropout(samples, positions, width, rate, train, data):
    at = data.draw(places(samples, positions, train))
    x = data.draw(arrays((samples, positions, width)))
    check_layer(Dropout("d", rate, 4), x, at)


@given(leading(), widths, st.data())
def test_containers(lead, width, data):
    chain = Chain(
        RMSNorm(weight("n", width), 1e-2),
        Residual(linear("a", width, width), swiglu(width)),
        Chain(),
        linear("b", 2, width, bias=True),
    )
    check_layer(ready(chain), data.draw(arrays((*lead, width))), AT)


X = np.random.default_rng(0).normal(size=(2, 3, 4))


@pytest.mark.parametrize(
    ("cls", "old", "new", "build"),
    [
        (Linear, "gradient(dy_NF, x_ND)", "gradient(dy_NF, 2 * x_ND)",
         lambda c: c(weight("w", 5, 4))),
        (Linear, "ops.sum_of_rows(dy_NF)", "dy_NF.mean(0)",
         lambda c: c(weight("w", 5, 4), weight("b", 5))),
        (Linear, "later.append(weight_gradient)", "pass", lambda c: c(weight("w", 5, 4))),
        (Bias, "return dy", "return 2 * dy", lambda c: c(weight("b", 4))),
        (RMSNorm, "self.weight.accumulate(dweight)", "pass", lambda c: c(weight("n", 4))),
        (SwiGLU, "ops.accumulate(dx, self.up", "ops.accumulate(dx, -self.up",
         lambda c: c(linear("g", 3, 4), linear("u", 3, 4), linear("d", 4, 3))),
        (SwiGLU, "self.down.backward(h, dy, later)", "self.down.backward(h, dy)",
         lambda c: c(linear("g", 3, 4), linear("u", 3, 4), linear("d", 4, 3))),
        (Dropout, "ops.dropout_backward(dy, self.rate, ctx)", "dy", lambda c: c("d", 0.5)),
        (Chain, "layer.backward(c, dy, later)", "layer.backward(c, dy)",
         lambda c: c(linear("w", 4, 4))),
        (Residual, "ops.add(dy, super().backward(ctx, dy, later))",
         "super().backward(ctx, dy, later)", lambda c: c(linear("w", 4, 4))),
        (Residual, "return ops.add(x, y)", "x += y; return x", lambda c: c(linear("w", 4, 4))),
        (CrossEntropy, "cross_entropy_backward(dy,", "cross_entropy_backward(1.0,",
         lambda c: c(lambda at: np.zeros((2, 3), int))),
    ],
)  # fmt: skip
def test_mutants(cls, old, new, build):
    wrong = ready(build(mutate(cls, old, new)))
    with pytest.raises((AssertionError, IndexError)):
        check_strictly(wrong)


def check_strictly(layer):
    """check_layer, and that nothing runs at once which could have been deferred."""
    check_layer(layer, X.copy(), AT)
    linears = [x for x in walk(layer) if isinstance(x, Linear)]
    later = []
    y, ctx = layer.forward(X, AT)
    for p in layer.parameters():
        p.grad = np.zeros(p.local)
    layer.backward(ctx, 0.7 if y.ndim == 0 else np.ones_like(y), later)
    assert len(later) == len(linears)
    assert not any(x.weight.grad.any() for x in linears)


def walk(layer):
    yield layer
    for value in vars(layer).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Layer):
                yield from walk(part)


@pytest.mark.parametrize(
    "layer",
    [linear("w", 4, 4), swiglu(), Residual(Chain(linear("a", 4, 4)), swiglu())],
    ids=["linear", "swiglu", "nested"],
)
def test_weight_gradients_can_all_be_deferred(layer):
    check_strictly(ready(layer))


def test_deferred_work_needs_no_weights():
    """Zero-bubble's W may run when the weights are no longer there."""
    layer = ready(linear("w", 5, 4))
    _, ctx = layer.forward(X, AT)
    later = []
    layer.backward(ctx, np.ones((2, 3, 5)), later)
    layer.weight.data, layer.weight.grad = None, np.zeros((5, 4))
    later[0]()
    assert np.allclose(layer.weight.grad, np.ones((5, 6)) @ X.reshape(6, 4))


def test_fingerprint_sees_every_change():
    layer = ready(Chain(RMSNorm(weight("n", 4)), swiglu()))
    before = fingerprint(layer)
    assert fingerprint(layer) == before
    layer.layers[1].up.weight.data[0, 0] += 1
    assert fingerprint(layer) != before
    layer.layers[1].up.weight.data[0, 0] -= 1
    layer.calls = 1
    assert fingerprint(layer) != before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "layer",
    [linear("w", 4, 4, bias=True), Bias(weight("b", 4)), RMSNorm(weight("n", 4)), swiglu(bias=True),
     Dropout("d", 0.3), Dropout("d", 0.0), Residual(Chain(linear("w", 4, 4))),
     CrossEntropy(lambda at: np.ones((2, 3), int))],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_output_has_the_dtype_of_the_input(layer, dtype):
    ready(layer, dtype)
    for p in layer.parameters():
        p.grad = np.zeros(p.local, dtype)
    y, ctx = layer.forward(X.astype(dtype), AT)
    dy = np.float64(0.5) if y.ndim == 0 else y
    assert y.dtype == layer.backward(ctx, dy).dtype == dtype
    assert all(p.grad.dtype == dtype for p in layer.parameters())


def test_containers_make_progress_between_layers():
    calls = []
    at = At(0, True, np.arange(2), np.arange(3), lambda: calls.append(1))
    layer = ready(Chain(Residual(linear("a", 4, 4), linear("b", 4, 4)), linear("c", 4, 4)))
    for p in layer.parameters():
        p.grad = np.zeros(p.local)
    y, ctx = layer.forward(X, at)
    assert len(calls) == 4
    layer.backward(ctx, y)
    assert len(calls) == 8


def test_parameters_in_order_of_use_and_a_shared_one_twice():
    shared = linear("shared", 4, 4)
    layer = Chain(shared, Residual(RMSNorm(weight("n", 4)), swiglu()), shared)
    names = [p.name for p in layer.parameters()]
    assert names == ["shared", "n", "gate", "up", "down", "shared"]


def test_a_row_parallel_bias_is_added_once():
    """Trap 71: y - b = x exactly, and the gradient is the sum over tokens."""
    layer = ready(Bias(weight("b", 3)))
    layer.bias.data[...], layer.bias.grad = [1, 10, 100], np.zeros(3)
    y, ctx = layer.forward(np.ones((2, 2, 3)), AT)
    assert (y - [1, 10, 100] == 1).all()
    layer.backward(ctx, np.ones((2, 2, 3)))
    assert layer.bias.grad.tolist() == [4, 4, 4]


def test_the_divisor_is_the_global_count_of_valid_tokens():
    """Trap 53: three valid tokens of loss a on one rank, one of loss b on another."""
    labels = np.array([[0, 0, 0, -1], [1, -1, -1, -1]])
    logits = np.random.default_rng(2).normal(size=(2, 4, 3))
    whole = CrossEntropy(lambda at: labels)
    loss, ctx = whole.forward(logits, AT)
    gradient = whole.backward(ctx, 1 / 4)
    parts = [CrossEntropy(lambda at, r=r: labels[r : r + 1]) for r in range(2)]
    found = [p.forward(logits[r : r + 1], AT) for r, p in enumerate(parts)]
    assert np.isclose(sum(float(f[0]) for f in found), float(loss))
    split = [p.backward(c, 1 / 4) for p, (_, c) in zip(parts, found, strict=True)]
    assert np.allclose(np.concatenate(split), gradient, atol=1e-15)
