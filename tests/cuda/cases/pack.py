"""Cases of pack.cu: no tensor, one, many, some of them empty, aligned and not."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tests.cuda.cases.views import TYPES, Results, draw, single, unset, view
from tests.cuda.kernel_cases import Case, Want


def convert(to: Any, source: Any, scale: float, n: int) -> Results:
    """A product and a rounding to the type, both the same everywhere."""
    return {0: Want((single(source) * np.float32(scale)).astype(to.dtype))}


def pack(flat: Any, tensors: list, *rest: Any) -> Results:
    """The tensors one behind the other."""
    joined = np.concatenate([single(x).reshape(-1) for x in tensors] or [np.zeros(0)])
    return {0: Want((single(joined) * np.float32(rest[-1])).astype(flat.dtype))}


def unpack(flat: Any, tensors: list, offsets: Any, *rest: Any) -> Results:
    """Pieces of the flat buffer."""
    scaled = single(flat) * np.float32(rest[-1])
    pieces = [scaled[a:b] for a, b in pairwise(offsets)]
    return {
        (1, j): Want(piece.reshape(x.shape).astype(x.dtype))
        for j, (piece, x) in enumerate(zip(pieces, tensors, strict=True))
    }


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


def pack_cases() -> Iterator[Case]:
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

            yield Case(name, "pack.cu", kernel, (2,), (32,), arguments, convert)
    for way in ("search", "blocks"):
        for kind in ("f32", "bf16"):
            for what, reference in (("pack", pack), ("unpack", unpack)):
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
