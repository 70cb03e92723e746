"""The operations by kernels: the same inputs, outputs and saved arrays as the array versions.

                              NumPy arrays          CuPy arrays
    by default                array code            kernels
    MINIDIST_EMULATE=1        kernels, emulated     kernels
    MINIDIST_KERNELS=0        array code            array code

On NumPy arrays plain NumPy is faster than an emulated GPU, so emulation is for finding out whether
the kernels are right: the same calls, the same launches, on a laptop. `chosen` is the only place
that decides; every operation asks it and calls the function of its own name here.

The kernels are float32 (sums of collectives also float16 and bfloat16). Whatever else comes, such
as the float64 of tests, is left to the array code. So are empty arrays, for which there is nothing
to launch.
"""

import functools
import os
from math import prod
from typing import Any

import numpy as np

from minidist import cuda
from minidist.arrays import Array, namespace

THREADS, BLOCKS = 256, 1024
"""Of a launch in which the threads go through the elements in strides: enough to fill a GPU."""

Kernel = cuda.Kernel


def chosen(*arrays: Array, dtypes: tuple[str, ...] = ("float32",), fits: bool = True) -> bool:
    """Return whether an operation on these arrays, of one of these dtypes, is done by a kernel.

    ``fits``: whether the shapes are those that the kernel reads. All else is left to the array
    code, which broadcasts, or refuses.
    """
    first = arrays[0]
    if not fits:
        return False
    if isinstance(first, np.ndarray):
        if os.environ.get("MINIDIST_EMULATE", "0") in ("", "0"):
            return False
    elif type(first).__module__.partition(".")[0] != "cupy":
        return False
    if os.environ.get("MINIDIST_KERNELS") == "0":
        return False
    return first.dtype.name in dtypes and all(x.size and x.dtype == first.dtype for x in arrays)


@functools.cache
def kernel(file: str, name: str) -> Kernel:
    """Return a kernel of kernels/; its file is read and compiled once."""
    return module(file).get_function(name)


@functools.cache
def module(file: str) -> cuda.Module:
    """Return a file of kernels/, read once."""
    return cuda.load(file)


