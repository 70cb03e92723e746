"""Every operation of `minidist.ops` on a device, beside the host's float64.

    reference   NumPy, float64                 on the very numbers that the device is given
    device      float64                        within 1e-10 of the largest element
    device      float32                        within n u of the largest element, u = 2^-24

where n is the number of roundings on the longest way from an input to a result: the terms of its
longest sum, and some more for functions such as exp. Integers and bits must be equal.

A check returns a few words, raises `Skip` where something is missing, and fails by any other
exception.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minidist import ops
from minidist.arrays import Array, to_host
from minidist.ops.reduce import combine, sum_of_squares

U32 = 2.0**-24
B, T, G, R, H, D, V, F = 3, 70, 2, 2, 16, 24, 50, 40
"""Batch, positions (more than one block of attention), groups, heads, head, width, vocabulary."""


class Skip(Exception):
    """What the check needs is not here."""


@dataclass(frozen=True)
class Target:
    """The device under test; `copier` is the name of its class in `minidist.comm.staging`."""

    name: str
    xp: Any
    synchronise: Callable[[], object]
    copier: str
    real: bool

    def staging(self) -> tuple[Any, Any]:
        """Return (the module minidist.comm.staging, what copies between device and host)."""
        try:
            from minidist.comm import staging
        except ImportError as error:
            raise Skip(f"no {error.name}") from None
        return staging, getattr(staging, self.copier)()


# --- comparing ----------------------------------------------------------------------------------


def differ(got: Array, want: np.ndarray, roundings: int) -> float:
    """Return the error as a share of what is allowed; raise AssertionError beyond 1."""
    mine = to_host(got)
    assert mine.shape == want.shape, f"shape {mine.shape} instead of {want.shape}"
    if want.dtype.kind != "f":
        assert np.array_equal(mine, want), f"{np.count_nonzero(mine != want)} elements differ"
        return 0.0
    there = np.isfinite(want)
    assert np.array_equal(mine[~there], want[~there]), "infinite elsewhere than on the host"
    if not there.any():
        return 0.0
    allowed = 1e-10 if mine.dtype == np.float64 else roundings * U32
    off = np.abs(mine[there] - want[there]).max() / max(np.abs(want[there]).max(), 1e-30)
    assert off <= allowed, f"off by {off:.1e} of the largest element, allowed {allowed:.1e}"
    return float(off / allowed)


def same(target: Target, case: "Case", dtype: Any) -> str:
    """Run an operation on the device, and in float64 on the host, on the same numbers."""
    host = [x.astype(dtype) if x.dtype.kind == "f" else x for x in case.inputs]
    exact = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in host]
    want, got = case.call(*exact), case.call(*map(target.xp.asarray, host))
    for x in got:
        assert x.dtype.kind != "f" or x.dtype == dtype, f"{x.dtype} from {np.dtype(dtype)}"
    worst = max(differ(g, np.asarray(w), case.roundings) for g, w in zip(got, want, strict=True))
    return f"error {worst:.2f} of the bound"


# --- operations ---------------------------------------------------------------------------------


class Case(NamedTuple):
    """An operation on arrays: returns a tuple of arrays."""

    call: Callable[..., tuple[Array, ...]]
    inputs: list[np.ndarray]
    roundings: int


def cases() -> dict[str, Case]:
    """Return every function of `minidist.ops`, forward and backward."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    x, dy, weight, gate, up = some(B, T, D), some(B, T, D), some(D), some(B, T, F), some(B, T, F)
    q, do, k, v = some(B, T, G, R, H), some(B, T, G, R, H), some(B, T, G, H), some(B, T, G, H)
    q_pos, k_pos = np.arange(T) - 3, np.arange(T)  # three queries see no key
    logits, labels, ids = some(B, T, V), rng.integers(-1, V, (B, T)), rng.integers(0, V, (B, T))
    flat = [some(1000), some(1000), some(1000), some(1000) ** 2]
    rows, out, matrix = some(B * T, D), some(B * T, F), some(F, D)
    softmax = 4 * (T + H)  # scores reach 4, and their error is absolute in the weights
    return {
        "rms_norm": Case(lambda *a: ops.rms_norm(*a, 1e-5), [x, weight], 20 + D),
        "rms_norm_backward": Case(_norm_backward, [dy, x, weight], 20 + B * T),
        "rope": Case(_rope(ops.rope), [q[:, :, 0], k_pos], 20),
        "rope_backward": Case(_rope(ops.rope_backward), [q[:, :, 0], k_pos], 20),
        "attention": Case(ops.attention, [q, k, v, q_pos, k_pos], softmax),
        "attention_backward": Case(_attention_backward, [do, q, k, v, q_pos, k_pos], 2 * softmax),
        "merge": Case(_attention_in_parts, [q, k, v, q_pos, k_pos], softmax),
        "swiglu": Case(lambda *a: (ops.swiglu(*a),), [gate, up], 40),
        "swiglu_backward": Case(ops.swiglu_backward, [gate, up, some(B, T, F)], 40),
        "cross_entropy": Case(ops.cross_entropy, [logits, labels], B * T + V + 40),
        "cross_entropy_backward": Case(_loss_backward, [logits, labels], V + 40),
        "embedding": Case(lambda *a: (ops.embedding(*a),), [ids, some(V, D)], 1),
        "embedding_backward": Case(lambda *a: (ops.embedding_backward(*a, V),), [dy, ids], B * T),
        "dropout": Case(_dropout, [x, np.arange(B) + 2**40, k_pos], 2),
        "dropout_backward": Case(_dropout_backward, [x, dy, np.arange(B), k_pos], 2),
        "linear": Case(lambda *a: (ops.linear(*a),), [rows, matrix, some(F)], D + 1),
        "linear_backward": Case(lambda *a: (ops.linear_backward(*a),), [out, matrix], F),
        "linear_weight_gradient": Case(
            lambda *a: (ops.linear_weight_gradient(*a),), [out, rows], B * T
        ),
        "add": Case(lambda *a: (ops.add(*a),), [x, dy], 1),
        "accumulate": Case(_accumulate, flat[:2], 1),
        "sum_of_rows": Case(lambda *a: (ops.sum_of_rows(*a),), [rows], B * T),
        "adamw": Case(_adamw, flat, 40),
        "sgd": Case(_sgd, flat[:2], 10),
        "sum_of_squares": Case(_squares, [flat[0]], 2),
        **{f"combine {op}": Case(_combine(op), flat[:2], 1) for op in ("sum", "max", "min")},
    }


