"""What do the kernels cost, emulated on this CPU, and how fast are they on a GPU?

    python benchmarks/kernels.py               what there is: the CPU, and the GPU if there is one
    python benchmarks/kernels.py --rehearse    the GPU part on this CPU, emulated, tiny sizes

The emulator is for tests and for learning: a barrier costs as much as a switch between threads, and
a load goes through a check. The figures say how large a test may be. What is measured on a GPU
stands in `kernel_speed`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from timing import Times, Variant, from_checkout, restart_with, rounds, summary

if __name__ == "__main__":
    restart_with(from_checkout())

import numpy as np
from kernel_speed import HEADER, OF_TRAINING, Place, Row, line, measure
from kernel_speed_model import OF_A_MODEL
from table import at_least, circumstances, fit, json_file, number, write_json

from minidist import cuda, ops
from minidist.device import gpu

BARRIERS = """
extern "C" __global__ void barriers(int* out, int count) {
    for (int i = 0; i < count; i++) __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = count;
}
"""


@dataclass
class Cost:
    """One figure of the emulator, beside NumPy's for the same where there is such a thing."""

    what: str
    unit: str
    emulated: Times
    numpy: Times | None


# --- the CPU --------------------------------------------------------------------------------------


COMPILING = f"""
import time
import numpy as np
from minidist import cuda
x = np.zeros(1, np.float32)
begin = time.perf_counter()
cuda.load(code={BARRIERS!r}).get_function("barriers")(1, 1, (np.zeros(1, np.int32), 0))
print(time.perf_counter() - begin)
begin = time.perf_counter()
cuda.load("elementwise.cu").get_function("add_f32")(1, 1, (x, x, x, 1))
print(time.perf_counter() - begin)
"""


def compiling() -> Iterator[Cost]:
    """Each once, in a process of its own, whose cache is empty."""
    with tempfile.TemporaryDirectory() as folder:
        command, env = [sys.executable, "-c", COMPILING], {**os.environ, "MINIDIST_CACHE": folder}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"kernels.py: {done.stderr.strip()}")
    whats = ("the emulator and a kernel", "a file: elementwise.cu")
    for what, text in zip(whats, done.stdout.split(), strict=True):
        yield Cost(f"compile {what}", "s", Times(*[float(text)] * 3), None)


