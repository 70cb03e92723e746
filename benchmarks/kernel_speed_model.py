"""What a model is made of, for `kernel_speed`: norm, loss, SwiGLU, positions, dropout, attention.

Each is given some n elements and takes as many whole rows as fit. Attention does work that grows
with the square of its length, so its bandwidth says little: look at its times.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_speed import Make, Operation, Place, by_arrays, kernel

from minidist import ops

WIDTH, VOCABULARY, HEADS, SIZE, LONGEST = 1024, 4096, 8, 64, 2048

Ways = dict[str, Callable[[], object]]


def ramp(place: Place, *shape: int) -> Any:
    """Return numbers from -3 to 3 that any library works out alike."""
    count = int(np.prod(shape))
    return ((place.xp.arange(count) % 7) - 3).astype(np.float32).reshape(shape)


def norm_f32(place: Place, n: int) -> Operation:
    """RMSNorm of rows of 1,024: read once, written once; the weight stays in the cache."""
    xp, blocks, width = place.xp, place.blocks, min(n, WIDTH)
    count = max(1, n // width)
    x = (xp.arange(count * width) % 7 + 1).astype(np.float32).reshape(count, width)
    weight, y = xp.full(width, 2.0, np.float32), xp.zeros_like(x)
    args = (x, weight, y, xp.zeros(count, np.float32), 1e-5, count, width)

    def array_code() -> None:
        y[...] = ops.rms_norm(x, weight, 1e-5)[0]

    ways: dict[str, Callable[[], object]] = {
        name: kernel("rms_norm.cu", name, min(count, blocks), *args)
        for name in ("rms_norm_row_per_block", "rms_norm_row_per_warp")
    }
    ways[f"{xp.__name__}, minidist.ops"] = by_arrays(array_code)
    if torch := place.torch():
        rows, gain = (torch.as_tensor(array, device="cuda") for array in (x, weight))
        norm = torch.nn.functional.rms_norm
        ways["torch"] = lambda: norm(rows, (width,), gain, 1e-5)  # a new array, not compared
    return Operation("float", 8 * count * width, ways, y, 1e-5)


def swiglu(place: Place, n: int) -> Operation:
    xp, blocks = place.xp, place.blocks
    gate, up, h, silu = ramp(place, n), ramp(place, n), xp.zeros(n, np.float32), ramp(place, n)
    first = kernel("swiglu.cu", "silu_f32", blocks, gate, silu, n)
    second = kernel("swiglu.cu", "multiply_f32", blocks, silu, up, h, n)

    def array_code() -> None:
        h[...] = ops.swiglu(gate, up)

    ways: Ways = {
        "silu_f32, multiply_f32": lambda: (first(), second()),
        "swiglu_one_f32": kernel("swiglu.cu", "swiglu_one_f32", blocks, gate, up, h, n),
        "swiglu_four_f32": kernel("swiglu.cu", "swiglu_four_f32", blocks, gate, up, h, n),
        f"{xp.__name__}, minidist.ops": by_arrays(array_code),
    }
    if torch := place.torch():
        g, u, out = (torch.as_tensor(array, device="cuda") for array in (gate, up, h))
        ways["torch"] = lambda: torch.mul(torch.nn.functional.silu(g), u, out=out)
    return Operation("float", 12 * n, ways, h, 1e-5)


def swiglu_backward(place: Place, n: int) -> Operation:
    xp, blocks = place.xp, place.blocks
    dh, gate, up = (ramp(place, n) for _ in range(3))
    dgate, dup = xp.zeros(n, np.float32), xp.zeros(n, np.float32)
    args = (dh, gate, up, dgate, dup, n)

    def array_code() -> None:
        dgate[...] = ops.swiglu_backward(dh, gate, up)[0]

    ways: Ways = {
        name: kernel("swiglu.cu", name, blocks, *args)
        for name in ("swiglu_backward_one_f32", "swiglu_backward_four_f32")
    }
    ways[f"{xp.__name__}, minidist.ops"] = by_arrays(array_code)
    return Operation("float", 20 * n, ways, dgate, 1e-5)


def cross_entropy(place: Place, n: int) -> Operation:
    """The losses of the rows, and the probabilities, which the backward pass needs."""
    xp, vocabulary = place.xp, min(n, VOCABULARY)
    rows = max(1, n // vocabulary)
    logits, labels = ramp(place, rows, vocabulary), xp.arange(rows) % vocabulary
    losses, p = xp.zeros(rows, np.float32), xp.zeros_like(logits)
    args = (logits, labels.astype(np.int64), losses, p, rows, vocabulary)

    def array_code() -> None:
        p[...] = ops.cross_entropy(logits, labels)[1]

    grids = {"row_per_thread": -(-rows // 256), "three_readings": rows, "online": rows}
    ways: Ways = {
        f"cross_entropy_{step}": kernel("cross_entropy.cu", f"cross_entropy_{step}", grid, *args)
        for step, grid in grids.items()
    }
    ways[f"{xp.__name__}, minidist.ops"] = by_arrays(array_code)
    return Operation("float", 8 * rows * vocabulary, ways, p, 1e-4)


def rope(place: Place, n: int) -> Operation:
    xp, blocks, length = place.xp, place.blocks, max(1, n // (HEADS * SIZE))
    x, positions = ramp(place, length, HEADS, SIZE), xp.arange(length)
    y, (cosines, sines) = xp.zeros_like(x), ops.rope_angles(positions, SIZE, 1e4, np.float32)
    tables = (x, cosines, sines, y, 1.0, x.size, length, HEADS, SIZE)
    spot = (x, positions.astype(np.int64), y, 1e4, 1.0, 1, length, HEADS, SIZE)

    def array_code() -> None:
        y[...] = ops.rope(x, cosines, sines)

    ways: Ways = {
        "rope_thread_per_element": kernel("rope.cu", "rope_thread_per_element", blocks, *tables),
        "rope_thread_per_pair": kernel("rope.cu", "rope_thread_per_pair", blocks, *tables),
        "rope_from_positions": kernel("rope.cu", "rope_from_positions", blocks, *spot),
        f"{xp.__name__}, minidist.ops": by_arrays(array_code),
    }
    # A product may be rounded before it is added, or not; where two cancel, that is what is left.
    return Operation("float", 8 * x.size, ways, y, 1e-2)


def dropout(place: Place, n: int) -> Operation:
    xp, blocks, width = place.xp, place.blocks, min(n, WIDTH)
    rows = max(1, n // width)
    x, y = ramp(place, 1, rows, width), xp.zeros((1, rows, width), np.float32)
    samples, positions = xp.arange(1), xp.arange(rows)
    word = int(ops.random.bits(7, 3, "drop"))
    rate, scale = 0.25, 1 / ops.random.kept(0.25)
    keys = (word, samples.astype(np.int64), positions.astype(np.int64))
    args = (x, y, *keys, ops.random.threshold(rate), scale, 1, rows, width)

    def array_code() -> None:
        y[...] = ops.dropout(x, rate, (7, 3, "drop"), samples, positions)[0]

    ways: Ways = {
        f"dropout_{step}": kernel("dropout.cu", f"dropout_{step}", blocks, *args)
        for step in ("thread_per_channel", "thread_per_four", "block_per_row")
    }
    ways[f"{xp.__name__}, minidist.ops"] = by_arrays(array_code)
    return Operation("float", 8 * x.size, ways, y, 1e-6)


def attention(place: Place, n: int) -> Operation:
    xp, length = place.xp, min(max(1, n // (HEADS * SIZE)), LONGEST)
    batch = max(1, n // (HEADS * SIZE * length))
    q = ramp(place, batch, length, HEADS, 1, SIZE) / 8
    k, v = ramp(place, batch, length, HEADS, SIZE), ramp(place, batch, length, HEADS, SIZE)
    o, lse, places = xp.zeros_like(q), xp.zeros(q.shape[:-1], np.float32), xp.arange(length)
    args = (q, k, v, places.astype(np.int64), places.astype(np.int64), o, lse)
    args = (*args, batch, length, length, HEADS, 1, SIZE)
    tiles = (-(-length // 16), HEADS, batch)

    def array_code() -> None:
        o[...] = ops.attention(q, k, v, places, places)[0]

    ways: Ways = {
        "attention_tiled_f32": kernel(
            "attention.cu", "attention_tiled_f32", tiles, *args, block=128
        ),
        "attention_naive": kernel("attention.cu", "attention_naive", -(-lse.size // 256), *args),
        f"{xp.__name__}, minidist.ops": by_arrays(array_code),
    }
    return Operation("float", 16 * q.size, ways, o, 1e-2)


def pack(place: Place, n: int) -> Operation:
    """Sixteen tensors into one bucket: a launch each, a search per element, a map of the blocks."""
    xp, blocks, count, chunk = place.xp, place.blocks, 16, 1 << 14
    each = max(1, n // count)
    tensors, flat = [ramp(place, each) for _ in range(count)], xp.zeros(count * each, np.float32)
    offsets = xp.arange(count + 1, dtype=np.int64) * each
    begins = xp.arange(0, each, chunk, dtype=np.int64)
    tensor_of = xp.repeat(xp.arange(count), begins.size).astype(np.int32)
    begin_of = xp.tile(begins, count)
    one_by_one = [
        kernel("pack.cu", "convert_f32_f32", blocks, flat[i * each : (i + 1) * each], t, 1.0, each)
        for i, t in enumerate(tensors)
    ]
    table = (flat, tensors, offsets)
    by_map = (*table, tensor_of, begin_of, chunk, 1.0)
    ways: Ways = {
        "convert_f32_f32, 16 launches": lambda: [launch() for launch in one_by_one],
        "pack_search_f32": kernel("pack.cu", "pack_search_f32", blocks, *table, count, 1.0),
        "pack_blocks_f32": kernel("pack.cu", "pack_blocks_f32", int(tensor_of.size), *by_map),
        f"{xp.__name__}.concatenate": lambda: xp.concatenate(tensors, out=flat),
    }
    return Operation("float", 8 * flat.size, ways, flat, 0.0)


OF_A_MODEL: dict[str, Make] = {
    "RMSNorm, float32": norm_f32,
    "cross-entropy, float32": cross_entropy,
    "SwiGLU, float32": swiglu,
    "SwiGLU backward, float32": swiglu_backward,
    "rotary positions, float32": rope,
    "dropout, float32": dropout,
    "attention, float32": attention,
    "packing, float32": pack,
}
