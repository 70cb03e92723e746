"""16-bit values in kernels: atomic sums, shuffles, and errors at the line of the kernel."""

import ml_dtypes
import numpy as np
import pytest

from minidist import cuda
from minidist.errors import KernelFault

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(not cuda.emulator_available()[0], reason=cuda.emulator_available()[1]),
]

TYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
PAIRS = {"__half": "__half2", "__nv_bfloat16": "__nv_bfloat162"}
CODE = """#include <cuda_bf16.h>
extern "C" __global__ void count(HALF* out) { atomicAdd(&out[threadIdx.x % 2], HALF(1.0f)); }
extern "C" __global__ void count_pairs(HALF* out) {
    PAIR* pair = (PAIR*)out;
    atomicAdd(pair, PAIR(1.0f, 2.0f));
}
extern "C" __global__ void turn(HALF* out, const HALF* in) {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, in[threadIdx.x], 1);
}
extern "C" __global__ void by_conversion(float* out, const HALF* in) {
    out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void by_operator(HALF* out, const HALF* in) {
    out[threadIdx.x] = in[0] *
        in[threadIdx.x];
}
extern "C" __global__ void by_pair(PAIR* out, const PAIR* in) {
    out[threadIdx.x] = __hadd2(in[0], in[threadIdx.x]);
}
extern "C" __global__ void by_atomic(HALF* out) {
    atomicAdd(&out[threadIdx.x], HALF(1.0f));
}
extern "C" __global__ void by_sum(HALF* out) {
    out[threadIdx.x] += 1.0f;
}
"""


@pytest.fixture(scope="module", params=TYPES)
def module(request):
    half = request.param
    code = CODE.replace("HALF", half).replace("PAIR", PAIRS[half])
    return cuda.load(code=code), TYPES[half]


def test_atomic_sums_lose_nothing(module):
    loaded, dtype = module
    out = np.zeros(2, dtype)
    with cuda.settings(order="random", seed=1, workers=2):
        loaded.get_function("count")((4,), (32,), (out,))
        assert out.astype(float).tolist() == [64, 64]
        loaded.get_function("count_pairs")((2,), (32,), (out,))
    assert out.astype(float).tolist() == [128, 192]


def test_shuffles_carry_them(module):
    loaded, dtype = module
    values, out = np.arange(32).astype(dtype), np.zeros(32, dtype)
    loaded.get_function("turn")((1,), (32,), (out, values))
    assert np.array_equal(out.astype(float), np.arange(32) ^ 1)


@pytest.mark.parametrize(
    ("name", "line"), [("by_conversion", 11), ("by_operator", 15), ("by_pair", 18)]
)
def test_a_read_out_of_bounds_names_the_line_of_the_kernel(module, name, line):
    loaded, dtype = module
    size = 2 if name == "by_pair" else 1
    values = np.ones(31 * size, dtype)
    out = np.zeros(32 * size, np.float32 if name == "by_conversion" else dtype)
    with pytest.raises(KernelFault) as caught:
        loaded.get_function(name)((1,), (32,), (out, values))
    message = str(caught.value)
    assert "argument 1 'in'" in message
    assert f"<code>:{line}" in message, message


@pytest.mark.parametrize(("name", "line"), [("by_atomic", 21), ("by_sum", 24)])
def test_a_write_out_of_bounds_names_the_line_of_the_kernel(module, name, line):
    loaded, dtype = module
    with pytest.raises(KernelFault) as caught:
        loaded.get_function(name)((1,), (32,), (np.zeros(31, dtype),))
    message = str(caught.value)
    assert "element 31 of argument 0 'out'" in message
    assert f"<code>:{line}" in message, message
