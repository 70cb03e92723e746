"""What NVIDIA's compiler takes, the emulator takes; and what it refuses, the emulator refuses.

Each text is given to both: to NVRTC with CUDA's own headers, and to the C++ compiler with ours.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from minidist import cuda
from minidist.cuda import nvrtc
from minidist.errors import CompileError, NoCompilerError
from tests.tiers import fast_and_slow

INCLUDE = Path(cuda.__file__).parent / "emulation" / "include"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


def missing() -> str:
    if COMPILER is None:
        return "no C++ compiler: apt-get install g++"
    try:
        nvrtc.library()
    except NoCompilerError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

# W stands for half or bfloat16, H for the type, P for the pair; h, p are such values, f a float.
CONVERSIONS = """
    f = __W2float(h); h = __float2W(f); h = __float2W_rn(f); h = __float2W_rz(f);
    h = __float2W_rd(f); h = __float2W_ru(f); h = __double2W(1.5);
    p = __float2W2_rn(f); p = __floats2W2_rn(f, f); p = __float22W2_rn(make_float2(f, f));
    float2 g = __W22float2(p); f = g.x; f = __low2float(p); f = __high2float(p);
    h = __low2W(p); h = __high2W(p); p = __low2W2(p); p = __high2W2(p); p = __halves2W2(h, h);
    p = __W2W2(h); p = __lows2W2(p, p); p = __highs2W2(p, p); p = __lowhigh2highlow(p);
    p = make_W2(h, h); h = p.x; p.y = h; H fresh; P pair; fresh = h; pair = P(h, h);
    unsigned short bits = __W_as_ushort(h); h = __ushort_as_W(bits); h = __short_as_W(3);
    short s = __W_as_short(h); h = s; h = bits; h = 1; h = 1u; h = 1ll; h = 1.0f; h = 1.0;
    f = h; int i = h; long long l = h; bool b = h; H zero = 0.0f; H one(1); if (zero) i = 1;
    i = __W2int_rz(h); i = __W2int_rn(h); i = __W2int_rd(h); i = __W2int_ru(h); h = __int2W_rn(i);
    unsigned u = __W2uint_rz(h); h = __uint2W_rn(u); l = __W2ll_rz(h); h = __ll2W_rn(l);
    unsigned long long v = __W2ull_rz(h); h = __ull2W_rn(v); s = __W2short_rz(h);
    h = __short2W_rn(s); bits = __W2ushort_rz(h); h = __ushort2W_rn(bits);
    signed char c = __W2char_rz(h); unsigned char d = __W2uchar_rz(h); f += c + d + b + i + l;
    RAW raw = h; raw.x = 1; h = raw; volatile H* remote = &h; *remote = raw; raw = *remote;
"""
ONE = """
    h = h + h; h = h - h; h = h * h; h = h / h; h += h; h -= h; h *= h; h /= h; h = -h; h = +h;
    ++h; --h; h++; h--; bool b = h == h && h != h && h < h && h > h && h <= h && h >= h; f = b;
    h = __hadd(h, h); h = atomicAdd(&h, h); f = __hisinf(h) + __hisnan(h);
"""
TWO = """
    p = p + p; p = p - p; p = p * p; p = p / p; p += p; p -= p; p *= p; p /= p; p = -p; p = +p;
    ++p; --p; p++; p--; bool b = p == p && p != p && p < p && p > p && p <= p && p >= p; f = b;
    p = __hisnan2(p); p = atomicAdd(&p, p); p = __hcmadd(p, p, p);
