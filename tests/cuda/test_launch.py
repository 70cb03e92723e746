"""Launches on NumPy arrays: results, aliases, variables, timeout, Ctrl-C, many at once."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from minidist import cuda, processes
from minidist.errors import ArgumentError, KernelError, KernelTimeout

pytestmark = pytest.mark.kernel

TEXT = """
__constant__ float table[4];
__device__ int counter;

extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void shift(const float* x, float* y, int n) {  // y[i] = x[0] + ... + x[i]
    if (threadIdx.x == 0)
        for (int i = 1; i < n; i++) y[i] = x[i] + y[i - 1];
}

extern "C" __global__ void reverse(int* x) {
    extern __shared__ int s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void scalars(double* out, signed char a, bool b, long long c, float d,
                                   unsigned e) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e;
}

extern "C" __global__ void look_up(float* out) {
    out[threadIdx.x] = table[threadIdx.x];
    atomicAdd(&counter, 1);
}

extern "C" __global__ void fill(float** rows, const int* sizes, float value) {
    int r = blockIdx.x;
    for (int i = threadIdx.x; i < sizes[r]; i += blockDim.x) rows[r][i] = value + r;
}

extern "C" __global__ void is_null(const float* x, int* out) { *out = x == nullptr; }

extern "C" __global__ void forever(volatile int* go) {
    go[1] = 1;
    while (go[0] == 0) { }
}

template <class T, int times> __global__ void scale(T* x, T a, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] = x[i] * a * times;
}
"""

MODULE = cuda.load(code=TEXT, name_expressions=("scale<float, 2>", "scale<long long, 3>"))


def kernel(name: str) -> cuda.Kernel:
    return MODULE.get_function(name)


@pytest.mark.parametrize("n", [1, 100, 1000])
def test_a_sum(n):
    a, b, c = np.arange(n, dtype="f4"), np.full(n, 2, "f4"), np.empty(n, "f4")
    kernel("add")((n + 255) // 256, 256, (a, b, c, n))
    assert np.array_equal(c, a + b)


def test_arguments_that_are_the_same_array_stay_so():
    x = np.arange(10, dtype="f4")
    kernel("add")(1, 32, (x, x, x, 10))
    assert np.array_equal(x, 2 * np.arange(10, dtype="f4"))


def test_arguments_that_overlap_do_so_in_the_kernel():
    x = np.ones(9, "f4")
    kernel("shift")(1, 1, (x[:8], x[:8], 8))
    assert np.array_equal(x, [1, 2, 3, 4, 5, 6, 7, 8, 1])
    x = np.ones(9, "f4")
    kernel("add")(1, 1, (x[1:], x[:8], x[:8], 1))
    assert np.array_equal(x, [2, 1, 1, 1, 1, 1, 1, 1, 1])


def test_dynamic_shared_memory():
    x = np.arange(100, dtype=np.int32)
    kernel("reverse")(1, 100, (x,), shared_mem=400)
    assert np.array_equal(x, np.arange(100)[::-1])


def test_every_kind_of_scalar_arrives():
    out = np.zeros(5)
    kernel("scalars")(1, 1, (out, -3, True, -(2**40), 0.5, 2**32 - 1))
    assert out.tolist() == [-3, 1, -(2.0**40), 0.5, 2**32 - 1]


def test_instances_of_a_template():
    x, y = np.ones(4, "f4"), np.full(4, 2, np.int64)
    kernel("scale<float, 2>")(1, 32, (x, 1.5, 4))
    kernel("scale<long long, 3>")(1, 32, (y, -1, 3))
    assert x.tolist() == [3] * 4
    assert y.tolist() == [-6, -6, -6, 2]


def test_variables_are_arrays_without_a_copy():
    with cuda.settings(backend="emulator"):
        table = MODULE.get_global("table", np.float32, (2, 2))
        counter = MODULE.get_global("counter", np.int32, ())
    table[:] = [[1, 2], [3, 4]]
    counter[...] = 5
    out = np.zeros(4, "f4")
    kernel("look_up")(2, 4, (out,))
    assert out.tolist() == [1, 2, 3, 4]
    assert counter == 13


def test_variables_that_are_not_there_or_smaller_are_refused():
    x = np.zeros(1)
    with pytest.raises(KernelError, match="there is no variable 'nothing'; it is declared __dev"):
        MODULE.get_global("nothing", np.float32, (4,), like=x)
    with pytest.raises(
        ArgumentError, match=r"'table' has 16 bytes, and float32\[5\] would have 20"
    ):
        MODULE.get_global("table", np.float32, 5, like=x)


def test_pointers_to_pointers():
    rows, sizes = [np.zeros(3, "f4"), np.zeros(5, "f4")], np.array([3, 5], np.int32)
    kernel("fill")(2, 4, (rows, sizes, 1.0))
    assert [row.tolist() for row in rows] == [[1] * 3, [2] * 5]


def test_none_is_null():
    out = np.zeros(1, np.int32)
    kernel("is_null")(1, 1, (None, out))
    assert out[0] == 1
    kernel("is_null")(1, 1, (np.zeros(1, "f4"), out))
    assert out[0] == 0


def test_raw_memory():
    x = np.zeros(4, "f4")
    raw = cuda.Pointer(x.ctypes.data, x.nbytes)
    with pytest.raises(ArgumentError, match="no argument is an array"):
        kernel("scale<float, 2>")(1, 32, (raw, 2.0, 4))
    x[:] = 1
    with cuda.settings(backend="emulator"):
        kernel("scale<float, 2>")(1, 32, (raw, 2.0, 4))
    assert x.tolist() == [4] * 4


def test_a_kernel_behind_an_if_is_told_when_it_is_asked_for():
    text = '#ifdef GPU_ONLY\nextern "C" __global__ void k(int* x) {}\n#endif\n'
    module = cuda.load(code=text)
    with pytest.raises(KernelError, match=r"k \(<code>:2\) is left out by an #if"):
        module.get_function("k")(1, 1, (np.zeros(1, np.int32),))
    chosen = cuda.load(code=text, defines={"GPU_ONLY": True})
    chosen.get_function("k")(1, 1, (np.zeros(1, np.int32),))


def test_a_stream_is_refused():
    with pytest.raises(
        ArgumentError, match="is_null: stream='s', but NumPy arrays have no streams"
    ):
        kernel("is_null")(1, 1, (None, np.zeros(1, np.int32)), stream="s")


def test_too_much_static_shared_memory_is_refused():
    text = """extern "C" __global__ void k(float* x) {
        __shared__ float s[13000];
        s[threadIdx.x] = 1;
        __syncthreads();
        x[0] = s[blockDim.x - 1];
    }"""
    with pytest.raises(KernelError, match=r"<code>: 52,\d+ bytes of static __shared__ memory"):
        cuda.load(code=text).get_function("k")(1, 1, (np.zeros(1, "f4"),))


def test_the_timeout_names_the_line_and_the_next_launch_works():
    line = TEXT[: TEXT.index("while (go")].count("\n") + 1
    with cuda.settings(timeout=0.5), pytest.raises(KernelTimeout) as caught:
        kernel("forever")(1, 1, (np.zeros(2, np.int32),))
    assert isinstance(caught.value, TimeoutError)
    assert f"forever: did not finish in 0.5 s, and was stopped, at <code>:{line}" in str(
        caught.value
    )
    test_a_sum(100)


INTERRUPTED = f"""
import os, signal, threading
import numpy as np
from minidist import cuda

