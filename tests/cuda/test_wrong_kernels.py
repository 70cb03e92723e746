"""Wrong kernels are found out, with the line; tricky ones that are right raise no alarm.

A line that must be named ends in `// here`. Every file has one kernel, `wrong` or `tricky`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from minidist import cuda
from minidist.errors import ArgumentError, KernelFault, KernelRangeError, KernelTimeout
from tests.tiers import fast_and_slow

HERE = Path(__file__).parent
ORDERS = [("forward", 0), ("reverse", 0), ("random", 1), ("random", 2), ("random", 3)]

pytestmark = pytest.mark.kernel


def floats(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


def ints(*x: int) -> np.ndarray:
    return np.array(x, np.int32)


class Wrong(NamedTuple):
    """A launch of a wrong kernel, and words that its error must have."""

    file: str
    grid: int
    block: int
    arguments: list[Any]
    words: tuple[str, ...]
    shared: int = 0


FAULTS = [
    Wrong("missing_bound_check", 2, 64, [floats(100), floats(100), 100],
          ("read of 4 bytes out of bounds", "element 100 of argument 0 'x'", "thread (36, 0, 0)",
           "block (1, 0, 0)")),
    Wrong("off_by_one_at_the_front", 1, 64, [floats(50), floats(50), 50],
          ("out of bounds", "element -1 of argument 0 'x'", "thread (0, 0, 0)")),
    Wrong("off_by_one_at_the_end", 1, 32, [floats(15), floats(3), 3, 5],
          ("out of bounds", "element 15 of argument 0 'x'", "thread (2, 0, 0)")),
    Wrong("wild_address", 1, 2, [np.array([1, 2**40]), floats(4)],
          ("write of 4 bytes out of bounds", "near no argument", "thread (1, 0, 0)")),
    Wrong("write_to_const", 1, 32, [floats(32), 32],
          ("write of 4 bytes", "element 0 of argument 0 'x'", "const")),
    Wrong("beyond_shared_array", 1, 32, [floats(32), floats(32)],
          ("index 32 is outside of 'float [32]'", "thread (31, 0, 0)")),
    Wrong("beyond_dynamic_shared", 1, 32, [floats(32), floats(32)],
          ("out of bounds", "byte 64 of", "shared memory", "thread (16, 0, 0)"), shared=64),
    Wrong("misaligned_four", 1, 1, [floats(8), floats(1)], ("misaligned", "float4")),
    Wrong("divergent_barrier", 1, 64, [floats(64)],
          ("different barriers", "32 threads", "__syncthreads")),
    Wrong("missing_lanes", 1, 32, [ints(*range(32))],
          ("deadlock", "mask 0xffffffff", "for lanes 0xffff0000", "16 threads")),
    Wrong("lanes_that_left", 1, 32, [ints(*range(32))], ("has left", "lane 15")),
    Wrong("division_by_zero", 1, 3, [ints(1, 0, 2), ints(0, 0, 0)],
          ("by zero", "thread (1, 0, 0)")),
    Wrong("large_local_array", 1, 1, [ints(1, 2, 3, 4)], ("stack overflow",)),
]  # fmt: skip

ENDLESS = [
    Wrong("endless_loop", 1, 1, [floats(1) + 3], ()),
    Wrong("endless_wait", 1, 1, [ints(0), ints(0)], ()),
]


def launch(folder: str, case: Wrong, **defines: int) -> None:
    module = cuda.load(HERE / folder / f"{case.file}.cu", defines=defines)
    kernel = module.get_function(folder.partition("_")[0])
    kernel((case.grid,), (case.block,), case.arguments, shared_mem=case.shared)


def lines(case: Wrong) -> list[str]:
    """Return file:line of each line that an error must name."""
    text = (HERE / "wrong_kernels" / f"{case.file}.cu").read_text("utf-8").splitlines()
    return [f"{case.file}.cu:{i}" for i, x in enumerate(text, 1) if x.endswith("// here")]


@pytest.mark.parametrize("case", fast_and_slow(FAULTS, 5), ids=lambda case: case.file)
def test_what_a_wrong_kernel_does_is_told_with_its_line(case):
    case = case._replace(arguments=[np.copy(x) if np.ndim(x) else x for x in case.arguments])
    with pytest.raises(KernelFault) as told:
        launch("wrong_kernels", case)
    for words in (*case.words, *lines(case)):
        assert words in str(told.value)


@pytest.mark.parametrize("case", fast_and_slow(ENDLESS, 1), ids=lambda case: case.file)
def test_a_kernel_that_does_not_end_is_stopped_where_it_is(case):
    with pytest.raises(KernelTimeout) as told, cuda.settings(timeout=0.2):
        launch("wrong_kernels", case)
    text = (HERE / "wrong_kernels" / f"{case.file}.cu").read_text("utf-8").splitlines()
    loop = [i for i, x in enumerate(text, 1) if "while" in x or x.endswith("// here")]
    assert any(f"{case.file}.cu:{i}" in str(told.value) for i in loop)


def test_after_a_fault_the_next_launch_works():
    for case in FAULTS[:2]:
        with pytest.raises(KernelFault):
            launch("wrong_kernels", case)
    x, y = floats(5), np.zeros(5, np.float32)
    launch("tricky_kernels", Wrong("early_return", 1, 32, [x, y, 5], ()))
    assert np.array_equal(y, 2 * x)


# --- missing barriers: the orders disagree --------------------------------------------------------


def results_of(file: str, **defines: int) -> list[np.ndarray]:
    """Return the results of one kernel in several orders of its threads."""
    results = []
    for order, seed in ORDERS:
        x, y = (
            np.random.default_rng(1).normal(size=192).astype(np.float32),
            np.zeros(64, np.float32),
        )
        more = [3] if file == "barrier_too_early" else []
        block = 32 if file == "missing_warp_barrier" else 64
        with cuda.settings(order=order, seed=seed):
            launch("wrong_kernels", Wrong(file, 1, block, [x, y, *more], ()), **defines)
        results.append(y)
    return results


SILENT = ["missing_barrier", "missing_warp_barrier", "barrier_too_early", "not_written"]


@pytest.mark.parametrize("file", fast_and_slow(SILENT, 1))
def test_a_missing_barrier_shows_in_another_order(file):
    fixed = results_of(file, FIXED=1)
    assert all(np.array_equal(y, fixed[0]) for y in fixed)
    assert np.isfinite(fixed[0]).all()
    assert any(not np.array_equal(y, fixed[0]) for y in results_of(file))


def test_one_order_alone_may_be_right_by_chance():
    forward, *others = results_of("missing_barrier")
    right = results_of("missing_barrier", FIXED=1)[0]
    assert np.array_equal(forward, right)
    assert not any(np.array_equal(y, right) for y in others)


# --- arguments: refused before the launch ---------------------------------------------------------

REFUSED = [
    ([floats(4), floats(4), 4.0], ArgumentError, "'n'"),
    ([floats(4), floats(4), 2**31], KernelRangeError, "'n'"),
    ([floats(4), floats(4).astype(np.float64), 4], ArgumentError, "'y'"),
    ([floats(8)[::2], floats(4), 4], ArgumentError, "'x'"),
    ([floats(4), floats(4)], ArgumentError, "takes 3 arguments"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), REFUSED)
def test_arguments_that_do_not_fit_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        launch("tricky_kernels", Wrong("early_return", 1, 32, arguments, ()))


# --- what the kernels of the project refuse -------------------------------------------------------


@pytest.mark.parametrize("name", ["row_per_thread", "three_readings", "online", "lse"])
def test_a_label_beyond_the_vocabulary_stops_the_kernel(name):
    kernel = cuda.load("cross_entropy.cu").get_function(f"cross_entropy_{name}")
    logits, out = np.zeros((2, 5), np.float32), np.zeros((2, 5), np.float32)
    labels, losses = np.array([5, 0]), np.zeros(2, np.float32)
    with pytest.raises(KernelFault, match=r"trap.*cross_entropy\.cu:\d+.*block \(0, 0, 0\)"):
        kernel((2,), (32,), (logits, labels, losses, out, 2, 5))


@pytest.mark.parametrize(("size", "block"), [(129, 128), (8, 64)])
def test_tiled_attention_refuses_what_its_tile_does_not_hold(size, block):
    kernel = cuda.load("attention.cu").get_function("attention_tiled_f32")
    q, k, v, o = (np.zeros((1, 1, 1, 1, size), np.float32) for _ in range(4))
    position, lse = np.zeros(1, np.int64), np.zeros(1, np.float32)
    with pytest.raises(KernelFault, match=r"trap.*attention\.cu:\d+"):
        kernel((1, 1, 1), (block,), (q, k, v, position, position, o, lse, 1, 1, 1, 1, 1, size))


# --- tricky, and right ----------------------------------------------------------------------------


@pytest.fixture(params=ORDERS, ids=lambda order: f"{order[0]}{order[1]}")
def any_order(request):
    with cuda.settings(order=request.param[0], seed=request.param[1]):
        yield


@pytest.mark.usefixtures("any_order")
class TestNoFalseAlarm:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_the_last_block_adds_the_sums_of_all(self, workers):
        x, sums, y = floats(300), np.zeros(5, np.float32), np.zeros(1, np.float32)
        count = np.zeros(1, np.uint32)
        with cuda.settings(workers=workers):
            for _ in range(2):  # the count is 0 again after a launch
                case = Wrong("last_block_done", 5, 64, [x, sums, count, y, 300], ())
                launch("tricky_kernels", case)
                assert y[0] == x.sum()
                assert count[0] == 0

    def test_a_warp_that_waits_for_itself(self):
        x, y = floats(32), np.zeros(1, np.float32)
        launch("tricky_kernels", Wrong("warp_synchronous", 1, 32, [x, y], ()))
        assert y[0] == x.sum()

    def test_threads_that_leave_early(self):
        x, y = floats(33), np.zeros(33, np.float32)
        launch("tricky_kernels", Wrong("early_return", 2, 32, [x, y, 33], ()))
        assert np.array_equal(y, 2 * x)

    def test_half_a_warp_with_its_own_mask(self):
        x, y = ints(*range(32)), ints(*[0] * 32)
        launch("tricky_kernels", Wrong("half_a_warp", 1, 32, [x, y], ()))
        assert np.array_equal(y, [120] * 16 + [-i for i in range(16, 32)])

    def test_a_barrier_in_a_branch_that_all_take(self):
        x, y = floats(5 * 64), np.zeros(64, np.float32)
        launch("tricky_kernels", Wrong("barrier_in_a_loop", 1, 64, [x, y, 5], ()))
        rows = x.reshape(5, 64)
        assert np.array_equal(y, rows[::2, ::-1].sum(0) + rows[1::2].sum(0))

    def test_an_array_passed_twice(self):
        x = floats(40)
        launch("tricky_kernels", Wrong("same_array_twice", 2, 32, [x, x, 40], ()))
        assert np.array_equal(x, floats(40) + 1)

    def test_a_thread_that_waits_for_its_neighbour(self):
        flag, y = ints(0), ints(0)
        launch("tricky_kernels", Wrong("wait_within_a_block", 1, 2, [flag, y], ()))
        assert y[0] == 7
