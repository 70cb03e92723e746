"""How near do the kernels come to the memory bandwidth of a device? The GPU part of `kernels`.

A kernel that does little per element can be no faster than its bytes move. So the measure is

    algbw     bytes that must move / time
    of copy   that, with the device's own copy of memory as 1, from the rounds of samples

timed in turn with the copy, CuPy's own operation and, where it is installed, PyTorch's. A sample is
several launches and one wait, so that the wait does not count. Arrays below some ten MiB stay in
the cache of a big GPU, which is faster than its memory: then "of copy" says less.

Another operation is another function in `OF_TRAINING` here or `OF_A_MODEL` beside; it returns what
its ways are and how many bytes they move. The same lines run on NumPy arrays, emulated: that is how
they are tested.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from table import fit
from timing import Times, Variant, rounds, speed, summary

from minidist import cuda, ops
from minidist.arrays import to_host

BLOCK = 256


class Place(NamedTuple):
    """Where it runs: the array library, how to wait for it, and the blocks that fill it."""

    xp: Any
    synchronise: Callable[[], object]
    blocks: int

    def bfloat16(self, n: int) -> Any:
        """Return the bits of n numbers from 1 to 2: CuPy has no such type."""
        return (self.xp.arange(n) % 128 + 0x3F80).astype(np.uint16)

    def torch(self) -> Any:
        """Return PyTorch if it can use the same device, else None."""
        if self.xp is np:
            return None
        try:
            torch = import_module("torch")
            return torch if torch.cuda.is_available() else None
        except Exception:  # whatever is wrong with it, it is not measured
            return None


class Operation(NamedTuple):
    """Ways to do one thing, the bytes it moves, and the result: an array, and its tolerance."""

    type: str
    nbytes: int
    ways: Mapping[str, Callable[[], object]]
    result: Any
    tolerance: float


@dataclass
class Row:
    """What one way does at one size."""

    operation: str
    way: str
    type: str
    size: int
    count: int
    times: Times
    algbw: float
    of_copy: Times
    wrong: int


def kernel(
    file: str, name: str, grid: int | tuple[int, ...], *args: Any, block: int = BLOCK
) -> Callable[[], None]:
    """Return a launch; what is found out once (a compiler, a signature) is not part of it."""
    function = cuda.load(file).get_function(name)
    return lambda: function(grid, (block,), args)


def by_arrays(call: Callable[[], object]) -> Callable[[], object]:
    """Return a call of `ops` that is done by array code, where a device would take a kernel."""

    def without_kernels() -> object:
        os.environ["MINIDIST_KERNELS"] = "0"
        try:
            return call()
        finally:
            del os.environ["MINIDIST_KERNELS"]

    return without_kernels


# --- what is measured -----------------------------------------------------------------------------


def add_f32(place: Place, n: int) -> Operation:
    xp, each = place.xp, -(-n // BLOCK)
    a, b, out = xp.arange(n, dtype=np.float32), xp.ones(n, np.float32), xp.zeros(n, np.float32)
    ways: dict[str, Callable[[], object]] = {
        "add_f32": kernel("elementwise.cu", "add_f32", each, out, a, b, n),
        "add_f32_stride": kernel("elementwise.cu", "add_f32_stride", place.blocks, out, a, b, n),
        "add_f32_vec": kernel("elementwise.cu", "add_f32_vec", place.blocks, out, a, b, n),
        xp.__name__: lambda: xp.add(a, b, out=out),
    }
    if torch := place.torch():
        x, y, z = (torch.as_tensor(array, device="cuda") for array in (a, b, out))
        ways["torch"] = lambda: torch.add(x, y, out=z)
    return Operation("float", 12 * n, ways, out, 0.0)


def add_bf16(place: Place, n: int) -> Operation:
    each = -(-n // BLOCK)
    a, b, out = place.bfloat16(n), place.bfloat16(n), place.bfloat16(n)
    pairs = kernel("elementwise.cu", "add_bf16_pairs", place.blocks, out, a, b, n)
    ways: dict[str, Callable[[], object]] = {
        "add_bf16": kernel("elementwise.cu", "add_bf16", each, out, a, b, n),
        "add_bf16_pairs": pairs,
    }
    if torch := place.torch():
        x, y, z = (
            torch.as_tensor(array.view(np.int16), device="cuda").view(torch.bfloat16)
            for array in (a, b, out)
        )
        ways["torch"] = lambda: torch.add(x, y, out=z)
    return Operation("bfloat16", 6 * n, ways, out, 0.0)


def sum_f32(place: Place, n: int) -> Operation:
    xp = place.xp
    x, out = (xp.arange(n) % 7).astype(np.float32), xp.zeros(1, np.float32)
    parts, arrived = xp.zeros(place.blocks, np.float32), xp.zeros(1, np.uint32)
    last = (out, parts, arrived, x, n)
    ways: dict[str, Callable[[], object]] = {
        "sum_last_block": kernel("reduce.cu", "sum_last_block", place.blocks, *last),
        xp.__name__: lambda: xp.sum(x, keepdims=True, out=out),
    }
    if torch := place.torch():
        y, z = (torch.as_tensor(array, device="cuda") for array in (x, out))
        ways["torch"] = lambda: torch.sum(y, 0, keepdim=True, out=z)
    return Operation("float", 4 * n, ways, out, 1e-5)


def adamw_f32(place: Place, n: int) -> Operation:
    """Each way starts from where the last one ended: the size of a step changes nothing here."""
    xp, blocks = place.xp, place.blocks
    x, g, m, v = (xp.full(n, value, np.float32) for value in (1.0, 0.5, 0.5, 0.25))
    lr, beta1, beta2, eps, decay, t = 0.0, 0.9, 0.95, 1e-8, 0.1, 1000
    scalars = [1 - lr * decay, 1 - beta1, 1 - beta2, (1 - beta2**t) ** -0.5, eps, lr]
    args = (x, g, m, v, None, *scalars, n)
    ways: dict[str, Callable[[], object]] = {
        "adamw_f32": kernel("adamw.cu", "adamw_f32", blocks, *args),
        "adamw_f32_vec": kernel("adamw.cu", "adamw_f32_vec", blocks, *args),
        f"{xp.__name__}, minidist.ops": by_arrays(
            lambda: ops.adamw(x, g, m, v, lr, 0.9, 0.95, eps, decay, t)
        ),
    }
    if torch := place.torch():
        p = torch.nn.Parameter(torch.ones(n, device="cuda"))
        p.grad = torch.full_like(p, 0.5)
        optimizer = torch.optim.AdamW([p], lr=lr, betas=(0.9, 0.95), fused=True)
        ways["torch, fused"] = optimizer.step
    return Operation("float", 28 * n, ways, x, 1e-5)


def adamw_bf16(place: Place, n: int) -> Operation:
    xp = place.xp
    x, g = place.bfloat16(n), place.bfloat16(n)
    master, m, v = (xp.full(n, value, np.float32) for value in (1.0, 0.5, 0.25))
    args = (x, master, g, m, v, None, 1.0, 0.1, 0.05, 1.0, 1e-8, 0.0, n)
    ways = {
        "adamw_bf16": kernel("adamw.cu", "adamw_bf16", place.blocks, *args),
        "adamw_bf16_vec": kernel("adamw.cu", "adamw_bf16_vec", place.blocks, *args),
    }
    return Operation("bfloat16", 28 * n, ways, x, 0.0)


Make: TypeAlias = Callable[[Place, int], Operation]

OF_TRAINING: dict[str, Make] = {
    "add, float32": add_f32,
    "add, bfloat16": add_bf16,
    "sum, float32": sum_f32,
    "AdamW, float32": adamw_f32,
    "AdamW, bfloat16": adamw_bf16,
}


# --- how ------------------------------------------------------------------------------------------


def measure(
    place: Place,
    name: str,
    make: Make,
    n: int,
    samples: int,
    launches: int,
    say: Callable[[str], None],
) -> Iterator[Row]:
    """Time the ways of an operation on n elements; a way that cannot run is said and left out."""
    operation = make(place, n)
    source, target = (place.xp.zeros(max(1, operation.nbytes // 2), np.uint8) for _ in range(2))
    ways = {"copy": lambda: place.xp.copyto(target, source)}
    wrong, first = {"copy": 0}, None
    for way, call in operation.ways.items():
        try:
            call()
            place.synchronise()
        except Exception as error:
            say(f"# {name}, {way}: not measured: {type(error).__name__}: {error}")
            continue
        result = to_host(operation.result).copy()
        first = result if first is None else first
        wrong[way] = differing(result, first, operation.tolerance)
        ways[way] = call

    def sample(call: Callable[[], object]) -> Variant:
        def several() -> None:
            for _ in range(launches):
                call()
            place.synchronise()

        return Variant(place.synchronise, several)

    variants = {way: sample(call) for way, call in ways.items()}
    taken = rounds(variants, samples, 1, place.synchronise, list)
    for way, seconds in taken.items():
        each = [s / launches for s in seconds]
        times = summary(each)
        # As many bytes as the operation moves, so that times compare as bandwidths do.
        of_copy = speed(each, [s / launches for s in taken["copy"]])
        algbw = operation.nbytes / times.median / 1e9
        row = (operation.type, operation.nbytes, n, times, algbw, of_copy, wrong[way])
        yield Row(name, way, *row)


def differing(got: np.ndarray, want: np.ndarray, tolerance: float) -> int:
    """Return how many elements differ by more than a share of the value."""
    off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return int(np.count_nonzero(~(off <= tolerance * np.abs(want.astype(np.float64)))))


HEADER = f"""\
# {"size":>11} {"count":>12} {"type":>9} {"time":>9} {"algbw":>8} {"#wrong":>7} {"of copy":>8}
# {"(B)":>11} {"(elements)":>12} {"":>9} {"(us)":>9} {"(GB/s)":>8} {"":>7} {"":>8}\
  low-high       way"""


def line(row: Row) -> str:
    low, high = row.of_copy.low, row.of_copy.high
    return (
        f"{row.size:13} {row.count:12} {row.type:>9} {fit(row.times.median * 1e6, 9):>9}"
        f" {fit(row.algbw, 8):>8} {row.wrong:7} {row.of_copy.median:8.2f}"
        f"  {f'{low:.2f}-{high:.2f}':<13}  {row.way}"
    )
