"""Lesson 04: what a kernel moves, what its arithmetic costs, and what a missing barrier does.

    python lessons/04_cuda_reduce/demo.py                           in the emulator: counted
    ./run launch -n 4 -- python lessons/04_cuda_reduce/demo.py      4 ranks, each sums by kernel

Bytes are counted, not timed, so the numbers are the same on every machine. With a GPU (and CuPy)
the demo also measures bandwidth there. `--figure FILE` draws bytes against operations.
"""

import argparse
from importlib import import_module
from pathlib import Path

import numpy as np

from minidist import cuda
from minidist.bounds import share
from minidist.collectives import ring
from minidist.comm import world
from minidist.comm.detect import launched
from minidist.comm.staging import Staged
from minidist.learn import demos
from minidist.testing.late_device import LateDevice
from minidist.view import charts

HERE = Path(__file__).parent
N = 1000
OPERATIONS = (1, 2, 4, 8, 16)  # per element: one addition, and multiplications
GRID, BLOCK = 4, 64
FLOPS, BANDWIDTH = 67e12, 3.35e12  # of an H100 SXM by its data sheet: float32 a second, bytes/s
ON_GPU = 1 << 26  # elements: 256 MiB an array


def kernel(name, **defines):
    return cuda.load(HERE / "demo.cu", defines=defines).get_function(name)


def run_fused(operations, out, a, b, grid=GRID, block=BLOCK):
    """All operations in one kernel."""
    kernel("fused")(grid, block, (out, a, b, operations - 1, out.size))


def run_apart(operations, out, a, b, grid=GRID, block=BLOCK):
    """One kernel for each operation."""
    kernel("fused")(grid, block, (out, a, b, 0, out.size))
    for _ in range(operations - 1):
        kernel("scale")(grid, block, (out, out.size))


def bytes_per_element(way, operations):
    """Counted by the emulator, on N elements."""
    out, a, b = (np.ones(N, np.float32) for _ in range(3))
    with cuda.watch() as seen:
        way(operations, out, a, b)
    assert np.all(out == 2.0 * 0.5 ** (operations - 1))
    return seen.moved() / N


def show_bytes():
    print(f"{N} elements: bytes that go to and from memory, for each element\n")
    print(f"{'operations':>12}{'one kernel':>14}{'a kernel for each':>20}")
    for operations in OPERATIONS:
        fused, apart = (bytes_per_element(way, operations) for way in (run_fused, run_apart))
        print(f"{operations:12}{fused:14.1f}{apart:20.1f}")
    free = FLOPS / (BANDWIDTH / 12)
    print(
        f"\nA GPU with {BANDWIDTH / 1e12:g} TB/s and {FLOPS / 1e12:g} TFLOP/s moves 12 bytes in the"
        f"\ntime of {free:.0f} operations. An addition is one of them, and {free - 1:.0f} are free."
    )


ORDERS = 400


def show_race(threads=8):
    """The sum of 0, 1, ... in many orders of the threads: which are right, and which are found."""
    x = np.arange(threads, dtype=np.float32)
    print(
        f"\none block of {threads} threads adds up 0 to {threads - 1}, which makes {x.sum():g}, "
        f"in {ORDERS} orders of its threads\n"
    )
    print(f"{'':16}{'the first sums':16}{'sum is right':>14}{'race is found':>15}")
    for words, defines in (("all barriers", {}), ("one is missing", {"FORGOTTEN": 1})):
        add, sums, races = kernel("sum", **defines), [], []
        for seed in range(ORDERS):
            out = np.full(1, np.nan, np.float32)
            with cuda.settings(order="random", seed=seed), cuda.watch() as seen:
                add(1, threads, (out, x, threads), shared_mem=4 * threads)
            sums.append(out[0])
            races += seen.races()
        first, right = " ".join(f"{s:g}" for s in sums[:4]), sums.count(x.sum())
        print(f"{words:16}{first:16}{right:14}{len(races):15}")
    if races:
        print(f"\n{races[0]}")


def show_stream():
    """What is sent if nobody waits for the kernel that fills it."""
    print("\na kernel fills x with 7, and x is sent at once\n")
    for words, waits in (("without a wait", False), ("with a wait", True)):
        device, x = LateDevice(), np.zeros(1)
        if not waits:
            device.synchronise = lambda: None
        device.launch(lambda x=x: x.fill(7))
        sent = Staged(device).outgoing(x).view(float)[0]
        print(f"   {words:16}{sent:g} is sent")


def show_gpu():
    """Bandwidth on a GPU, if there is one. This was written without one: it has not been run."""
    works, why = cuda.gpu_available()
    if not works:
        print(f"\nno GPU ({why}): bandwidth is not measured")
        return
    cupy = import_module("cupy")
    out, a, b = (cupy.ones(ON_GPU, cupy.float32) for _ in range(3))
    print(
        f"\n{ON_GPU:,} elements on the GPU, best of 10\n{'operations':>12}{'GB/s of 12 bytes':>20}"
    )
    for operations in OPERATIONS:
        best = min(gpu_seconds(cupy, operations, out, a, b) for _ in range(10))
        print(f"{operations:12}{12 * ON_GPU / best / 1e9:20.0f}")


def gpu_seconds(cupy, operations, out, a, b):
    """One launch between two events of the stream."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    run_fused(operations, out, a, b, grid=4096, block=256)
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end) / 1e3


def on_real_ranks(comm):
    """Each rank adds up its share by a kernel, one sum a block; an all-reduce does the rest."""
    start, stop = share(comm, N)
    x, threads = np.arange(start, stop, dtype=np.float32), 256
    parts = np.zeros(max(1, -(-x.size // threads)), np.float32)
    add = cuda.load("reduce.cu").get_function("sum_sequential")
    add(parts.size, threads, (parts, x, x.size), shared_mem=4 * threads)
    total = np.array([parts.sum(dtype=np.float64)])
    ring.all_reduce(comm, total)
    sums = comm.gather_objects((start, stop, parts.tolist()))
    if comm.rank == 0:
        print(f"{demos.counted(comm.size, 'MPI rank')}, {N} numbers, blocks of {threads} threads")
        for rank, (first, last, of_blocks) in enumerate(sums):
            print(f"   rank {rank}  [{first}:{last}]  " + " + ".join(f"{s:g}" for s in of_blocks))
        print(f"   all-reduce  {total[0]:g}, and NumPy says {np.arange(N).sum()}")


def figure():
    """Bytes against operations: flat in one kernel, rising with one for each."""
    counts = {
        name: [bytes_per_element(way, k) for k in OPERATIONS]
        for name, way in (("a kernel for each", run_apart), ("one kernel", run_fused))
    }
    return charts.lines(
        [charts.Series(name, OPERATIONS, values) for name, values in counts.items()],
        x=charts.Axis("operations on each element", log=False),
        y=charts.Axis("bytes to and from memory, for each element", log=False),
        title="Arithmetic is free, memory is not",
        words="In one kernel an element costs 12 bytes, whether there is 1 operation on it or 16. "
        "With a kernel for each operation it costs 12 bytes and 8 more for each further one.",
        marks=[
            charts.Mark(OPERATIONS[-1], values[-1], f"{values[-1]:g} bytes")
            for values in counts.values()
        ],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw bytes as SVG")
    args = parser.parse_args()
    if launched():
        on_real_ranks(world())
        return
    show_bytes()
    show_race()
    show_stream()
    show_gpu()
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