def _accumulate(total: Array, x: Array) -> tuple[Array]:
    total = total.copy()
    ops.accumulate(total, x)
    return (total,)


def _norm_backward(dy: Array, x: Array, weight: Array) -> tuple[Array, ...]:
    return ops.rms_norm_backward(dy, x, weight, ops.rms_norm(x, weight, 1e-5)[1])


def _rope(turn: Callable[..., Array]) -> Callable[..., tuple[Array]]:
    return lambda x, pos: (turn(x, *ops.rope_angles(pos, H, 1e4, x.dtype)),)


def _attention_backward(do: Array, *qkv_pos: Array) -> tuple[Array, ...]:
    q, k, v, q_pos, k_pos = qkv_pos
    return ops.attention_backward(do, q, k, v, *ops.attention(*qkv_pos), q_pos, k_pos)


def _attention_in_parts(q: Array, k: Array, v: Array, q_pos: Array, k_pos: Array) -> tuple:
    left, right = (
        ops.attention(q, k[:, s], v[:, s], q_pos, k_pos[s])
        for s in (slice(0, T // 3), slice(T // 3, T))
    )
    return ops.merge(*left, *right)


def _loss_backward(logits: Array, labels: Array) -> tuple[Array]:
    return (ops.cross_entropy_backward(0.1, ops.cross_entropy(logits, labels)[1], labels),)


def _dropout(x: Array, samples: Array, positions: Array) -> tuple[Array]:
    return (ops.dropout(x, 0.3, (7, "a name"), samples, positions)[0],)


def _dropout_backward(x: Array, dy: Array, samples: Array, positions: Array) -> tuple[Array]:
    saved = ops.dropout(x, 0.3, (7, "a name"), samples, positions)[1]
    return (ops.dropout_backward(dy, 0.3, saved),)


def _adamw(*flat: Array) -> tuple[Array, ...]:
    data, grad, m, v = (x.copy() for x in flat)
    ops.adamw(data, grad, m, v, 0.01, 0.9, 0.95, 1e-8, 0.1, 3)
    return data, m, v


def _sgd(data: Array, grad: Array) -> tuple[Array]:
    data = data.copy()
    ops.sgd(data, grad, 0.1, 0.1)
    return (data,)


def _squares(x: Array) -> tuple[Array]:
    """The sum is float64 whatever the numbers are; here it is rounded to what they are."""
    return (sum_of_squares(x).astype(x.dtype),)


def _combine(op: str) -> Callable[[Array, Array], tuple[Array]]:
    def call(a: Array, b: Array) -> tuple[Array]:
        out = a.copy()
        combine(op, out, b, out=out)
        return (out,)

    return call


def random_bits(target: Target) -> str:
    """Counter-based numbers are a function of their keys: the same bits wherever computed."""
    keys = [np.arange(5)[:, None, None], np.arange(7)[:, None], np.arange(11)]
    device = [target.xp.asarray(key) for key in keys]
    for draw in (ops.random.bits, ops.random.uniform, lambda *a: ops.random.keep(0.3, 10, *a)):
        got, want = draw(7, "a name", *device), draw(7, "a name", *keys)
        assert to_host(got).tobytes() == want.tobytes(), "other bits than on the host"
    differ(ops.random.normal(7, *device), ops.random.normal(7, *keys), 0)
    return f"{5 * 7 * 11} words, masks of dropout, uniform and normal numbers"
