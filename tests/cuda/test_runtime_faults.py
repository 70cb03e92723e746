"""Wrong kernels: each fault is named with its place, and the next launch works."""

import signal
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cuda import glue
from tests.cuda.glue import FINISHED, Kernels, soon
from tests.cuda.test_runtime import ORDERS
from tests.tiers import fast_and_slow

pytestmark = pytest.mark.kernel

WRONG = """
extern "C" __global__ void fine(int* x) { x[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void copy(int* y, const int* x, int shift) {
    int i = threadIdx.x;
    y[i] =
        x[i + shift];
}
extern "C" __global__ void store(int* y, const int* x, int shift) {
    int i = threadIdx.x;
    y[i + shift] = x[i];
}
extern "C" __global__ void wild(int* x) { x[((long long)threadIdx.x - 1) << 40] = 1; }
extern "C" __global__ void null(int* x) { *x = 1; }
extern "C" __global__ void write_const(const int* x) { ((int*)x)[threadIdx.x] = 1; }
extern "C" __global__ void vectors(float4* y, const float* x, int shift) {
    y[threadIdx.x] = *(const float4*)(x + 4 * threadIdx.x + shift);
}
extern "C" __global__ void atomic(unsigned* x, int shift) {
    atomicAdd(x + threadIdx.x + shift, 1u);
}
extern "C" __global__ void misaligned_atomic(char* x) { atomicAdd((int*)(x + 2), 1); }
extern "C" __global__ void table(int* y, int i) {
    __shared__ int s[32];
    s[threadIdx.x] = 7;
    y[threadIdx.x] =
        s[i];
}
extern "C" __global__ void dynamic(int* y) {
    extern __shared__ int s[];
    s[threadIdx.x] = 1;
    y[threadIdx.x] = s[threadIdx.x];
}
__device__ int deep(int n, const int* x) {
    return n > x[0] ? deep(n + 1, x) * 3 + deep(n - 1, x) : n;
}
extern "C" __global__ void recursion(int* y, const int* x) { y[threadIdx.x] = deep(1, x); }
extern "C" __global__ void big_local(int* y, const int* x) {
    int big[50000];
    for (int i = 0; i < 50000; i++) big[i] = x[i & 3];
    y[threadIdx.x] = big[x[1]];
}
extern "C" __global__ void divide(int* y, const int* x) {
    y[threadIdx.x] =
        100 / x[threadIdx.x];
}
extern "C" __global__ void neighbour(int* y) {
    __shared__ int* theirs;
    int mine[4] = {1, 2, 3, 4};
    if (threadIdx.x == 0) theirs = mine;
    __syncthreads();
    if (threadIdx.x == 1)
        theirs[2] = 5;
    __syncthreads();
    y[threadIdx.x] = mine[2];
}
extern "C" __global__ void divergent(int* y) {
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void asserts(int* y) { assert(y[threadIdx.x] == 0); }
extern "C" __global__ void traps() { __trap(); }
extern "C" __global__ void compute_forever(float* y) {
    float x = y[0];
    while (x < 2)
        x = x * 0.5f + 0.25f;
    y[0] = x;
}
extern "C" __global__ void read_forever(int* y, const int* x, int n) {
    int sum = 0;
    for (int i = 0; sum >= 0; i = (i + 1) % n) sum = x[i];
    y[0] = sum;
}
extern "C" __global__ void call_forever(float* y) {
    float x = y[0];
    while (x < 2) x = cosf(x);
    y[0] = x;
}
extern "C" __global__ void poll_forever(volatile int* x) {
    if (threadIdx.x == 0) while (x[0] == 0) { }
    __syncthreads();
}
extern "C" __global__ void flag(volatile int* x, int* y) {
    if (threadIdx.x == 0) { while (x[0] == 0) { } y[0] = 7; }
    if (threadIdx.x == 40) x[0] = 1;
}
extern "C" __global__ void hidden_flag(int* x, int* y) {
    if (threadIdx.x == 0) { while (x[0] == 0) asm volatile("" : : : "memory"); y[0] = 7; }
    if (threadIdx.x == 40) x[0] = 1;
}
extern "C" __global__ void print(int n) { printf("thread %d of %d\\n", threadIdx.x, n); }
"""


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels(WRONG)