def running(n: int, samples: int) -> Iterator[Cost]:
    """The cost of a launch, of a thread, of a barrier, and of whole kernels per element."""
    block, grid = 256, -(-n // 256)
    a, b, out = (np.ones(n, np.float32) for _ in range(3))
    one = [x[:1] for x in (out, a, b)]
    add = cuda.load("elementwise.cu").get_function("add_f32")
    yield beside(
        "launch: add_f32 of 1 element",
        ("us", 1e6),
        lambda: add(1, 1, (*one, 1)),
        lambda: np.add(one[1], one[2], out=one[0]),
        samples,
    )
    yield beside(
        f"thread: add_f32 of {n} elements",
        ("ns", 1e9 / n),
        lambda: add(grid, block, (out, a, b, n)),
        lambda: np.add(a, b, out=out),
        samples,
    )
    yield barrier(block, samples)
    tree = cuda.load("reduce.cu").get_function("sum_sequential")
    parts = np.zeros(grid, np.float32)
    yield beside(
        f"element: sum_sequential of {n}",
        ("ns", 1e9 / n),
        lambda: tree(grid, block, (parts, a, n), shared_mem=4 * block),
        lambda: np.sum(a),
        samples,
    )
    yield optimiser(n, samples)


def barrier(block: int, samples: int) -> Cost:
    """The difference of a kernel with barriers and the same without, per thread and barrier."""
    count, out = 100, np.zeros(1, np.int32)
    kernel = cuda.load(code=BARRIERS).get_function("barriers")
    calls = {k: (lambda k=k: kernel(1, block, (out, k))) for k in (0, count)}
    taken = in_turn(calls, samples)
    pairs = zip(taken[count], taken[0], strict=True)
    each = [(long - short) / (count * block) * 1e9 for long, short in pairs]
    return Cost(f"barrier: per thread, {block} in a block", "ns", summary(each), None)


def optimiser(n: int, samples: int) -> Cost:
    x, g, m, v = (np.full(n, value, np.float32) for value in (1.0, 0.5, 0.5, 0.25))
    args = (x, g, m, v, None, 1.0, 0.1, 0.05, 1.0, 1e-8, 0.0, n)
    kernel = cuda.load("adamw.cu").get_function("adamw_f32")
    return beside(
        f"element: adamw_f32 of {n}",
        ("ns", 1e9 / n),
        lambda: kernel(-(-n // 256), 256, args),
        lambda: ops.adamw(x, g, m, v, 0.0, 0.9, 0.95, 1e-8, 0.1, 1000),
        samples,
    )


def beside(
    what: str,
    unit: tuple[str, float],
    emulated: Callable[[], object],
    numpy: Callable[[], object],
    samples: int,
) -> Cost:
    """Time an emulated kernel and NumPy's way in turn; ``unit``: its name, how many a second."""
    taken = in_turn({"emulated": emulated, "numpy": numpy}, samples)
    ours, theirs = (summary([s * unit[1] for s in taken[key]]) for key in ("emulated", "numpy"))
    return Cost(what, unit[0], ours, theirs)


def in_turn(calls: dict[Any, Callable[[], object]], samples: int) -> dict[Any, list[float]]:
    """Return the seconds of each call in each round. The first round compiles."""
    nothing = lambda: None  # noqa: E731
    variants = {key: Variant(nothing, call) for key, call in calls.items()}
    return rounds(variants, samples, 2, nothing, list)


def cost_line(cost: Cost) -> str:
    numpy = f"{fit(cost.numpy.median, 10):>10} {_range(cost.numpy):>17}" if cost.numpy else ""
    return (
        f"{cost.what:<40} {fit(cost.emulated.median, 10):>10} {_range(cost.emulated):>17}"
        f" {cost.unit:<3} {numpy}"
    ).rstrip()


def _range(times: Times) -> str:
    return f"{fit(times.low, 8)}-{fit(times.high, 8)}"


# --- what there is --------------------------------------------------------------------------------


def find_place(rehearse: bool) -> Place | str:
    """Return where the GPU part runs, or why it does not."""
    if rehearse:
        return Place(np, lambda: None, 3)
    works, reason = gpu()
    if not works:
        return reason
    cupy = import_module("cupy")
    device = cupy.cuda.Device()
    return Place(cupy, device.synchronize, 8 * device.attributes["MultiProcessorCount"])


def on_cpu(args: argparse.Namespace) -> list[Any]:
    works, reason = cuda.emulator_available()
    if not works:
        print(f"# the emulator: {reason}")
        return []
    print(f"# {'emulated':<38} {'median':>10} {'low-high':>17}     {'NumPy':>10} {'low-high':>17}")
    rows: list[Any] = []
    for part in (compiling(), running(args.elements, args.samples)):
        for cost in part:
            print(cost_line(cost), flush=True)
            rows.append(cost)
    return rows


OPERATIONS = {**OF_TRAINING, **OF_A_MODEL}


def on_gpu(args: argparse.Namespace, place: Place) -> list[Row]:
    rows: list[Row] = []
    sizes, launches = (args.sizes, 20) if place.xp is not np else ([1000], 1)
    say: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731
    for name, make in OPERATIONS.items():
        print(f"#\n# {name}\n{HEADER}")
        for n in sizes:
            try:
                for row in measure(place, name, make, n, args.samples, launches, say):
                    say(line(row))
                    rows.append(row)
            except Exception as error:  # no memory, say: the other sizes and operations follow
                say(f"# {name}, {n} elements: not measured: {type(error).__name__}: {error}")
    return rows


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="the GPU part alone, emulated")
    parser.add_argument("--elements", type=number, default=1 << 17, help="for the CPU part")
    parser.add_argument(
        "--sizes", type=number, nargs="+", default=[1 << 20, 1 << 24, 1 << 27], metavar="N",
        help="elements for the GPU part: 1M 16M 128M",
    )  # fmt: skip
    parser.add_argument("-n", "--samples", type=at_least(1), default=9)
    parser.add_argument("--json", type=json_file, metavar="FILE")
    args = parser.parse_args(words)
    place = find_place(args.rehearse)
    rows = [] if args.rehearse else on_cpu(args)
    if isinstance(place, str):
        print(f"# no usable GPU here ({place}); --rehearse runs that part emulated")
    else:
        rows += on_gpu(args, place)
    if args.json:
        write_json(args.json, circumstances(), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
