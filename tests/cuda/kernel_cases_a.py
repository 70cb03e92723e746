"""Cases of elementwise.cu, pack.cu and adamw.cu.

Lengths are 0, below a block, odd, and more than the grid has threads. ``start`` says how many
elements behind the begin of its memory an array begins: 1 makes it unaligned for float4 and for
pairs, and the arrays of one case differ in it.
"""

import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda import references as ref
from tests.cuda.kernel_cases import Case

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}
MARGIN = 3  # elements behind each array that must stay as they are


def view(values: Any, dtype: Any, start: int = 0) -> np.ndarray:
    """Return values as a part of a longer array, which begins ``start`` elements before them."""
    values = np.asarray(values)
    owner = np.full(start + values.size + MARGIN, 77).astype(dtype)
    owner[start : start + values.size] = values.astype(dtype).reshape(-1)
    return owner[start : start + values.size].reshape(values.shape)


def unset(n: int, dtype: Any, start: int = 0) -> np.ndarray:
    """Return an array for results, as a part of a longer one: what is not written stays NaN."""
    return view(np.full(n, np.nan), dtype, start)


def draw(name: str) -> np.random.Generator:
    """Return random numbers that depend on the name of a case alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def blocks(n: int, block: int) -> tuple[int]:
    """Return a grid with a thread for each element; CUDA refuses a grid of 0 blocks."""
    return (max(1, -(-n // block)),)


# --- elementwise.cu -------------------------------------------------------------------------------

LAYOUTS = {  # length, where out, a, b begin; None: out is a or b
    "0": (0, (0, 0, 0)),
    "1": (1, (0, 0, 0)),
    "301": (301, (0, 0, 0)),
    "302, unaligned": (302, (1, 2, 3)),
    "303, only b unaligned": (303, (0, 0, 1)),
    "300, out is a": (300, (None, 0, 0)),
    "299, out is b, unaligned": (299, (0, None, 1)),
}


def operands(
    name: str, dtype: Any, n: int, starts: tuple[int | None, ...], alpha: float | None
) -> Callable[[], list[Any]]:
    def arguments() -> list[Any]:
        rng = draw(name)
        a, b = (rng.standard_normal(n) for _ in range(2))
        if alpha is None and n > 9:  # what overflows float16, what is not finite
            a[:6], b[:6] = (6e4, np.nan, 1, np.inf, -0.0, np.inf), (6e4, 1, np.nan, 1, 0.0, -np.inf)
        first = view(a, dtype, starts[1] or 0)
        second = view(b, dtype, starts[2] or 0)
        out = unset(n, dtype, starts[0] or 0)
        if starts[0] is None:
            out = first
        elif starts[1] is None:
            out = second
        return [out, first, second, *([] if alpha is None else [alpha]), n]

    return arguments


def elementwise() -> Iterator[Case]:
    operations = {"add": ref.add, "add_scaled": ref.add_scaled, "max": ref.largest_of_two}
    for what, reference in operations.items():
        for kind, dtype in TYPES.items():
            steps = ("", "_stride", "_vec") if kind == "f32" else ("", "_pairs")
            for step in steps:
                kernel = f"{what}_{kind}{step}"
                for layout, (n, starts) in LAYOUTS.items():
                    name = f"{kernel}, {layout}"
                    alpha = 0.3 if what == "add_scaled" else None
                    arguments = operands(name, dtype, n, starts, alpha)
                    grid = (2,) if step else blocks(n, 32)
                    yield Case(name, "elementwise.cu", kernel, grid, (32,), arguments, reference)


# --- pack.cu --------------------------------------------------------------------------------------

SIZES = {"none": (), "one": (5,), "many": (3, 1, 0, 4, 70, 0, 33, 1), "empty ones": (0, 0, 2, 0)}
CHUNK = 16


def block_map(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the tensor of each block, and the element of it that the block begins with."""
    found = [(t, begin) for t, size in enumerate(sizes) for begin in range(0, size, CHUNK)]
    tensors, begins = zip(*found, strict=True) if found else ((), ())
    return np.array(tensors, np.int32), np.array(begins, np.int64)