@pytest.fixture(autouse=True)
def the_next_launch_works(kernels: Kernels) -> Iterator[None]:
    yield
    x = np.full(64, -1, "i4")
    assert kernels.run("fine", [1], [64], [x]).kind == FINISHED
    assert np.array_equal(x, np.arange(64))


def line_of(text: str) -> int:
    """Return the line of the kernels' text that begins with these words."""
    lines = WRONG.split("\n")
    return next(i for i, line in enumerate(lines, 1) if line.strip().startswith(text))


@pytest.mark.parametrize("shift", [1, 5, -1, -3])
@pytest.mark.parametrize("kernel", ["copy", "store"])
def test_out_of_bounds_at_both_ends(kernels: Kernels, kernel: str, shift: int) -> None:
    room = np.arange(300, dtype="i4")
    y, x = room[50:114], room[180:244]
    before = room.copy()
    done = kernels.run(kernel, [1], [64], [y, x, np.int32(shift)])
    read = kernel == "copy"
    thread = 64 - shift if shift > 0 else 0
    assert done.kind == glue.OUT_OF_BOUNDS
    assert (done.argument, done.write, done.size) == (1 if read else 0, not read, 4)
    assert done.offset == 4 * (thread + shift)
    assert (list(done.thread), list(done.block)) == ([thread, 0, 0], [0, 0, 0])
    assert done.line == line_of("x[i + shift]" if read else "y[i + shift]")
    # Found before it happened: nothing but the elements of y has changed.
    room[50:114] = before[50:114]
    assert np.array_equal(room, before)


def test_the_array_that_the_same_line_touched_before_is_named(kernels: Kernels) -> None:
    room = np.zeros(100, "i4")
    y, x = np.zeros(64, "i4"), room[:10]
    done = kernels.run("copy", [1], [64], [y, x, np.int32(0)])
    assert (done.kind, done.argument, done.offset) == (glue.OUT_OF_BOUNDS, 1, 40)


def test_views_of_the_same_memory_may_be_written(kernels: Kernels) -> None:
    x = np.arange(65, dtype="i4")
    done = kernels.run("copy", [1], [64], [x[:64], x[1:], np.int32(0)])
    assert (done.kind, done.text) == (FINISHED, b"")
    assert np.array_equal(x, [*range(1, 65), 64])


def test_wild_and_null_pointers(kernels: Kernels) -> None:
    x = np.zeros(4, "i4")
    done = kernels.run("wild", [1], [2], [x])
    assert (done.kind, done.argument) == (glue.OUT_OF_BOUNDS, glue.WILD)
    assert done.offset == x.ctypes.data - 2**42
    assert done.line == line_of('extern "C" __global__ void wild')
    done = kernels.run("null", [1], [2], [np.uint64(0)])
    assert (done.kind, done.argument, done.offset) == (glue.OUT_OF_BOUNDS, glue.WILD, 0)


def test_write_to_const(kernels: Kernels) -> None:
    x = np.zeros(8, "i4")
    done = kernels.run("write_const", [1], [8], [x])
    assert (done.kind, done.argument, done.offset, done.write) == (glue.CONST_WRITE, 0, 0, 1)
    assert not x.any()


