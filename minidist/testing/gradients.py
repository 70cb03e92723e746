"""Is a hand-written backward right? Central differences in float64 say so.

With f along a direction d, g(t) = f(x + t d), and a step h,

    g'(0)  =  (8 (g(h) - g(-h)) - (g(2h) - g(-2h))) / 12h     up to O(h^4)

which should equal the inner product of the gradient with d. A random direction tests all elements
at once: a wrong element changes the product, unless its error is tiny.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from minidist.nn import At, Layer, Parameter

STEP = 1e-4
STENCIL = {1: 8 / 12, -1: -8 / 12, 2: -1 / 12, -2: 1 / 12}
TOLERANCE = 1e-7


def check_gradient(
    loss: Callable[[], float], x: np.ndarray, gradient: np.ndarray, name: str = "x"
) -> None:
    """Assert that ``gradient`` is that of ``loss`` by the float64 array ``x``, which loss reads.

    ``x`` is changed in place meanwhile, and restored.
    """
    assert gradient.shape == x.shape, f"{name}: gradient {gradient.shape}, array {x.shape}"
    rng, before = np.random.default_rng(x.size), x.copy()
    for _ in range(2):
        direction = rng.standard_normal(x.shape)
        numeric = 0.0
        for steps, weight in STENCIL.items():
            x[...] = before + steps * STEP * direction
            numeric += weight * loss() / STEP
        x[...] = before
        exact = float((gradient * direction).sum())
        size = 1.0 + abs(numeric) + float(np.sqrt((gradient**2).sum()))
        assert abs(numeric - exact) < TOLERANCE * size, f"{name}: {exact}, differences {numeric}"


def check_layer(layer: Layer, x: np.ndarray, at: At) -> None:
    """Assert that a layer's backward fits its forward, by its input and by every parameter.

    The parameters are allocated, in float64, by the caller. Also asserts that the layer changes
    neither itself nor the arrays it is handed, and that deferring weight gradients changes nothing.
    """
    before, inputs = fingerprint(layer), x.copy()
    y, ctx = layer.forward(x, at)
    dy: Any = np.random.default_rng(7).standard_normal(y.shape) if y.ndim else 0.7
    kept, output = np.copy(dy), np.copy(y)
    dx, gradients = run_backward(layer, ctx, dy)
    later: list[Callable[[], None]] = []
    _same(run_backward(layer, ctx, dy, later), (dx, gradients), "deferred weight gradients differ")
    assert fingerprint(layer) == before, "the layer has changed"
    for name, array, copy in ("x", x, inputs), ("dy", dy, kept), ("y", y, output):
        assert np.array_equal(array, copy), f"{name} has been written into"

    def loss() -> float:
        return float((layer.forward(x, at)[0] * dy).sum())

    if dx is not None:
        check_gradient(loss, x, dx)
    for p in dict.fromkeys(layer.parameters()):
        check_gradient(loss, p.data, gradients[p.name], p.name)


def run_backward(
    layer: Layer, ctx: Any, dy: Any, later: list[Callable[[], None]] | None = None
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return (dx, the gradients by name), and leave the parameters without any."""
    parameters = list(dict.fromkeys(layer.parameters()))
    for p in parameters:
        p.grad = np.zeros(p.local, p.data.dtype)
    dx = layer.backward(ctx, dy, later)
    for weight_gradient in later or ():
        weight_gradient()
    gradients = {p.name: p.grad for p in parameters}
    for p in parameters:
        p.grad = None
    return dx, gradients


def fingerprint(thing: Any) -> Any:
    """Return a value that changes if any attribute of a layer, or in it, changes.

    The gradients of parameters are left out: to add to them is what backward is for.
    """
    if isinstance(thing, np.ndarray):
        return thing.dtype.str, thing.shape, thing.tobytes()
    if isinstance(thing, (tuple, list)):
        return tuple(map(fingerprint, thing))
    if isinstance(thing, Parameter):
        return id(thing), *((k, fingerprint(v)) for k, v in vars(thing).items() if k != "grad")
    if type(thing).__module__.startswith("minidist.nn"):
        return id(thing), *((k, fingerprint(v)) for k, v in vars(thing).items())
    return repr(thing)


def _same(a: Any, b: Any, message: str) -> None:
    (dx, gradients), (other, others) = a, b
    assert (dx is None) == (other is None), message
    assert dx is None or np.array_equal(dx, other), message
    assert all(np.array_equal(gradients[name], others[name]) for name in others), message