def bucket(
    name: str, flat_type: Any, sizes: tuple[int, ...], start: int, mapped: bool
) -> Callable[[], list[Any]]:
    def arguments() -> list[Any]:
        rng = draw(name)
        tensors = [view(rng.standard_normal(n), np.float32, start * t) for t, n in enumerate(sizes)]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        flat = view(rng.standard_normal(offsets[-1]), flat_type, start)
        where = [*block_map(sizes), CHUNK] if mapped else [len(sizes)]
        return [flat, tensors, offsets, *where, 1 / 3]

    return arguments


def pack() -> Iterator[Case]:
    for kernel, to, source in (
        ("convert_f32_f32", np.float32, np.float32),
        ("convert_f32_bf16", bfloat16, np.float32),
        ("convert_bf16_f32", np.float32, bfloat16),
    ):
        for n, start in ((0, 0), (5, 0), (200, 1)):
            name = f"{kernel}, {n}"

            def arguments(n=n, start=start, to=to, source=source, name=name) -> list[Any]:
                values = draw(name).standard_normal(n)
                return [unset(n, to, start), view(values, source, 2 * start), 1 / 3, n]

            yield Case(name, "pack.cu", kernel, (2,), (32,), arguments, ref.convert)
    for way in ("search", "blocks"):
        for kind in ("f32", "bf16"):
            for what, reference in (("pack", ref.pack), ("unpack", ref.unpack)):
                for (label, sizes), start in ((x, s) for x in SIZES.items() for s in (0, 1)):
                    kernel = f"{what}_{way}_{kind}"
                    name = f"{kernel}, {label}{', unaligned' * start}"
                    grid = (2,)
                    if way == "blocks":
                        grid = (len(block_map(sizes)[0]),)
                        if grid == (0,):
                            continue  # nothing to launch
                    arguments = bucket(name, TYPES[kind], sizes, start, way == "blocks")
                    yield Case(name, "pack.cu", kernel, grid, (8,), arguments, reference)


# --- adamw.cu -------------------------------------------------------------------------------------


def scalars(t: int, decay: float = 0.1) -> list[float]:
    """Return keep, rate_m, rate_v, root, eps, step of update t."""
    lr, beta1, beta2 = 0.01, 0.9, 0.95
    root = 1.0 / math.sqrt(1.0 - beta2**t)
    return [1.0 - lr * decay, 1.0 - beta1, 1.0 - beta2, root, 1e-8, lr / (1.0 - beta1**t)]


def state(
    name: str, n: int, starts: tuple[int, ...], flag: int | None, t: int, half: bool
) -> Callable[[], list[Any]]:
    def arguments() -> list[Any]:
        rng = draw(name)
        values = rng.standard_normal((3, n)) * [[1.0], [0.1], [0.1]]
        x, g, m = (view(*xs) for xs in zip(values, [np.float32] * 3, starts, strict=False))
        v = view(rng.standard_normal(n) ** 2 * 0.01, np.float32, starts[3])
        if t == 1:
            m[:], v[:] = 0, 0
        g[:2] = 0  # where m and v stay 0, the step must not be 0 / 0
        there = None if flag is None else np.array([flag], np.uint32)
        if half:
            tail = [view(g, bfloat16, starts[1]), m, v, there, *scalars(t), n]
            return [view(x, bfloat16, starts[4]), x, *tail]
        return [x, g, m, v, there, *scalars(t), n]

    return arguments


def adamw() -> Iterator[Case]:
    layouts = {
        "0": (0, (0, 0, 0, 0, 0), 0, 1),
        "7": (7, (0, 0, 0, 0, 0), None, 1),
        "301": (301, (0, 0, 0, 0, 0), 0, 100),
        "302, unaligned": (302, (1, 2, 3, 1, 1), 0, 2),
        "303, m unaligned": (303, (0, 0, 1, 0, 0), None, 3),
        "300, skipped": (300, (0, 0, 0, 0, 0), 1, 5),
    }
    for kind, reference in (("f32", ref.adamw), ("bf16", ref.adamw_bf16)):
        for step in ("", "_vec"):
            for layout, what in layouts.items():
                kernel = f"adamw_{kind}{step}"
                name = f"{kernel}, {layout}"
                arguments = state(name, *what, kind == "bf16")
                yield Case(name, "adamw.cu", kernel, (2,), (32,), arguments, reference)


CASES = [*elementwise(), *pack(), *adamw()]
