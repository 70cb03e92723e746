"""Every wrong argument of a launch is one exception that says what is wrong, before it runs."""

import itertools
import sys
import types

import numpy as np
import pytest
from ml_dtypes import bfloat16

from minidist import cuda
from minidist.cuda.arguments import Memory, Table, backend, convert
from minidist.cuda.limits import block_of, grid_of, shared_of
from minidist.cuda.memory import ranges, slots
from minidist.cuda.settings import current
from minidist.cuda.signature import signatures
from minidist.cuda.source import read
from minidist.errors import ArgumentError, ConfigError, KernelError, KernelRangeError

X = np.arange(8, dtype=np.float32)
READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False


def kernel(listed: str):
    return signatures(read(code=f'extern "C" __global__ void k({listed}) {{}}'))["k"]


def one(listed: str, arg):
    [value] = convert(kernel(listed), (arg,))
    return value


FITS = [
    ("int n", 5, 5),
    ("int n", np.int64(-(2**31)), -(2**31)),
    ("int n", True, 1),
    ("int n", np.bool_(True), 1),
    ("unsigned long long n", 2**64 - 1, 2**64 - 1),
    ("signed char n", -128, -128),
    ("bool b", False, 0),
    ("bool b", np.bool_(True), 1),
    ("bool b", 1, 1),
    ("float a", 0.5, 0.5),
    ("float a", 3, 3.0),
    ("float a", np.float64(0.25), 0.25),
    ("float a", np.int8(2), 2.0),
    ("float a", float("inf"), float("inf")),
    ("double a", 1e300, 1e300),
    ("__half a", 0.1, np.float16(0.1)),
    ("__half a", np.float16(2), 2.0),
    ("__nv_bfloat16 a", 1.5, 1.5),
    ("__nv_bfloat16 a", bfloat16(3), 3.0),
    ("float a", bfloat16(3), 3.0),
]


@pytest.mark.parametrize(("listed", "arg", "wanted"), FITS)
def test_scalars_become_what_is_declared(listed, arg, wanted):
    value = one(listed, arg)
    assert value == wanted
    assert value.dtype == kernel(listed).parameters[0].kind.dtype


def test_a_nan_is_a_number():
    assert np.isnan(one("float a", float("nan")))


@pytest.mark.parametrize(
    ("listed", "arg", "words"),
    [
        ("int n", 2**31, "k: argument 0 'n' is 2147483648, and int32 holds -2147483648 to"),
        ("unsigned n", -1, "is -1, and uint32 holds 0 to 4294967295"),
        ("signed char n", 200, "is 200, and int8 holds -128 to 127"),
        ("bool b", 2, "is 2, and bool holds 0 to 1"),
        ("float a", 1e39, r"is 1e\+39, too large for float32"),
        ("__half a", 70000, "is 70000, too large for float16"),
        ("double a", 10**400, "too large for float64"),
    ],
)
def test_a_scalar_out_of_range_is_an_overflow(listed, arg, words):
    with pytest.raises(KernelRangeError, match=words) as caught:
        one(listed, arg)
    assert isinstance(caught.value, OverflowError)


UNALIGNED = np.zeros(33, np.uint8)[1:].view(np.float32)

WRONG = [
    ("int n", 1.0, r"k: argument 0 'n' is 1.0 \(float\), the kernel declares int32: pass a whole"),
    ("int n", np.float32(1), r"\(float32\), the kernel declares int32"),
    ("int n", "5", r"is '5' \(str\), the kernel declares int32"),
    ("int n", None, r"is None \(NoneType\), the kernel declares int32"),
    ("int n", X, "is an array, the kernel declares int32: pass a number"),
    ("int n", np.array(3), "is an array, the kernel declares int32"),
    ("float a", "1", r"is '1' \(str\), the kernel declares float32: pass a number"),
    ("float a", 1j, r"is 1j \(complex\), the kernel declares float32"),
    ("float* x", 1.0, "k: argument 0 'x' is a float, the kernel declares float32[*]: pass an arr"),
    ("float* x", [1.0], r"is a list, the kernel declares float32\*: pass np.asarray"),
    ("float* x", 0, "is a int, the kernel declares"),
    (
        "float* x",
        X.astype("f8"),
        r"'x' is float64\[8\], the kernel declares float32\*: use .astype",
    ),
    ("const int* x", X, r"is float32\[8\], the kernel declares const int32\*"),
    ("float* x", X.astype(">f4"), r"is >f4\[8\], the kernel declares"),
    ("float* x", X[::2], r"is float32\[4\] and not C-contiguous \(strides \(8,\)\)"),
    ("float* x", X.reshape(2, 4).T, r"is float32\[4, 2\] and not C-contiguous"),
    ("float* x", READ_ONLY, r"is float32\[8\] and read-only, and the kernel may write"),
    ("const float4* x", X[1:5], "no multiple of 16, as const float32 x 4[*] needs"),
    ("const float* x", UNALIGNED, "no multiple of 4, as const float32[*] needs"),
    ("float* x", cuda.Pointer(6, 4), "no multiple of 4"),
    ("__half* x", X, r"is float32\[8\], the kernel declares float16\*"),
    ("__nv_bfloat16* x", X, r"the kernel declares bfloat16\*"),
    ("float** x", [X, 3], r"'x'\[1\] is a int, the kernel declares float32\*"),
    ("float** x", X, r"is float32\[8\], the kernel declares float32\*\*"),
]


