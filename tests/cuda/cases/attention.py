"""Cases of attention.cu: one query or many, grouped heads, hidden keys, no keys."""

from collections.abc import Iterator

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import BF16, numbers, over, rounding, unset, wide
from tests.cuda.kernel_cases import TINY, U32, Case, Want


def attention_reference(q, k, v, q_pos, k_pos, o, lse, batch, queries, keys, groups, heads, size):
    """A score is off by (size + 3) u times the sum of its terms' absolute values, at most ``most``.

    exp(score - largest) is off by that twice, by the rounding of the difference, and by 4 u; sums
    over the keys and the scaling for each tile add theirs. All of it is relative to p |v|.
    """
    q64, k64, v64 = wide(q, k, v)
    want_o, want_lse = ops.attention(q64, k64, v64, q_pos, k_pos)
    mean, _ = ops.attention(q64, k64, abs(v64), q_pos, k_pos)
    most = 0.0
    if q.size and k.size:
        most = float(np.einsum("btgrh,bsgh->btgrs", abs(q64), abs(k64)).max()) * size**-0.5
    relative = 2 * ((size + 5) * most + 2 * keys + 32) * U32
    stored = rounding(o.dtype)
    largest = abs(v64).max() if v.size else 0.0
    finite_lse = np.where(np.isinf(want_lse), 0.0, want_lse)
    return {
        5: Want(want_o, relative * mean + stored * abs(want_o) + (1 + keys * largest) * TINY),
        6: Want(want_lse, relative + 4 * U32 * abs(finite_lse)),
    }


ATTENTION = {  # what: (batch, queries, keys, groups, heads, size)
    "of one number": (1, 1, 1, 1, 1, 1),
    "with grouped heads": (2, 6, 7, 2, 4, 4),
    "over several tiles": (1, 33, 70, 1, 2, 20),
    "of the largest heads": (1, 3, 35, 2, 1, 128),
    "with more heads than a tile has rows": (1, 2, 9, 1, 19, 8),
    "of exact tiles": (1, 16, 64, 1, 1, 32),
    "without keys": (1, 3, 0, 1, 2, 4),
    "without queries": (1, 0, 3, 1, 2, 4),
    "without samples": (0, 2, 3, 1, 2, 4),
}


def causal(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions where the last query sees all keys: the usual case."""
    return np.arange(keys - queries, keys), np.arange(keys)


def shuffled(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions in any order."""
    rng = np.random.default_rng(keys)
    return rng.permutation(queries) * 2, rng.permutation(keys)


def blind(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions where every second query is before all keys."""
    return np.arange(queries) % 2 * keys - 1, np.arange(keys)


def first_is_latest(queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the queries that a block does, the first alone sees the last keys."""
    return np.arange(queries) - 1 + (np.arange(queries) % 4 == 0) * keys, np.arange(keys)


def attention_cases() -> Iterator[Case]:
    for what, shape in ATTENTION.items():
        for step in ("naive", "tiled_f32", "tiled_bf16"):
            for positions in (causal, shuffled, blind):
                yield attention_case(what, step, positions, 1.0, *shape)
    for step in ("naive", "tiled_f32"):
        yield attention_case("of four", step, first_is_latest, 1.0, 1, 4, 64, 1, 1, 16)
    for step in ("naive", "tiled_f32"):  # scores up to hundreds: exp without the largest overflows
        yield attention_case("of large scores", step, causal, 8.0, 1, 17, 40, 1, 1, 16)


def attention_case(what, step, positions, scale, *shape) -> Case:
    batch, queries, keys, groups, heads, size = shape
    dtype = BF16 if step.endswith("bf16") else np.dtype(np.float32)
    row, kv = (batch, queries, groups, heads), (batch, keys, groups, size)
    if step == "naive":
        grid, block = (over(batch * queries * groups * heads, 50),), (50,)
    else:
        grid, block = (over(queries * heads, 16), groups, max(1, batch)), (128,)
    return Case(
        f"attention_{step} {what}, {positions.__name__}",
        "attention.cu",
        f"attention_{step}",
        grid,
        block,
        lambda: [
            numbers(*row, size, dtype=dtype, scale=scale),
            numbers(*kv, seed=1, dtype=dtype, scale=scale), numbers(*kv, seed=2, dtype=dtype),
            *positions(queries, keys), unset(*row, size, dtype=dtype), unset(*row), *shape,
        ],
        attention_reference,
    )  # fmt: skip
