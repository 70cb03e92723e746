"""The emulator's runtime, bare: right kernels give what a GPU gives, in every order of threads."""

import os
import sys
import warnings

import numpy as np
import pytest

from tests.cuda import glue
from tests.cuda.glue import FINISHED, FORWARD, RANDOM, REVERSE, Kernels

pytestmark = pytest.mark.kernel

ORDERS = [(FORWARD, 0), (REVERSE, 0), (RANDOM, 1), (RANDOM, 2)]

BASIC = """
extern "C" __global__ void add(float* c, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

// Each block's sum by halving, for any size of a block.
extern "C" __global__ void sums(long long* out, const int* x, int n) {
    extern __shared__ int part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int size = blockDim.x; size > 1;) {
        int half = (size + 1) / 2;
        if (t < size / 2) part[t] += part[t + half];
        __syncthreads();
        size = half;
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void transpose(float* y, const float* x, int rows, int columns) {
    __shared__ float tile[8][9];
    int r = blockIdx.y * 8 + threadIdx.y, c = blockIdx.x * 8 + threadIdx.x;
    if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
    __syncthreads();
    r = blockIdx.y * 8 + threadIdx.x, c = blockIdx.x * 8 + threadIdx.y;
    if (r < rows && c < columns) y[c * rows + r] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void where(unsigned* out) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned* mine = out + 6 * (block * threads + thread);
    __syncthreads();
    mine[0] = blockIdx.x, mine[1] = blockIdx.y, mine[2] = blockIdx.z;
    mine[3] = threadIdx.x, mine[4] = threadIdx.y, mine[5] = threadIdx.z;
}

extern "C" __global__ void poison(unsigned* out) {
    __shared__ unsigned fixed[4];
    extern __shared__ unsigned given[];
    out[threadIdx.x] = fixed[threadIdx.x] & given[threadIdx.x];
    fixed[threadIdx.x] = given[threadIdx.x] = 0;
}

extern "C" __global__ void votes(int* out, const int* x) {
    int t = threadIdx.x, n = blockDim.x;
    out[t] = __syncthreads_count(x[t]);
    out[n + t] = __syncthreads_and(x[t]);
    out[2 * n + t] = __syncthreads_or(x[t]);
    out[3 * n + t] = __syncthreads_and(x[t] >= 0);
    out[4 * n + t] = __syncthreads_or(x[t] < 0);
}

extern "C" __global__ void leave_early(int* out, int n) {
    __shared__ int seen[128];
    int t = threadIdx.x;
    if (t >= n) return;
    seen[t] = t;
    __syncthreads();
    out[t] = seen[n - 1 - t];
}

extern "C" __global__ void no_parameters() {}
extern "C" __global__ void types(bool* a, const double* b, signed char* c, const unsigned short* d,
    const float* const* e, unsigned long long f, float g, void* h, const float4* i, long long j) {}
"""


@pytest.fixture(scope="module")
def basic() -> Kernels:
    return Kernels(BASIC)


@pytest.fixture(params=ORDERS, ids=lambda order: f"order{order[0]}-{order[1]}")
def order(request: pytest.FixtureRequest) -> dict[str, int]:
    kind, seed = request.param
    return {"order": kind, "seed": seed}