@pytest.mark.parametrize(("listed", "arg", "words"), WRONG)
def test_a_wrong_argument_is_refused(listed, arg, words):
    with pytest.raises(ArgumentError, match=words) as caught:
        one(listed, arg)
    assert isinstance(caught.value, TypeError)
    assert "\n" not in str(caught.value)


def test_the_number_of_arguments_is_told_with_the_declaration():
    with pytest.raises(ArgumentError, match=r"k takes 2 arguments and got 1.*\(const float32\* x"):
        convert(kernel("const float* x, int n"), (X,))
    with pytest.raises(ArgumentError, match="the arguments are a tuple"):
        convert(kernel("float* x"), X)


@pytest.mark.parametrize(
    ("listed", "array"),
    [
        ("float* x", X),
        ("const float* x", READ_ONLY),
        ("const float4* x", np.zeros(4, np.float32)),
        ("__nv_bfloat16* x", np.zeros(3, np.uint16)),
        ("__nv_bfloat16* x", np.zeros(3, bfloat16)),
        ("__half* x", np.zeros(3, np.float16)),
        ("bool* x", np.zeros(3, np.bool_)),
        ("float* x", np.zeros((0, 3), np.float32)),
        ("float* x", np.zeros((), np.float32)),
        ("const float* const* x", np.zeros(2, np.uint64)),
    ],
)
def test_arrays_that_fit(listed, array):
    value = one(listed, array)
    assert (value.address, value.nbytes) == (array.ctypes.data, array.nbytes)


def test_none_is_a_null_pointer_and_raw_memory_an_address():
    assert one("float* x", None).address == 0
    assert one("float* x", cuda.Pointer(4096, 64)) == Memory(4096, 64, "64 bytes of raw memory")
    with pytest.raises(ArgumentError, match="no memory"):
        cuda.Pointer(-1, 4)


def test_a_list_of_arrays_becomes_a_table_of_their_addresses():
    table = one("float** x", [X, None, cuda.Pointer(4096, 8)])
    assert isinstance(table, Table)
    assert table.array.tolist() == [X.ctypes.data, 0, 4096]
    found = ranges(kernel("float** x"), [table])
    assert [(r.begin, r.size, r.argument, r.writable) for r in found] == [
        (table.address, 24, 0, 0),
        (X.ctypes.data, 32, -1, 1),
        (4096, 8, -1, 1),
    ]


def test_slots_hold_scalars_and_addresses_side_by_side():
    args = (0.5, X, np.int8(-1), None)
    filled, addresses = slots(convert(kernel("float a, float* x, signed char c, int* z"), args))
    assert np.array(filled[:1], np.uint64).view(np.float32)[0] == 0.5
    assert (filled[1], filled[2], filled[3]) == (X.ctypes.data, 255, 0)
    assert [b - a for a, b in itertools.pairwise(addresses)] == [8, 8, 8]