def test_misaligned_vectors_and_atomics(kernels: Kernels) -> None:
    room = np.zeros(68, "f4")
    begin = -room.ctypes.data // 4 % 4
    x, y = room[begin : begin + 64], np.zeros(64 + 4, "f4")
    y = y[-y.ctypes.data // 4 % 4 :][:64]
    assert kernels.run("vectors", [1], [16], [y, x, np.int32(0)]).kind == FINISHED
    done = kernels.run("vectors", [1], [15], [y, x, np.int32(1)])
    assert done.kind == glue.MISALIGNED
    assert "float4" in done.text.decode()
    assert done.line == line_of("y[threadIdx.x] = *(const float4*)")
    done = kernels.run("vectors", [1], [17], [y, x, np.int32(0)])
    assert (done.kind, done.offset, done.size) == (glue.OUT_OF_BOUNDS, 256, 16)
    done = kernels.run("misaligned_atomic", [1], [1], [np.zeros(16, "i1")])
    assert done.kind == glue.MISALIGNED


def test_atomics_are_checked(kernels: Kernels) -> None:
    x = np.zeros(8, "u4")
    assert kernels.run("atomic", [1], [8], [x, np.int32(0)]).kind == FINISHED
    done = kernels.run("atomic", [1], [8], [x, np.int32(2)])
    assert (done.kind, done.argument, done.offset, done.write) == (glue.OUT_OF_BOUNDS, 0, 32, 1)
    assert done.line == line_of("atomicAdd(x + threadIdx.x")


@pytest.mark.parametrize("index", [32, -1, 2**31 - 1])
def test_index_outside_of_a_shared_array(kernels: Kernels, index: int) -> None:
    done = kernels.run("table", [1], [32], [np.zeros(32, "i4"), np.int32(index)])
    assert done.kind == glue.INDEX
    assert done.text.decode() == f"index {index} is outside of 'int [32]'"
    assert done.line == line_of("s[i];")


def test_dynamic_shared_memory_has_the_size_that_was_given(kernels: Kernels) -> None:
    y = np.zeros(100, "i4")
    assert kernels.run("dynamic", [1], [100], [y], dynamic_shared=400).kind == FINISHED
    for given in (396, 0):
        done = kernels.run("dynamic", [1], [100], [y], dynamic_shared=given)
        assert (done.kind, done.argument, done.offset) == (glue.OUT_OF_BOUNDS, glue.SHARED, given)
        assert "dynamic shared memory" in done.text.decode()


@pytest.mark.parametrize("kernel", ["recursion", "big_local"])
def test_stack_overflow(kernels: Kernels, kernel: str) -> None:
    for _ in range(3):
        done = kernels.run(kernel, [4], [64], [np.zeros(64, "i4"), np.zeros(4, "i4")])
        assert (done.kind, done.text) == (
            glue.STACK_OVERFLOW,
            b"local arrays or recursion need more than the 64 KiB of a thread",
        )
        place = "__device__ int deep" if kernel == "recursion" else 'extern "C" __global__ void big'
        assert done.line - line_of(place) in range(3)


def test_division_by_zero(kernels: Kernels) -> None:
    x = np.arange(10, 0, -1, dtype="i4") - 4
    done = kernels.run("divide", [1], [10], [np.zeros(10, "i4"), x])
    assert (done.kind, list(done.thread)) == (glue.DIVISION, [6, 0, 0])
    assert done.line == line_of("100 / x[threadIdx.x]")


def test_a_local_variable_of_another_thread(kernels: Kernels) -> None:
    done = kernels.run("neighbour", [1], [2], [np.zeros(2, "i4")])
    assert (done.kind, done.argument) == (glue.OUT_OF_BOUNDS, glue.FOREIGN_STACK)
    assert done.line == line_of("theirs[2] = 5;")


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_divergent_barrier(kernels: Kernels, order: int, seed: int) -> None:
    done = kernels.run("divergent", [1], [64], [np.zeros(64, "i4")], order=order, seed=seed)
    text = done.text.decode()
    assert done.kind == glue.DIVERGENT, text
    first = line_of("if (threadIdx.x < 40)") + 1
    assert f"kernel.cu:{first}" in text
    assert f"kernel.cu:{first + 2}" in text


def test_assertions_and_traps(kernels: Kernels) -> None:
    x = np.array([0, 0, 1, 0], "i4")
    done = kernels.run("asserts", [1], [4], [x])
    assert (done.kind, list(done.thread)) == (glue.ASSERTION, [2, 0, 0])
    assert done.text.decode() == "assertion failed: y[threadIdx.x] == 0"
    assert done.line == line_of('extern "C" __global__ void asserts')
    assert kernels.run("traps", [1], [1]).kind == glue.ASSERTION


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("preempt", fast_and_slow([1, 0], 1))
@pytest.mark.parametrize(
    "kernel",
    fast_and_slow(["compute_forever", "poll_forever", "read_forever", "call_forever"], 2),
)
def test_endless_kernels_are_stopped(
    kernels: Kernels, kernel: str, preempt: int, workers: int
) -> None:
    x = np.zeros(8, "i4")
    args = {
        "compute_forever": [np.zeros(1, "f4")],
        "read_forever": [x, x.copy(), np.int32(8)],
        "call_forever": [np.zeros(1, "f4")],
        "poll_forever": [x],
    }[kernel]
    done = kernels.run(kernel, [3], [64], args, stop=soon(), preempt=preempt, workers=workers)
    text = done.text.decode()
    assert done.kind == glue.STOPPED
    assert text.count("block (") == workers, text
    name = line_of(f'extern "C" __global__ void {kernel}')
    assert done.line - name in range(4)
    if kernel == "poll_forever":
        assert "63 threads, the first is (1,0,0): wait in __syncthreads at kernel.cu" in text
        assert "1 thread, the first is (0,0,0): can run" in text


def test_stopping_at_once(kernels: Kernels) -> None:
    for _ in range(20):
        config = kernels.config("compute_forever", [50], [64], [np.zeros(1, "f4")])
        handle = kernels.runtime.md_launch(config)
        kernels.runtime.md_stop(handle)
        done = glue.Outcome()
        kernels.runtime.md_end(handle, done)
        assert done.kind == glue.STOPPED
        assert b"block" in done.text


def test_polling_ends_when_another_thread_of_the_block_sets_the_flag(kernels: Kernels) -> None:
    for order, seed in ORDERS:
        x, y = np.zeros(1, "i4"), np.zeros(1, "i4")
        done = kernels.run("flag", [1], [64], [x, y], order=order, seed=seed, preempt=0)
        assert (done.kind, y[0]) == (FINISHED, 7)


def test_preemption_ends_a_loop_in_which_nothing_tells_that_it_polls(kernels: Kernels) -> None:
    for _ in range(5):
        x, y = np.zeros(1, "i4"), np.zeros(1, "i4")
        done = kernels.run("hidden_flag", [1], [64], [x, y])
        assert (done.kind, y[0]) == (FINISHED, 7)
    x = np.zeros(1, "i4")
    done = kernels.run("hidden_flag", [1], [64], [x, y], preempt=0, stop=soon())
    assert done.kind == glue.STOPPED


def test_kernels_print(kernels: Kernels, capfd: pytest.CaptureFixture[str]) -> None:
    assert kernels.run("print", [1], [3], [np.int32(5)]).kind == FINISHED
    assert capfd.readouterr().out == "".join(f"thread {i} of 5\n" for i in range(3))


def test_the_first_of_several_faults_counts(kernels: Kernels) -> None:
    for _ in range(50):
        x = np.full(8, 5, "i4")
        done = kernels.run("copy", [40], [64], [x, x.copy(), np.int32(0)], workers=4)
        assert (done.kind, done.argument in (0, 1)) == (glue.OUT_OF_BOUNDS, True)


HANDLERS = """
import ctypes, faulthandler, signal, sys
import numpy as np
from tests.cuda import glue, test_runtime_faults as tests
kernels = glue.Kernels(tests.WRONG)
{before}
for _ in range(2):
    {between}
    done = kernels.run("big_local", [1], [1], [np.zeros(1, "i4"), np.zeros(4, "i4")])
    assert done.kind == glue.STACK_OVERFLOW, done.kind
print("caught", flush=True)
{after}
"""


@pytest.mark.parametrize("when", ["before", "between"])
def test_faults_that_are_not_a_kernels_reach_whoever_had_them(when: str) -> None:
    """Python's own report of a crash, switched on before our handlers or after them."""
    parts = {"before": "", "between": "", when: "faulthandler.enable()"}
    code = HANDLERS.format(after="ctypes.string_at(8)", **parts)
    done = glue.started(code)
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "caught\n"
    assert "Segmentation fault" in done.stderr
    assert "string_at" in done.stderr


def test_a_fault_that_nobody_handles_ends_the_process() -> None:
    done = glue.started(HANDLERS.format(before="", between="", after="ctypes.string_at(8)"))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGSEGV, "caught\n", "")


def test_the_tick_of_somebody_else_is_passed_on() -> None:
    code = HANDLERS.format(
        before="seen = []; signal.signal(signal.SIGURG, lambda *_: seen.append(1))",
        between="",
        after="signal.raise_signal(signal.SIGURG); print(seen)",
    )
    assert glue.python(code) == "caught\n[1]\n"