module = cuda.load(code='''{TEXT}''')
go, x = np.zeros(2, np.int32), np.zeros(1, np.int32)

def interrupt():
    while go[1] == 0:  # until the kernel runs
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    with cuda.settings(timeout=None):
        module.get_function("forever")(2, 32, (go,))
except KeyboardInterrupt as error:
    module.get_function("is_null")(1, 1, (None, x))
    print("interrupted", *error.__notes__)
"""


def test_ctrl_c_ends_an_endless_kernel_and_names_the_line(tmp_path):
    done = processes.finish(processes.start([sys.executable, "-c", INTERRUPTED], tmp_path), 100)
    first = TEXT[: TEXT.index("go[1] = 1")].count("\n") + 1
    assert done.stderr == ""
    # The line where one of the threads was: not all have come to the second when the first has.
    wanted = [f"interrupted forever: was stopped, at <code>:{first + i}" for i in range(2)]
    assert done.stdout.splitlines()[0] in wanted


def test_other_python_threads_go_on_while_a_kernel_runs():
    go = np.zeros(2, np.int32)

    def let_go() -> None:
        while go[1] == 0:  # until the kernel runs
            pass
        go[0] = 1

    thread = threading.Thread(target=let_go)
    thread.start()
    kernel("forever")(1, 32, (go,))
    thread.join()


def test_two_python_threads_launch_at_the_same_time():
    wrong = []

    def work(seed: int) -> None:
        x = np.full(500, seed, "f4")
        for _ in range(20):
            y = np.empty_like(x)
            kernel("add")(2, 256, (x, x, y, 500))
            wrong.extend(y[y != 2 * seed])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


SOAK = f"""
import sys
import numpy as np
from minidist import cuda

module = cuda.load(code='''{TEXT}''')
add, reverse = module.get_function("add"), module.get_function("reverse")
orders = ("forward", "reverse", "random")
for turn in range(300):
    n = 1 + 37 * turn % 700
    a, c, x = np.arange(n, dtype="f4"), np.empty(n, "f4"), np.arange(64, dtype=np.int32)
    with cuda.settings(order=orders[turn % 3], seed=turn, workers=1 + turn % 3):
        add((n + 63) // 64, 64, (a, a, c, n))
        reverse(1, 64, (x,), shared_mem=256)
    assert np.array_equal(c, a + a) and np.array_equal(x, np.arange(64)[::-1]), turn
print("done")
"""


def test_several_processes_launch_hundreds_of_times(tmp_path):
    several = [processes.start([sys.executable, "-c", SOAK], tmp_path) for _ in range(4)]
    done = [processes.finish(process, 110) for process in several]
    assert [(each.stdout, each.stderr) for each in done] == [("done\n", "")] * 4


@pytest.mark.slow
def test_ranks_launch_hundreds_of_times(mpirun, tmp_path, monkeypatch):
    """Four ranks on two cores, from an empty cache: one compiles, and nobody waits for ever."""
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "cache"))
    program = f"from minidist.comm import world\nworld()\n{SOAK}"
    assert mpirun(program, ranks=4, timeout=110).stdout == "done\n" * 4


FORKED = f"""
import os
import numpy as np
from minidist import cuda

kernel = cuda.load(code='''{TEXT}''').get_function("add")

def work():
    a, c = np.arange(600, dtype="f4"), np.empty(600, "f4")
    kernel(3, 256, (a, a, c, 600))
    assert np.array_equal(c, a + a)

work()
child = os.fork()
work()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_launches_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