"""
COMPARED = ["eq", "ne", "le", "ge", "lt", "gt", "equ", "neu", "leu", "geu", "ltu", "gtu"]
UNARY = """__hneg __habs hsqrt hrsqrt hrcp hlog hlog2 hlog10 hexp hexp2 hexp10 htanh htanh_approx
    hcos hsin htrunc hceil hfloor hrint"""
UNARY2 = """__hneg2 __habs2 h2sqrt h2rsqrt h2rcp h2log h2log2 h2log10 h2exp h2exp2 h2exp10 h2tanh
    h2tanh_approx h2cos h2sin h2trunc h2ceil h2floor h2rint"""
BINARY = """__hadd __hsub __hmul __hdiv __hadd_rn __hsub_rn __hmul_rn __hadd_sat __hsub_sat
    __hmul_sat __hmax __hmin __hmax_nan __hmin_nan"""
BINARY2 = """__hadd2 __hsub2 __hmul2 __h2div __hadd2_rn __hsub2_rn __hmul2_rn __hadd2_sat
    __hsub2_sat __hmul2_sat __hmax2 __hmin2 __hmax2_nan __hmin2_nan"""
TAKEN = {
    "conversions": CONVERSIONS,
    "operators": ONE,
    "operators of pairs": TWO,
    "one argument": "".join(f"h = {name}(h); " for name in UNARY.split()),
    "one pair": "".join(f"p = {name}(p); " for name in UNARY2.split()),
    "two arguments": "".join(f"h = {name}(h, h); " for name in BINARY.split()),
    "two pairs": "".join(f"p = {name}(p, p); " for name in BINARY2.split()),
    "fused": "".join(f"h = __hfma{word}(h, h, h); p = __hfma2{word}(p, p, p); "
                     for word in ("", "_sat", "_relu")),
    "comparisons": "".join(
        f"f += __h{word}(h, h) + __hb{word}2(p, p) + __h{word}2_mask(p, p); p = __h{word}2(p, p); "
        for word in COMPARED),
    "threads": """
        h = __shfl_down_sync(0xffffffff, h, 1); p = __shfl_xor_sync(0xffffffff, p, 1);
        h = __shfl_sync(0xffffffff, h, 0); p = __shfl_up_sync(0xffffffff, p, 1);
        __shared__ H table[32]; __shared__ P pairs[32]; table[threadIdx.x] = h; pairs[0] = p;
        __syncthreads(); h = table[0]; p = pairs[1]; h = __ldg(&h); p = __ldg(&p);
        __stcs(&h, h); __stcs(&p, p); h = __ldcs(&h);""",
    "other type": "h = H(f); O other = O(h); h = H(other); f = other;",
}  # fmt: skip
REFUSED = {
    "half times float": "h = h * 2.0f;",
    "half plus int": "h = h + 1;",
    "float plus half": "f = f + h;",
    "one type for the other": "O other = h;",
    "two types in one sum": "O other = O(1.0f); f = h + other;",
    "a pair from one value": "p = h;",
    "a value from a pair": "h = p;",
    "the bits themselves": "h.__x = 1;",
    "the larger of two by max": "h = max(h, h);",
    "a half and a float in one call": "h = __hadd(h, f);",
    "a pair and a value in one call": "p = __hadd2(p, h);",
}
TYPES = {
    "half": {"W": "half", "H": "__half", "P": "__half2", "O": "__nv_bfloat16"},
    "bfloat16": {"W": "bfloat16", "H": "__nv_bfloat16", "P": "__nv_bfloat162", "O": "__half"},
}


def kernel(body: str, kind: str) -> str:
    """Fill in the type; h, p and f come from memory, so that nothing is known beforehand."""
    words = TYPES[kind] | {"RAW": TYPES[kind]["H"] + "_raw"}
    filled = re.sub(r"\b(H|P|O|RAW)\b", lambda found: words[found[0]], body)
    filled = re.sub(r"W(?=[2_(])", words["W"], filled)
    return (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
        f'extern "C" __global__ void f({words["H"]}* hs, {words["P"]}* ps, float* fs) {{\n'
        f"    {words['H']} h = hs[0]; {words['P']} p = ps[0]; float f = fs[0];\n"
        f"    {filled}\n    hs[0] = h; ps[0] = p; fs[0] = f;\n}}\n"
    )


def taken_by_nvrtc(text: str) -> tuple[bool, str]:
    try:
        return True, nvrtc.build(code=text, architecture="sm_90", ptx=True).log
    except CompileError as error:
        return False, str(error)


def taken_by_emulator(text: str) -> tuple[bool, str]:
    command = [COMPILER, "-std=c++17", "-fsyntax-only", f"-I{INCLUDE}", "-include"]
    built = subprocess.run(
        [*command, "emulated_cuda.h", "-x", "c++", "-"], input=text, capture_output=True, text=True
    )
    return built.returncode == 0, built.stderr


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("what", fast_and_slow(TAKEN, 1))
def test_both_compilers_take_it(what, kind):
    text = kernel(TAKEN[what], kind)
    for taken, why in (taken_by_nvrtc(text), taken_by_emulator(text)):
        assert taken, f"{text}\n{why}"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("what", fast_and_slow(REFUSED, 1))
def test_both_compilers_refuse_it(what, kind):
    text = kernel(REFUSED[what], kind)
    assert not taken_by_nvrtc(text)[0], text
    assert not taken_by_emulator(text)[0], text


def test_vectors_have_the_sizes_and_alignments_of_cuda():
    sizes = {"char": 1, "short": 2, "int": 4, "long": 8, "longlong": 8}
    sizes |= {f"u{name}": size for name, size in sizes.items()} | {"float": 4, "double": 8}
    lines = []
    for name, size in sizes.items():
        for count in (1, 2, 3, 4):
            align = size if count in (1, 3) else min(16, size * count)
            vector, items = f"{name}{count}", ", ".join("1234"[:count])
            lines.append(f'static_assert(sizeof({vector}) == {size * count}, "{vector}");')
            lines.append(f'static_assert(alignof({vector}) == {align}, "{vector}");')
            lines.append(f"__device__ {vector} a_{vector}() {{ return make_{vector}({items}); }}")
    lines += [
        'static_assert(sizeof(dim3) == 12 && alignof(dim3) == 4, "dim3");',
        "__device__ unsigned volume(dim3 d) { uint3 u = d; dim3 e = u; return d.x * u.y * e.z; }",
        "__device__ unsigned two() { return volume(2); }",
        "__device__ signed char letter(char2 c) { return c.x + c.y; }",
    ]
    text = "\n".join(lines)
    taken, why = taken_by_emulator(text)
    assert taken, why
    # NVRTC finds make_long4 and its like deprecated, which is a warning.
    taken, why = taken_by_nvrtc(text)
    assert taken, why