def test_what_one_argument_may_write_another_does_not_forbid():
    signature = kernel("const float* x, float* y, const float* z")
    other = X.copy()
    found = ranges(signature, convert(signature, (X[:4], X[2:], other)))
    assert [r.writable for r in found] == [1, 1, 0]


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for the module, with arrays that only have a type of its name."""
    module = types.ModuleType("cupy")
    module.ndarray = type("ndarray", (), {"__module__": "cupy", "data": None})
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_the_arrays_choose_the_back_end(cupy):
    theirs = cupy.ndarray()
    assert backend("k", (1, X, 2.0, None), None) == "emulator"
    assert backend("k", (1, theirs), "emulator") == "gpu"
    assert backend("k", (1, [X]), None) == "emulator"
    with pytest.raises(
        ArgumentError, match=r"k: argument 2 is an array of CuPy, argument 1 one of N"
    ):
        backend("k", (1, X, theirs), None)


def test_without_arrays_the_settings_choose():
    assert backend("k", (1,), "gpu") == "gpu"
    with pytest.raises(ArgumentError, match=r'k: no argument is an array.*backend="emulator"'):
        backend("k", (1, None), None)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(5, (5, 1, 1)), ((2, 3), (2, 3, 1)), ((2, 3, 4), (2, 3, 4)), ([np.int32(7)], (7, 1, 1))],
)
def test_sizes(size, wanted):
    assert grid_of("k", size) == block_of("k", size) == wanted


LIMITS = [
    (lambda: block_of("k", 1025), r"k: block 1025 has 1,025 along x; a GPU takes 1,024"),
    (lambda: block_of("k", (32, 33)), r"block \(32, 33\) has 1,056 threads; a GPU takes 1,024"),
    (lambda: block_of("k", (1, 1, 65)), "has 65 along z; a GPU takes 64"),
    (lambda: block_of("k", 0), "has 0 along x; a GPU launches at least 1"),
    (lambda: grid_of("k", 0), "k: grid 0 has 0 along x.*do not launch when there is nothing"),
    (lambda: grid_of("k", (1, -1)), "has -1 along y"),
    (lambda: grid_of("k", 2**31), "2,147,483,648 along x; a GPU takes 2,147,483,647"),
    (lambda: grid_of("k", (1, 65536)), "65,536 along y; a GPU takes 65,535"),
    (lambda: grid_of("k", (1, 1, 1, 1)), "has 4 numbers; give 1 to 3"),
    (lambda: grid_of("k", ()), "has 0 numbers"),
    (lambda: grid_of("k", 2.0), r"holds 2.0, no whole number; divide with //"),
    (lambda: grid_of("k", (True,)), "holds True, no whole number"),
    (lambda: grid_of("k", "12"), "holds '12', no whole number"),
    (lambda: grid_of("k", None), "holds None, no whole number"),
    (lambda: grid_of("k", 1025, cooperative=True), "1,025 blocks of a cooperative launch"),
    (lambda: shared_of("k", -1), "shared_mem=-1 is negative"),
    (lambda: shared_of("k", 232449), "232,449 bytes of dynamic shared memory.*227 KB"),
    (lambda: shared_of("k", 232000, 449), "and 449 static shared memory"),
    (lambda: shared_of("k", 1.5), "shared_mem 1.5 holds 1.5, no whole number"),
]


@pytest.mark.parametrize(("launch", "words"), LIMITS, ids=[words[:40] for _, words in LIMITS])
def test_what_a_gpu_does_not_launch_is_refused(launch, words):
    with pytest.raises(ArgumentError, match=words):
        launch()


def test_the_largest_that_a_gpu_launches_is_not_refused():
    assert grid_of("k", (2**31 - 1, 65535, 65535))
    assert block_of("k", (1024, 1, 1))
    assert block_of("k", (16, 1, 64))
    assert shared_of("k", 227 * 1024) == 232448


def test_settings_hold_inside_of_their_block():
    with cuda.settings(order="random", seed=3, timeout=None, workers=2, preempt=False):
        with cuda.settings(seed=4):
            assert (current().order, current().seed) == ("random", 4)
        assert (current().seed, current().timeout, current().workers) == (3, None, 2)
    assert current() == cuda.Settings()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"order": "sideways"}, "order='sideways' is not one of forward, reverse, random"),
        ({"seed": -1}, "seed=-1"),
        ({"timeout": 0}, "timeout=0 is not a number of seconds"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"workers": 0}, "workers=0"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"backend": "cpu"}, "backend='cpu'"),
        ({"check": True}, "cuda.settings has no check; it has order, seed"),
    ],
)
def test_wrong_settings_are_refused(change, words):
    with pytest.raises(ConfigError, match=words), cuda.settings(**change):
        pass


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cuda.load(code="").get_function("k"), "<code> has no kernel 'k'; it has: none"),
        (lambda: cuda.load(code="", name_expressions="k<int>"), r"a tuple of names: \('k<int>',\)"),
        (lambda: cuda.load(code="", defines={"1X": 1}), "'1X' is no name of a macro"),
    ],
)
def test_wrong_loads_are_refused(call, words):
    with pytest.raises(KernelError, match=words):
        call()


def test_a_kernel_shows_what_it_takes():
    module = cuda.load(code='extern "C" __global__ void k(const float* x, int n) {}')
    assert repr(module.get_function("k")) == "<kernel k(const float32* x, int32 n) of <code>>"
