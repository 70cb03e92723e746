"""What a kernel takes, read from its declaration, and what cannot be read."""

import pytest

from minidist.cuda.signature import signatures
from minidist.cuda.source import read
from minidist.errors import CompileError


def words(text: str, *expressions: str, **defines: object) -> dict[str, str]:
    found = signatures(read(code=text), expressions, defines)
    return {
        name: " ".join(f"{p.kind.word}:{p.name}" for p in kernel.parameters)
        for name, kernel in found.items()
    }


KERNEL = 'extern "C" __global__ void k('

LISTS = {
    "float a, double b": "f4:a f8:b",
    "const float* __restrict__ x, float *y": "*cf4:x *f4:y",
    "float const* x, float* const y": "*cf4:x *f4:y",
    "volatile unsigned int* flag": "*u4:flag",
    "unsigned n, unsigned int m, int unsigned o": "u4:n u4:m u4:o",
    "long long a, unsigned long long b, long c, size_t d": "i8:a u8:b i8:c u8:d",
    "signed char a, unsigned char b, char c, short d, unsigned short e": "i1:a u1:b i1:c i2:d u2:e",
    "int8_t a, uint16_t b, int32_t c, uint64_t d": "i1:a u2:b i4:c u8:d",
    "bool b, const int n": "b1:b i4:n",
    "__half h, const half* x, __nv_bfloat16* y": "e2:h *ce2:x *bf2:y",
    "const float4* x, float2* y, int4* z": "*cf4x4:x *f4x2:y *i4x4:z",
    "half2* x, __nv_bfloat162* y": "*e2x2:x *bf2x2:y",
    "float** x, const float* const* y": "**f4:x **cf4:y",
    "": "",
    " void ": "",
    "int a, // one\n  /* two, */ int b": "i4:a i4:b",
}


@pytest.mark.parametrize(("listed", "wanted"), LISTS.items(), ids=LISTS)
def test_parameters(listed, wanted):
    assert words(f"{KERNEL}{listed}) {{}}") == {"k": wanted}


@pytest.mark.parametrize(
    "head",
    [
        'extern "C" __global__ void k(',
        'extern "C" __global__ void __launch_bounds__(256) k(',
        'extern "C" __global__ __launch_bounds__(256, 2) void k(',
        'extern "C" __global__ void __launch_bounds__((N) * (2)) k(',
        'extern "C"\n__global__\nvoid\n__launch_bounds__(256)\nk  (',
    ],
)
def test_heads(head):
    assert words(f"{head}int n) {{}}") == {"k": "i4:n"}


def test_what_is_no_kernel_is_not_found():
    text = f"""
#define MAKE(name) {KERNEL.replace("k(", "name(")}int n) {{}}
#define LONG \\
    {KERNEL}int n) {{}}
// {KERNEL}int n) {{}}
/* {KERNEL}int n) {{}} */
const char* s = R"({KERNEL}int n)";
__device__ void helper(int n) {{}}
"""
    assert words(text) == {}


def test_the_place_is_that_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "k.cu").write_text(f"\n\n{KERNEL}int n) {{}}\n")
    monkeypatch.chdir(tmp_path)
    assert signatures(read("./k.cu"))["k"].place == "k.cu:3"


@pytest.mark.parametrize(
    "declared",
    [
        "struct point p",
        "std::vector<float> v",
        "float& x",
        "float x[]",
        "float4 v",
        "float*** x",
        "void* x",
        "const T* x",
        "dim3 d",
        "int",
        "void (*f)(int)",
        "long double x",
    ],
)
def test_other_types_are_refused_with_their_line(declared):
    with pytest.raises(CompileError, match=r"<code>:2: parameter '.*float, double, __half"):
        words(f"\n{KERNEL}int n, {declared}) {{}}")


def test_names_of_types_are_followed():
    assert words(
        f"typedef unsigned long long u64;\nusing real = float;\n{KERNEL}u64 a, real* x, T b) {{}}",
        T="unsigned char",
    ) == {"k": "u8:a *f4:x u1:b"}


SCALE = """
template <class T> struct other { T x; };
template <class T, int N = 4>
__global__ void scale(T* y, const T* __restrict__ x, float a, int n) {}
template <typename Out, typename In> __global__ void __launch_bounds__(128) cast(Out* y, In* x) {}
__global__ void plain(int n) {}
"""


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("scale<float>", "*f4:y *cf4:x f4:a i4:n"),
        ("scale<__half, 8>", "*e2:y *ce2:x f4:a i4:n"),
        ("scale< unsigned char >", "*u1:y *cu1:x f4:a i4:n"),
        ("cast<float, double>", "*f4:y *f8:x"),
        ("plain", "i4:n"),
    ],
)
def test_instances_of_templates(expression, wanted):
    assert words(SCALE, expression) == {expression: wanted}


def test_a_template_of_a_header_is_found(tmp_path):
    (tmp_path / "k.cu").write_text('#include "t.cuh"\n')
    (tmp_path / "t.cuh").write_text(SCALE)
    [found] = signatures(read(tmp_path / "k.cu"), ("scale<double>",)).values()
    assert found.parameters[0].kind.word == "*f8"


@pytest.mark.parametrize("expression", ["scale", "cast<float>", "nothing<float>", "scale<1, 2, 3>"])
def test_an_expression_that_is_no_kernel_is_refused(expression):
    with pytest.raises(CompileError, match="no kernel template for"):
        words(SCALE, expression)


def test_a_type_that_a_template_makes_of_another_is_refused():
    with pytest.raises(CompileError, match=r"<code>:1: parameter 'typename box<T>::type x'"):
        words("template <class T> __global__ void f(typename box<T>::type x) {}", "f<float>")
