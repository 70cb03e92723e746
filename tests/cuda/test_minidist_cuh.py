"""kernels/minidist.cuh: reductions in blocks of every size and shape, conversions, vector loads."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from minidist import cuda

pytestmark = pytest.mark.kernel

REDUCTIONS = """
#include "minidist.cuh"

extern "C" __global__ void reductions(const float* x, float* sums, int* counts, double* most) {
    const unsigned t = thread_of_block(), n = threads_of_block();
    // One after another: a late reader of the first must not see what the second one leaves.
    sums[t] = block_sum(x[t]);
    sums[n + t] = block_sum(2 * x[t]);
    sums[2 * n + t] = warp_sum(x[t]);
    counts[t] = block_sum(1);
    counts[n + t] = (int)lanes_of_warp();
    most[t] = block_max((double)x[t]);
    most[n + t] = warp_max((double)x[t]);
}
"""


@pytest.fixture(scope="module")
def reductions():
    return cuda.load(code=REDUCTIONS).get_function("reductions")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "block", [(1,), (2,), (31,), (32,), (33,), (63,), (97,), (5, 7), (3, 4, 9), (1000,), (32, 32)]
)
def test_all_threads_get_the_reduction_of_their_block_and_of_their_warp(reductions, block, seed):
    n = int(np.prod(block))
    x = np.random.default_rng(n).integers(-99, 100, n).astype(np.float32)
    sums, counts = np.zeros((3, n), np.float32), np.zeros((2, n), np.int32)
    most = np.zeros((2, n))
    with cuda.settings(order="random" if seed else "forward", seed=seed):
        reductions(1, block, (x, sums, counts, most))
    starts = np.arange(0, n, 32)
    lanes = np.diff(np.append(starts, n))
    assert (sums[0] == x.sum()).all()
    assert (sums[1] == 2 * x.sum()).all()
    assert (sums[2] == np.repeat(np.add.reduceat(x, starts), lanes)).all()
    assert (counts[0] == n).all()
    assert (counts[1] == np.repeat(lanes, lanes)).all()
    assert (most[0] == x.max()).all()
    assert (most[1] == np.repeat(np.maximum.reduceat(x, starts), lanes)).all()


@pytest.mark.parametrize("place", [0, 31, 32, 69])
def test_a_maximum_with_nan_is_nan_for_every_thread(reductions, place):
    x, n = np.arange(70, dtype=np.float32), 70
    x[place] = np.nan
    most = np.zeros((2, n))
    reductions(1, n, (x, np.zeros((3, n), np.float32), np.zeros((2, n), np.int32), most))
    assert np.isnan(most[0]).all()
    assert (np.isnan(most[1]) == (np.arange(n) // 32 == place // 32)).all()


VECTORS = """
#include "minidist.cuh"

template <typename T> __device__ void copy(T* out, const T* x) {
    store4(out, load4(x));
    store2(out + 4, load2(x + 4));
    out[6] = down<T>(up(x[6]));
}
extern "C" __global__ void copy_f32(float* out, const float* x) { copy(out, x); }
extern "C" __global__ void copy_f16(__half* out, const __half* x) { copy(out, x); }
extern "C" __global__ void copy_bf16(__nv_bfloat16* out, const __nv_bfloat16* x) { copy(out, x); }
extern "C" __global__ void fits(int* out, const __nv_bfloat16* x) {
    for (unsigned i = 0; i < 6; i++) out[i] = 4 * aligned(x + i, 4) + 2 * aligned(x + i, 2);
}
extern "C" __global__ void which_finite(int* out, const float* x, int n) {
    for (int i = 0; i < n; i++) out[i] = is_finite(x[i]);
}
extern "C" __global__ void flags(unsigned* flag) {
    st_release_sys(flag, ld_acquire_sys(flag) + 1);
}
"""


@pytest.fixture(scope="module")
def vectors():
    return cuda.load(code=VECTORS)


@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", bfloat16)]
)
def test_elements_stay_in_their_places(vectors, name, dtype):
    x = np.array([1, -2, 0.1, np.inf, 3e4, -0.0, 1e-7], np.float32).astype(dtype)
    out = np.zeros(8, dtype)
    vectors.get_function(f"copy_{name}")(1, 1, (out, x))
    assert out[:7].tobytes() == x.tobytes()
    assert out[7] == 0


def test_aligned_looks_at_the_address(vectors):
    x, out = np.zeros(12, np.uint16), np.zeros(6, np.int32)
    x = x[-(x.ctypes.data // 2) % 4 :]
    vectors.get_function("fits")(1, 1, (out, x))
    assert out.tolist() == [6, 0, 2, 0, 6, 0]


def test_what_is_finite(vectors):
    x = np.array([0, -1, 3e38, 1e-45, np.inf, -np.inf, np.nan], np.float32)
    out = np.zeros(7, np.int32)
    vectors.get_function("which_finite")(1, 1, (out, x, 7))
    assert out.tolist() == [1, 1, 1, 1, 0, 0, 0]


def test_flags_are_read_and_written(vectors):
    flag = np.array([41], np.uint32)
    vectors.get_function("flags")(1, 1, (flag,))
    assert flag[0] == 42
