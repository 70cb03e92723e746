"""What a kernel can do beside reading and writing arrays ends in an error, and Python lives on."""

import numpy as np
import pytest

from minidist import cuda
from minidist.errors import KernelFault, NoCompilerError
from tests.tiers import fast_and_slow

pytestmark = pytest.mark.kernel

HEAD = 'extern "C" __global__ void k(float* y, const float* x, int n) {'
DEEP = """
__device__ int deep(int n) {
    return n == 0 ? 0 : deep(__shfl_sync(0xffffffff, n, 0) + 1) + 1;
}
"""

OUT = {
    # the lines of a file, and what must be said
    "memcpy": (f"{HEAD}\n memcpy(y, x, 4 * n + 4);\n}}", "element 0 of argument 1 'x'", 2),
    "memset": (f"{HEAD}\n memset(y, 0, 4 * n + 4);\n}}", "element 0 of argument 0 'y'", 2),
    "memmove": (f"{HEAD}\n memmove(y + 1, x, 4 * n);\n}}", "element 1 of argument 0 'y'", 2),
    "abort": (f"{HEAD}\n if (n) abort();\n}}", "abort() or exit() in a kernel", 2),
    "exit": (f"#include <cstdlib>\n{HEAD}\n if (n) exit(3);\n}}", "abort() or exit()", 3),
    "assert.h": (f"#include <assert.h>\n{HEAD}\n assert(n < 3);\n}}", "n < 3", 3),
    "cassert": (f"#include <cassert>\n{HEAD}\n assert(n < 3);\n}}", "n < 3", 3),
    "null": (f"{HEAD}\n float* p = nullptr; p[n] = 1;\n}}", "a null pointer", 2),
    "lanes": (f"{HEAD}\n y[0] = __shfl_sync(1, x[0], 5);\n}}", "not in the mask (lane 0)", 2),
    "recursion": (f"{DEEP}{HEAD}\n y[0] = deep(1);\n}}", "stack overflow", 0),
}


@pytest.mark.parametrize("name", fast_and_slow(OUT, 3))
def test_there_is_no_way_out_of_a_kernel(name):
    text, words, line = OUT[name]
    kernel = cuda.load(code=text).get_function("k")
    room, x = np.full(30, 7, np.float32), np.arange(10, dtype=np.float32)
    with pytest.raises(KernelFault) as told:
        kernel(1, 1, (room[10:20], x, 10))
    assert words in str(told.value)
    assert not line or f":{line}" in str(told.value), told.value
    assert (room[:10] == 7).all()
    assert (room[20:] == 7).all(), "what lies behind the array has been touched"
    add = cuda.load("elementwise.cu").get_function("add_f32")
    add(1, 32, (room[:10], x, x, 10))
    assert np.array_equal(room[:10], 2 * x)


@pytest.mark.parametrize("name", fast_and_slow(["T", "A", "x", "value", "To"], 1))
def test_a_macro_of_the_user_does_not_reach_the_emulators_headers(name):
    text = f"""#include <cuda_fp16.h>
    extern "C" __global__ void k(float* y) {{ {name} z = y[0]; y[0] = z + __half2float(y[1]); }}"""
    y = np.array([1, 2], np.float32)
    cuda.load(code=text, defines={name: "float"}).get_function("k")(1, 1, (y,))
    assert y[0] == 3


@pytest.mark.parametrize("wrong", ['g++ "', "/bin/true"])
def test_a_compiler_that_is_none_is_one_sentence(wrong, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", wrong)
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path))
    with pytest.raises(NoCompilerError, match=r"no C\+\+ compiler here|compiles nothing"):
        cuda.load(code=f"{HEAD} }}").get_function("k")(1, 1, (np.ones(1, "f4"),) * 2 + (1,))
