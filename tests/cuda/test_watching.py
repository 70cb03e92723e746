"""A watched launch: races are found in whatever order threads run, and bytes are counted."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from minidist import cuda
from minidist.cuda import watching
from minidist.cuda.races import Access, find_races
from minidist.errors import KernelError, KernelFault
from tests.cuda import kernel_cases_a, kernel_cases_b
from tests.tiers import fast_and_slow

HERE = Path(__file__).parent
ORDERS = ["forward", "reverse", "random"]

pytestmark = pytest.mark.kernel


def floats(n):
    return np.arange(1, n + 1, dtype=np.float32)


def watched(folder, file, grid, block, args, shared=0, **defines):
    kernel = cuda.load(HERE / folder / f"{file}.cu", defines=defines)
    with cuda.watch() as seen:
        kernel.get_function(folder.partition("_")[0])(grid, block, args, shared_mem=shared)
    return seen


# --- races ----------------------------------------------------------------------------------------

WRONG = [
    ("missing_barrier", 64, [floats(64), floats(64)]),
    ("missing_warp_barrier", 32, [floats(64), floats(64)]),
    ("barrier_too_early", 64, [floats(192), floats(64), 3]),
]


@pytest.mark.parametrize(("file", "block", "args"), WRONG)
@pytest.mark.parametrize("order", fast_and_slow(ORDERS, 1))
def test_a_missing_barrier_is_a_race_in_every_order(file, block, args, order):
    with cuda.settings(order=order, seed=3):
        assert watched("wrong_kernels", file, 1, block, args).races()
        assert watched("wrong_kernels", file, 1, block, args, FIXED=1).races() == []


def test_a_race_is_told_with_place_threads_and_lines():
    seen = watched("wrong_kernels", "missing_barrier", 1, 64, [floats(64), floats(64)])
    text = (HERE / "wrong_kernels" / "missing_barrier.cu").read_text("utf-8").splitlines()
    writes = 1 + next(i for i, line in enumerate(text) if "s[t] = x[t]" in line)
    reads = 1 + next(i for i, line in enumerate(text) if "s[t - 1]" in line)
    told = str(seen.races()[0]).splitlines()
    assert told[0] == "a race for byte 0 of static shared memory"
    assert told[1].startswith("  thread 0 of block 0 writes it, at ")
    assert told[1].endswith(f"missing_barrier.cu:{writes}")
    assert told[2].startswith("  thread 1 of block 0 reads it, at ")
    assert told[2].endswith(f"missing_barrier.cu:{reads}")
    assert len(seen.races(5)) == 5


def test_blocks_that_write_one_element_race():
    code = 'extern "C" __global__ void one(float* y) { y[1] = blockIdx.x; }'
    y = np.zeros(2, np.float32)
    with cuda.watch() as seen:
        cuda.load(code=code).get_function("one")(2, 1, (y,))
    (race,) = seen.races(9)
    assert str(race).startswith("a race for element 1 of argument 0 'y'\n")
    assert (race.first.block, race.second.block) == (0, 1)
    assert seen.writer(0, 1) == (1, 0)
    assert seen.writer(0, 0) is None


@pytest.mark.parametrize("operation", ["atomicAdd(y, 1)", "*(volatile int*)y = 7"])
def test_atomic_and_volatile_accesses_do_not_race(operation):
    code = f'extern "C" __global__ void all(int* y) {{ {operation}; }}'
    with cuda.watch() as seen:
        cuda.load(code=code).get_function("all")(2, 40, (np.zeros(1, np.int32),))
    assert seen.races() == []


CASES = [*kernel_cases_a.CASES, *kernel_cases_b.CASES]


@pytest.mark.parametrize("case", fast_and_slow(CASES[::4], 2, 12), ids=lambda case: case.name)
def test_kernels_of_the_project_raise_no_alarm(case):
    kernel = cuda.load(case.file).get_function(case.kernel)
    with cuda.watch() as seen, suppress(KernelError):  # more accesses than can be watched
        kernel(case.grid, case.block, case.arguments(), shared_mem=case.shared_mem)
    assert seen.races() == []


TRICKY = [
    ("last_block_done", 5, 64, [floats(300), np.zeros(5, "f4"), np.zeros(1, "u4"), floats(1), 300]),
    ("warp_synchronous", 1, 32, [floats(32), floats(1)]),
    ("half_a_warp", 1, 32, [np.arange(32, dtype=np.int32), np.zeros(32, np.int32)]),
    ("barrier_in_a_loop", 1, 64, [floats(320), floats(64), 5]),
]


@pytest.mark.parametrize(("file", "grid", "block", "args"), TRICKY)
def test_tricky_kernels_raise_no_alarm(file, grid, block, args):
    assert watched("tricky_kernels", file, grid, block, args).races() == []


# --- what orders two accesses, without a kernel ---------------------------------------------------


def access(block=0, thread=0, write=True, **more):
    fields = {"address": 0, "size": 4, "as_one": False, "shared": False}
    fields |= {"barriers": 0, "exchanges": 0, **more}
    return Access(block, thread, write=write, place=lambda: "it", line=lambda: "", **fields)


@pytest.mark.parametrize(
    ("pair", "race"),
    [
        ([access(), access(thread=1)], True),
        ([access(), access(thread=1, write=False)], True),
        ([access(write=False), access(thread=1)], True),
        ([access(write=False), access(thread=1, write=False)], False),
        ([access(), access()], False),
        ([access(), access(thread=1, barriers=1)], False),
        ([access(), access(thread=1, exchanges=1)], False),
        ([access(), access(thread=32, exchanges=1)], True),
        ([access(), access(thread=1, address=4)], False),
        ([access(), access(thread=1, address=3, size=1)], True),
        ([access(as_one=True), access(thread=1, as_one=True)], False),
        ([access(as_one=True), access(thread=1)], True),
        ([access(), access(block=1, barriers=1)], True),
        ([access(shared=True), access(block=1, shared=True)], False),
    ],
)
def test_two_accesses(pair, race):
    assert bool(find_races(pair, 1)) == race


def test_an_atomic_of_each_block_in_between_orders_them():
    counter = {"address": 64, "as_one": True}
    write, read = access(), access(block=1, write=False)
    release, acquire = access(**counter), access(block=1, **counter)
    assert find_races([write, release, acquire, read], 1) == []
    assert find_races([write, acquire, release, read], 1)
    assert find_races([release, write, acquire, read], 1)
    assert find_races([write, release, read, acquire], 1)


def test_a_write_between_two_reads_races_with_the_first():
    reads = [access(thread=t, write=False) for t in (1, 2)]
    (race,) = find_races([*reads, access(thread=2)], 1)
    assert race.first.thread == 1


# --- counting -------------------------------------------------------------------------------------


def test_bytes_are_counted_by_argument_and_direction():
    n = 70
    out, a, b = floats(n), floats(n), floats(n)
    add = cuda.load("elementwise.cu").get_function("add_f32")
    with cuda.watch() as seen:
        add(3, 32, (out, a, b, n))
    assert (seen.reads("a"), seen.reads("b"), seen.reads("out")) == (4 * n, 4 * n, 0)
    assert (seen.writes(), seen.writes("out"), seen.moved()) == (4 * n, 4 * n, 12 * n)
    assert (seen.shared(), seen.barriers(), seen.launches[0].busiest()) == (0, 0, 0)
    add(3, 32, (out, a, b, n))  # not watched
    with cuda.watch() as twice:
        add(3, 32, (out, a, b, n))
        add(3, 32, (out, a, b, n))
    assert twice.moved() == 24 * n
    assert len(twice.launches) == 2


def test_shared_memory_and_barriers_are_counted():
    n, threads, blocks = 60, 16, 4
    out, x = np.zeros(blocks, np.float32), floats(n)
    kernel = cuda.load("reduce.cu").get_function("sum_sequential")
    with cuda.watch() as seen:
        kernel(blocks, threads, (out, x, n), shared_mem=4 * threads)
    assert out.sum() == x.sum()
    assert (seen.reads("x"), seen.writes("out")) == (4 * n, 4 * blocks)
    # Each thread writes its own; threads - 1 times two are read and one written; one is read.
    assert seen.shared() == blocks * (threads + 3 * (threads - 1) + 1)
    assert seen.barriers() == blocks * 5
    assert seen.launches[0].busiest() == 1 + 3 * 4 + 1
    with cuda.settings(workers=4), cuda.watch() as again:
        kernel(blocks, threads, (out, x, n), shared_mem=4 * threads)
    assert again.shared() == seen.shared()


def test_what_cannot_be_watched_is_refused(monkeypatch):
    add = cuda.load("elementwise.cu").get_function("add_f32")
    x = floats(3)
    monkeypatch.setattr(watching, "MOST", 8)
    with cuda.watch() as seen, pytest.raises(KernelError, match="9 accesses, and 8 can be watched"):
        add(1, 32, (x, x, x, 3))
    assert seen.launches == []
    with cuda.watch(), pytest.raises(KernelFault, match="out of bounds"):
        add(1, 32, (x, x, x, 4))
    grid = cuda.load("elementwise.cu", cooperative=True).get_function("add_f32")
    with cuda.watch(), pytest.raises(KernelError, match="cooperative launch cannot be watched"):
        grid(2, 32, (x, x, x, 3))