@pytest.mark.parametrize("n", [0, 1, 31, 100, 1025])
@pytest.mark.parametrize("block", [1, 32, 48, 256])
def test_vector_add(basic: Kernels, n: int, block: int, order: dict[str, int]) -> None:
    a, b, c = np.arange(n, dtype="f4"), np.arange(n, dtype="f4") ** 2, np.zeros(n, "f4")
    grid = [max(1, -(-n // block))]
    assert basic.run("add", grid, [block], [c, a, b, np.int32(n)], **order).kind == FINISHED
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize("block", [1, 2, 31, 33, 100, 256, 1000, 1024])
def test_sums_with_barriers_and_dynamic_shared_memory(
    basic: Kernels, block: int, order: dict[str, int]
) -> None:
    x = np.random.default_rng(block).integers(-1000, 1000, 2500, "i4")
    blocks = -(-len(x) // block)
    out = np.full(blocks, -1, "i8")
    done = basic.run(
        "sums", [blocks], [block], [out, x, np.int32(len(x))], dynamic_shared=4 * block, **order
    )
    assert (done.kind, done.text) == (FINISHED, b"")
    padded = np.concatenate([x, np.zeros(blocks * block - len(x), "i4")])
    assert np.array_equal(out, padded.reshape(blocks, block).sum(1))
    steps = 1 + int(np.ceil(np.log2(block)))
    assert done.barriers == blocks * steps


def test_two_dimensional_shared_array(basic: Kernels, order: dict[str, int]) -> None:
    x = np.arange(21 * 13, dtype="f4").reshape(21, 13)
    y = np.zeros((13, 21), "f4")
    sizes = [np.int32(21), np.int32(13)]
    assert basic.run("transpose", [2, 3], [8, 8], [y, x, *sizes], **order).kind == FINISHED
    assert np.array_equal(y, x.T)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_thread_of_every_block_runs_once(
    basic: Kernels, workers: int, order: dict[str, int]
) -> None:
    grid, block = (3, 2, 4), (4, 3, 2)
    out = np.zeros((24, 24, 6), "u4")
    assert basic.run("where", grid, block, [out], workers=workers, **order).kind == FINISHED
    for number, (z, y, x) in enumerate(np.ndindex(4, 2, 3)):
        for thread, (tz, ty, tx) in enumerate(np.ndindex(2, 3, 4)):
            assert out[number, thread].tolist() == [x, y, z, tx, ty, tz]


def test_shared_memory_is_poisoned_before_every_block(basic: Kernels) -> None:
    out = np.zeros(4, "u4")
    for _ in range(2):
        done = basic.run("poison", [3], [4], [out], workers=1, dynamic_shared=16)
        assert done.kind == FINISHED
        assert out.tolist() == [0xFFFFFFFF] * 4
    assert basic.runtime.md_static_shared(basic.library.md_inside()) >= 16


@pytest.mark.parametrize("block", [1, 33, 70])
def test_barriers_that_vote(basic: Kernels, block: int, order: dict[str, int]) -> None:
    x = np.arange(block, dtype="i4") % 3
    out = np.full((5, block), -7, "i4")
    assert basic.run("votes", [1], [block], [out, x], **order).kind == FINISHED
    expected = [np.count_nonzero(x), int(x.all()), int(x.any()), 1, 0]
    assert out.tolist() == [[value] * block for value in expected]


def test_threads_that_have_left_are_not_waited_for(basic: Kernels, order: dict[str, int]) -> None:
    out = np.full(100, -1, "i4")
    assert basic.run("leave_early", [1], [128], [out, np.int32(100)], **order).kind == FINISHED
    assert np.array_equal(out, np.arange(100)[::-1])


def test_signatures(basic: Kernels) -> None:
    assert basic.signature("add") == "*f4 *cf4 *cf4 i4"
    assert basic.signature("no_parameters") == ""
    assert basic.signature("types") == "*b1 *cf8 *i1 *cu2 *c*cf4 u8 f4 *void *cf4x4 i8"
    assert basic.run("no_parameters", [1], [1]).kind == FINISHED


ATOMICS = """
extern "C" __global__ void integers(int* out, unsigned* u, unsigned long long* big) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&out[0], i);
    atomicSub(&out[1], i);
    atomicMax(&out[2], (i * 37) % 101);
    atomicMin(&out[3], (i * 37) % 101 - 50);
    atomicAnd(&out[4], ~(1 << i % 7));
    atomicOr(&out[5], 1 << i % 31);
    atomicXor(&out[6], i);
    atomicAdd(&out[7], atomicExch(&out[8], i));
    for (int old = out[9], was;; old = was) {
        was = atomicCAS(&out[9], old, old + 2 * i);
        if (was == old) break;
    }
    atomicInc(&u[0], 6);
    atomicDec(&u[1], 4);
    atomicMax(&u[2], 0x80000000u + i);
    atomicAdd(&big[0], 1ull << 33);
    atomicMax(&big[1], (unsigned long long)i << 35);
}
extern "C" __global__ void floats(float* f, double* d) {
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
}
extern "C" __global__ void last_block(float* out, float* part, unsigned* count, const float* x) {
    __shared__ float s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    for (int half = 32; half; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || t != 0) return;
    float sum = 0;
    for (unsigned block = 0; block < gridDim.x; block++) sum += part[block];
    out[0] = sum;
}
__device__ void grid_barrier(unsigned* arrived, unsigned round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned*)arrived < round * gridDim.x) { }
        __threadfence();
    }
    __syncthreads();
}
extern "C" __global__ void around(int* x, unsigned* arrived, int rounds) {
    unsigned left = (blockIdx.x + gridDim.x - 1) % gridDim.x, round = 0;
    for (int r = 0; r < rounds; r++) {
        int seen = x[left * blockDim.x + threadIdx.x];
        grid_barrier(arrived, ++round);
        x[blockIdx.x * blockDim.x + threadIdx.x] = seen + 1;
        grid_barrier(arrived, ++round);
    }
}
extern "C" __global__ void ring_of_flags(int* flags, int rounds) {
    int t = threadIdx.x, n = blockDim.x;
    for (int r = 0; r < rounds; r++) {
        while (md_load_acquire(&flags[t]) != r * n + t) { }
        md_store_release(&flags[(t + 1) % n], r * n + t + 1);
    }
}
extern "C" __global__ void lock(int* mutex, int* counter) {
    while (atomicExch(mutex, 1)) { }
    int seen = *counter;
    __nanosleep(10);
    *counter = seen + 1;
    __threadfence();
    atomicExch(mutex, 0);
}
"""


@pytest.fixture(scope="module")
def atomics() -> Kernels:
    return Kernels(ATOMICS)


def test_atomics_on_integers(atomics: Kernels, order: dict[str, int]) -> None:
    out, unsigned = np.array([0, 0, -5, 5, -1, 0, 0, 0, 0, 0], "i4"), np.array([0, 2, 7], "u4")
    big = np.zeros(2, "u8")
    assert atomics.run("integers", [5], [40], [out, unsigned, big], **order).kind == FINISHED
    i = np.arange(200)
    assert out[:7].tolist() == [
        i.sum(),
        -i.sum(),
        (i * 37 % 101).max(),
        (i * 37 % 101).min() - 50,
        ~0b1111111,
        2**31 - 1,
        np.bitwise_xor.reduce(i),
    ]
    assert out[7] + out[8] == i.sum()
    assert out[9] == 2 * i.sum()
    assert unsigned.tolist() == [200 % 7, (2 - 200) % 5, 0x80000000 + 199]
    assert big.tolist() == [200 << 33, 199 << 35]


def test_atomics_on_floats(atomics: Kernels, order: dict[str, int]) -> None:
    f, d = np.zeros(1, "f4"), np.zeros(1, "f8")
    assert atomics.run("floats", [7], [50], [f, d], **order).kind == FINISHED
    assert (f[0], d[0]) == (175, 87.5)


def test_the_last_block_sums_what_the_others_have_left(
    atomics: Kernels, order: dict[str, int]
) -> None:
    x = np.arange(17 * 64, dtype="f4")
    out, part, count = np.zeros(1, "f4"), np.zeros(17, "f4"), np.zeros(1, "u4")
    for _ in range(3):
        done = atomics.run("last_block", [17], [64], [out, part, count, x], **order)
        assert done.kind == FINISHED
        assert (out[0], count[0]) == (x.sum(), 0)


def test_a_barrier_over_the_grid_needs_a_worker_for_each_block(
    atomics: Kernels, order: dict[str, int]
) -> None:
    x, arrived = np.repeat(np.arange(6, dtype="i4"), 32), np.zeros(1, "u4")
    done = atomics.run("around", [6], [32], [x, arrived, np.int32(4)], workers=6, **order)
    assert (done.kind, done.text) == (FINISHED, b"")
    assert np.array_equal(x, np.repeat((np.arange(6) - 4) % 6, 32) + 4)


def test_threads_of_a_block_wait_for_each_other_by_flags(
    atomics: Kernels, order: dict[str, int]
) -> None:
    flags = np.zeros(50, "i4")
    assert atomics.run("ring_of_flags", [1], [50], [flags, np.int32(3)], **order).kind == FINISHED
    assert flags[0] == 150


def test_a_lock_is_handed_on(atomics: Kernels, order: dict[str, int]) -> None:
    mutex, counter = np.zeros(1, "i4"), np.zeros(1, "i4")
    done = atomics.run("lock", [4], [32], [mutex, counter], workers=2, **order)
    assert (done.kind, counter[0]) == (FINISHED, 128)


RACE = """
extern "C" __global__ void scan(float* y, const float* x, int with_barrier) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        float left = t >= step ? s[t - step] : 0;
        if (with_barrier) __syncthreads();
        s[t] += left;
        __syncthreads();
    }
    y[t] = s[t];
}
"""


def test_orders_change_nothing_unless_a_barrier_is_missing() -> None:
    kernels = Kernels(RACE)
    x = np.random.default_rng(0).random(128, "f4")
    seen: dict[int, set[bytes]] = {0: set(), 1: set()}
    for with_barrier, results in seen.items():
        for kind, seed in [*ORDERS, (RANDOM, 3)]:
            y = np.zeros(128, "f4")
            args = [y, x, np.int32(with_barrier)]
            kernels.run("scan", [1], [128], args, order=kind, seed=seed)
            results.add(y.tobytes())
    assert len(seen[1]) == 1
    assert len(seen[0]) > 1


def test_the_same_seed_gives_the_same_order() -> None:
    kernels = Kernels(RACE)
    x, y, again = (
        np.random.default_rng(0).random(128, "f4"),
        np.zeros(128, "f4"),
        np.zeros(128, "f4"),
    )
    for out in (y, again):
        kernels.run("scan", [1], [128], [out, x, np.int32(0)], order=RANDOM, seed=5)
    assert y.tobytes() == again.tobytes()


def test_two_thousand_launches_and_a_fork(basic: Kernels) -> None:
    c, ones = np.zeros(300, "f4"), np.ones(300, "f4")
    args = [c, c, ones, np.int32(300)]
    config = basic.config("add", [3], [100], args)
    outcome = glue.Outcome()

    def launch() -> int:
        handle = basic.runtime.md_launch(config)
        while not basic.runtime.md_wait(handle, 50):
            pass
        basic.runtime.md_end(handle, outcome)
        return outcome.kind

    for _ in range(2000):
        assert launch() == FINISHED
    assert np.all(c == 2000)
    sys.stdout.flush()
    with warnings.catch_warnings():  # Python warns of a fork when there are threads, as here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:  # nothing of pytest may run here
        os._exit(7 if launch() == FINISHED and c[0] == 2001 and launch() == FINISHED else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert launch() == FINISHED
    assert np.all(c == 2001)


@pytest.mark.slow
def test_portable_switch() -> None:
    """The same runtime with ucontext instead of the hand-written switch, in its own process."""
    code = (
        "import numpy as np\n"
        "from tests.cuda import glue, test_runtime as tests\n"
        "glue.runtime = lambda *f, build=glue.runtime: build('-DMD_UCONTEXT')\n"
        "kernels = glue.Kernels(tests.BASIC)\n"
        "for kind, seed in tests.ORDERS:\n"
        "    tests.test_sums_with_barriers_and_dynamic_shared_memory(\n"
        "        kernels, 100, {'order': kind, 'seed': seed})\n"
        "print('right')\n"
    )
    assert glue.python(code) == "right\n"