def blocks(n: int, each: int = THREADS, most: int = BLOCKS) -> int:
    """Return how many blocks do ``n`` things, ``each`` a block, going round if ``most`` are few."""
    return min(-(-n // each), most)


def flat(*arrays: Array) -> list[Array]:
    """Return contiguous flat views, or copies where there is no such view."""
    return [namespace(x).ascontiguousarray(x).reshape(x.size) for x in arrays]


def rows(x: Array) -> tuple[int, int]:
    """Return how many rows an array has, and how wide they are."""
    return prod(x.shape[:-1]), x.shape[-1]


# --- norm and loss --------------------------------------------------------------------------------


def rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    """See `ops.rms_norm`: a warp a row, four warps a block."""
    xp, (count, width) = namespace(x), rows(x)
    y, r = xp.empty(x.shape, x.dtype), xp.empty((*x.shape[:-1], 1), x.dtype)
    args = (*flat(x, weight, y, r), eps, count, width)
    kernel("rms_norm.cu", "rms_norm_row_per_warp")((blocks(count, 4),), (128,), args)
    return y, r


def rms_norm_backward(dy: Array, x: Array, weight: Array, r: Array) -> tuple[Array, Array]:
    """See `ops.rms_norm_backward`: dx row by row; dweight in parts, which are then added."""
    xp, (count, width) = namespace(x), rows(x)
    dx, dweight = xp.empty(x.shape, x.dtype), xp.empty(width, x.dtype)
    parts = blocks(count, 32, 64)
    partial = xp.empty((parts, width), x.dtype)
    flat_dy, flat_x, flat_r, flat_partial = flat(dy, x, r, partial)
    args: tuple[Any, ...] = (flat_dy, flat_x, *flat(weight), flat_r, *flat(dx), count, width)
    kernel("rms_norm.cu", "rms_norm_backward_dx")((blocks(count, 1),), (128,), args)
    columns = -(-width // 128)
    args = (flat_dy, flat_x, flat_r, flat_partial, count, width)
    kernel("rms_norm.cu", "rms_norm_backward_partial")((columns, parts), (128,), args)
    args = (flat_partial, dweight, parts, width)
    kernel("rms_norm.cu", "rms_norm_backward_dweight")((columns,), (128,), args)
    return dx, dweight


def cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """See `ops.cross_entropy`: a block a row, then one block for the sum."""
    xp, (count, width) = namespace(logits), rows(logits)
    p, losses = xp.empty(logits.shape, logits.dtype), xp.empty(count, logits.dtype)
    loss = xp.empty(1, logits.dtype)
    flat_logits, flat_labels, flat_p = flat(logits, labels.astype(np.int64), p)
    args = (flat_logits, flat_labels, losses, flat_p, count, width)
    kernel("cross_entropy.cu", "cross_entropy_online")((blocks(count, 1),), (128,), args)
    kernel("cross_entropy.cu", "cross_entropy_total")((1,), (THREADS,), (losses, loss, count))
    return loss.reshape(()), p


def cross_entropy_backward(scale: float, p: Array, labels: Array) -> Array:
    """See `ops.cross_entropy_backward`: a block a row."""
    xp, (count, width) = namespace(p), rows(p)
    d = xp.empty(p.shape, p.dtype)
    flat_p, flat_labels, flat_d = flat(p, labels.astype(np.int64), d)
    args = (scale, flat_p, flat_labels, flat_d, count, width)
    kernel("cross_entropy.cu", "cross_entropy_backward")((blocks(count, 1),), (128,), args)
    return d


# --- elementwise ----------------------------------------------------------------------------------


def swiglu(gate: Array, up: Array) -> Array:
    """See `ops.swiglu`."""
    h = namespace(gate).empty(gate.shape, gate.dtype)
    args = (*flat(gate, up, h), h.size)
    kernel("swiglu.cu", "swiglu_four_f32")((blocks(h.size, 4 * THREADS),), (THREADS,), args)
    return h


def swiglu_backward(dh: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """See `ops.swiglu_backward`."""
    xp = namespace(gate)
    dgate, dup = xp.empty(gate.shape, gate.dtype), xp.empty(gate.shape, gate.dtype)
    args = (*flat(dh, gate, up, dgate, dup), dh.size)
    grid = (blocks(dh.size, 4 * THREADS),)
    kernel("swiglu.cu", "swiglu_backward_four_f32")(grid, (THREADS,), args)
    return dgate, dup


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """See `ops.rope`: a thread a pair."""
    y = namespace(x).empty(x.shape, x.dtype)
    length, heads, size = x.shape[-3:]
    args = (*flat(x, cos, sin, y), 1.0, x.size, length, heads, size)
    kernel("rope.cu", "rope_thread_per_pair")((blocks(x.size // 2),), (THREADS,), args)
    return y


def dropout(
    x: Array, word: int, samples: Array, positions: Array, threshold: int, scale: float
) -> Array:
    """See `ops.dropout`: ``word`` is the bits of seed, step and name; a block a row."""
    y = namespace(x).empty(x.shape, x.dtype)
    batch, length, channels = x.shape
    flat_x, flat_y = flat(x, y)
    keys = flat(samples.astype(np.int64), positions.astype(np.int64))
    args = (flat_x, flat_y, word, *keys, threshold, scale, batch, length, channels)
    kernel("dropout.cu", "dropout_block_per_row")((blocks(batch * length, 1),), (64,), args)
    return y


def adamw(
    data: Array, grad: Array, m: Array, v: Array,
    keep: float, rate_m: float, rate_v: float, root: float, eps: float, step: float,
) -> None:  # fmt: skip
    """See `ops.adamw`, which works out the factors: all in place, all flat."""
    args = (data, grad, m, v, None, keep, rate_m, rate_v, root, eps, step, data.size)
    grid = (blocks(data.size, 4 * THREADS),)
    kernel("adamw.cu", "adamw_f32_vec")(grid, (THREADS,), args)


COMBINE = {"sum": "add", "max": "max"}
DTYPES = {"float32": "f32_vec", "float16": "f16_pairs", "bfloat16": "bf16_pairs"}


def combine(op: str, a: Array, b: Array, out: Array) -> None:
    """See `ops.reduce.combine`: sums and maxima."""
    name = f"{COMBINE[op]}_{DTYPES[out.dtype.name]}"
    each = 4 if out.dtype.itemsize == 4 else 2
    grid = (blocks(out.size, each * THREADS),)
    kernel("elementwise.cu", name)(grid, (THREADS,), (*flat(out, a, b), out.size))


def sum_of_squares(x: Array) -> Array:
    """See `ops.reduce.sum_of_squares`: one launch, whose last block adds the sums of all."""
    xp, count = namespace(x), blocks(x.size, 8 * THREADS, 256)
    out, parts = xp.empty(1, np.float64), xp.empty(count, np.float64)
    args = (out, parts, xp.zeros(1, np.uint32), *flat(x), x.size)
    kernel("reduce.cu", "sum_squares")((count,), (THREADS,), args)
    return out.reshape(())


# --- attention ------------------------------------------------------------------------------------

TILE_ROWS, TILE_THREADS, LARGEST_HEAD = 16, 128, 128
"""Of kernels/attention.cu: queries of a block, its threads, and the head size that its tile has."""

LARGEST_GRID = 65_535
"""Blocks along the second and the third axis of a grid."""


def attention_fits(q: Array, k: Array, v: Array, q_pos: Array, k_pos: Array) -> bool:
    """Return whether these shapes are those that the kernel reads, and within a launch's limits."""
    batch, queries, groups, _, size = q.shape
    keys = k.shape[1:2]
    return bool(
        k.shape == v.shape == (batch, *keys, groups, size)
        and (q_pos.shape, k_pos.shape) == ((queries,), keys)
        and size <= LARGEST_HEAD
        and max(groups, batch) <= LARGEST_GRID
    )


def attention(q: Array, k: Array, v: Array, q_pos: Array, k_pos: Array) -> tuple[Array, Array]:
    """See `ops.attention`: a block for 16 (query, head) pairs of a group."""
    xp = namespace(q)
    batch, queries, groups, heads, size = q.shape
    o, lse = xp.empty(q.shape, q.dtype), xp.empty(q.shape[:-1], q.dtype)
    places = flat(q_pos.astype(np.int64), k_pos.astype(np.int64))
    args = (*flat(q, k, v), *places, *flat(o, lse), batch, queries, k.shape[1], groups, heads, size)
    grid = (-(-queries * heads // TILE_ROWS), groups, batch)
    kernel("attention.cu", "attention_tiled_f32")(grid, (TILE_THREADS,), args)
    return o, lse
