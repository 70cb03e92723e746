"""The emulated float16 and bfloat16 give the bits that NumPy, ml_dtypes and exact fractions give.

Every one of the 65,536 values of each type is tried, and among float32 values those where rounding
is decided: each 16-bit value, each midpoint of two of them, and the neighbours of these.
"""

import bisect
import ctypes
import os
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from minidist import cuda
from tests.tiers import fast_and_slow

INCLUDE = Path(cuda.__file__).parent / "emulation" / "include"
PROBE = Path(__file__).parent / "types_probe.cpp"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
NAN = 0x7FFF  # the one that a GPU makes
ALL = np.arange(2**16, dtype=np.uint16)

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler: apt-get install g++"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NaN and infinity are meant
]


class Format:
    """One of the two types: its names, its NumPy dtype, and rounding by exact comparison."""

    def __init__(self, ctype: str, word: str, dtype: np.dtype, infinity: int):
        self.ctype, self.word, self.dtype, self.infinity = ctype, word, np.dtype(dtype), infinity
        sizes = np.arange(infinity, dtype=np.uint16).view(self.dtype).astype(np.float64)
        self.sizes = sizes.tolist()  # ascending, as the bits are
        self.end = 2 * Fraction(self.sizes[-1]) - Fraction(self.sizes[-2])

    def nearest(self, value: Fraction) -> int:
        """Return the bits of the nearest value, ties to even; zero is positive."""
        sign, size = (0x8000, -value) if value < 0 else (0, value)
        above = bisect.bisect_left(self.sizes, size)
        if above == 0:
            return sign
        upper = Fraction(self.sizes[above]) if above < self.infinity else self.end
        twice = 2 * size - Fraction(self.sizes[above - 1]) - upper
        up = twice > 0 or (twice == 0 and above % 2 == 0)
        return sign | (above if up else above - 1)

    def nearest_of_all(self, values: np.ndarray) -> np.ndarray:
        """Do the same with an array of float64, whose doubled values and midpoints are exact."""
        ends = np.array([*self.sizes, float(self.end)])
        size = np.fmin(np.abs(values), ends[-1])  # a NaN becomes the end
        above = np.maximum(np.searchsorted(ends, size), 1)
        twice, middle = 2 * size, ends[above - 1] + ends[above]
        up = (twice > middle) | ((twice == middle) & (above % 2 == 0))
        bits = np.where(up, above, above - 1) | np.where(np.signbit(values), 0x8000, 0)
        return np.where(np.isnan(values), NAN, bits).astype(np.uint16)

    def isnan(self, bits: np.ndarray) -> np.ndarray:
        return (bits & 0x7FFF) > self.infinity

    def canonical(self, values: np.ndarray) -> np.ndarray:
        """Return the bits of an array of this dtype, every NaN as the GPU writes it."""
        bits = values.astype(self.dtype).view(np.uint16)
        return np.where(self.isnan(bits), NAN, bits).astype(np.uint16)


FORMATS = {
    "float16": Format("__half", "half", np.float16, 0x7C00),
    "bfloat16": Format("__nv_bfloat16", "bfloat16", ml_dtypes.bfloat16, 0x7F80),
}


class Probe:
    """The functions of types_probe.cpp for one type, on NumPy arrays."""

    def __init__(self, library: ctypes.CDLL, form: Format):
        self.library, self.form = library, form

    def __call__(self, name, out_dtype, *arrays):
        arrays = [np.ascontiguousarray(array) for array in arrays]
        out = np.empty(arrays[0].size, out_dtype)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, *arrays)]
        getattr(self.library, name)(*pointers, ctypes.c_long(out.size))
        return out


@pytest.fixture(scope="module", params=FORMATS)
def probe(request, tmp_path_factory):
    form = FORMATS[request.param]
    target = tmp_path_factory.mktemp("types") / f"{form.word}.so"
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC"]
    names = [f"-DTYPE={form.ctype}", f"-DWORD={form.word}", f"-I{INCLUDE}"]
    command = [COMPILER, *flags, "-shared", *names, str(PROBE), "-o", str(target)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return Probe(ctypes.CDLL(str(target)), form)


@pytest.fixture(scope="module")
def floats():
    """float32 values where roundings are decided, for both types, and 100,000 random ones."""
    edges = []
    for form in FORMATS.values():
        sizes = np.array(form.sizes)
        edges += [sizes, (sizes[:-1] + sizes[1:]) / 2, [float(form.end + form.sizes[-1]) / 2]]
    near = np.concatenate(edges).astype(np.float32)
    up, down = np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))
    random = np.random.default_rng(1).integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    special = np.array([0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 1, 0x7FFFFF], np.uint32)
    positive = np.concatenate([near, up, down, special.view(np.float32)])
    return np.concatenate([positive, -positive, random])


@pytest.fixture(scope="module")
def pairs():
    """Two arrays of bits: 200,000 random pairs, and every special value with every other."""
    rng = np.random.default_rng(2)
    special = np.array(
        [0, 1, 0x3FF, 0x400, 0x3C00, 0x3F80, 0x7B00, 0x7BFF, 0x7C00, 0x7C01, 0x7F7F, 0x7F80],
        np.uint16,
    )
    special = np.concatenate([special, special | 0x8000, [0x7F81, 0x7FFF, 0xFFFF, 0x80]])
    left, right = np.meshgrid(special, special)
    random = rng.integers(0, 2**16, (2, 200_000), np.uint16)
    first = np.concatenate([random[0], left.ravel()]).astype(np.uint16)
    second = np.concatenate([random[1], right.ravel()]).astype(np.uint16)
    return first, second


def same(ours, expected, *inputs):
    """Compare bit for bit, and show the first inputs where the two differ."""
    ours, expected = (np.asarray(array) for array in (ours, expected))
    wrong = np.flatnonzero(ours.view(f"u{ours.itemsize}") != expected.view(f"u{ours.itemsize}"))
    shown = [([array[i] for array in inputs], ours[i], expected[i]) for i in wrong[:5]]
    assert not shown, f"{wrong.size} differ: (inputs), ours, expected: {shown}"


@pytest.mark.parametrize("name", ["widen", "widen_named"])
def test_every_value_to_float32(probe, name):
    expected = ALL.view(probe.form.dtype).astype(np.float32)
    if probe.form.word == "half":  # bfloat16 keeps the bits of a NaN, float16 does not
        expected.view(np.uint32)[probe.form.isnan(ALL)] = 0x7FFFFFFF
    same(probe(name, np.float32, ALL), expected, ALL)


def test_every_value_survives_the_way_to_float32_and_back(probe):
    back = probe("from_float", np.uint16, probe("widen", np.float32, ALL))
    same(back, np.where(probe.form.isnan(ALL), NAN, ALL).astype(np.uint16), ALL)


@pytest.mark.parametrize("name", ["from_float", "from_float_rn"])
def test_float32_is_rounded_to_nearest_even(probe, floats, name):
    same(probe(name, np.uint16, floats), probe.form.canonical(floats), floats)


@pytest.mark.slow
def test_the_exact_references_agree_with_numpy(probe, floats):
    expected = probe.form.canonical(floats)
    same(probe.form.nearest_of_all(floats.astype(np.float64)), expected, floats)
    values, expected = floats[::97], expected[::97]
    for value, bits in zip(values.tolist(), expected.tolist(), strict=True):
        if np.isfinite(value):
            assert probe.form.nearest(Fraction(value)) & 0x7FFF == bits & 0x7FFF, value


@pytest.mark.slow
def test_directed_roundings_enclose_the_value(probe, floats):
    down = probe("from_float_rd", np.uint16, floats)
    up = probe("from_float_ru", np.uint16, floats)
    zero = probe("from_float_rz", np.uint16, floats)
    nearest = probe("from_float", np.uint16, floats)
    low, high = (bits.view(probe.form.dtype).astype(np.float32) for bits in (down, up))
    number = ~np.isnan(floats)
    assert np.all((low <= floats)[number])
    assert np.all((high >= floats)[number])
    # One of the two is the nearest, the other its neighbour, or they are equal.
    assert np.all(((nearest == down) | (nearest == up))[number])
    order = np.where(down & 0x8000, -(down & 0x7FFF).astype(int), down & 0x7FFF)
    above = np.where(up & 0x8000, -(up & 0x7FFF).astype(int), up & 0x7FFF)
    assert np.all((above - order <= 1)[number])
    same(zero[number], np.where(floats < 0, up, down)[number], floats[number])
    assert np.all(probe.form.isnan(np.stack([down, up, zero])[:, ~number]))


def test_double_is_rounded_once(probe):
    """Just beside a midpoint, where a way through float32 lands on it and takes the wrong side."""
    rng = np.random.default_rng(3)
    index = rng.integers(0, probe.form.infinity - 1, 3000)
    sizes = np.array(probe.form.sizes)
    middle = (sizes[index] + sizes[index + 1]) / 2
    values = np.concatenate([middle * (1 + 2.0**-40), middle * (1 - 2.0**-40), middle, -middle])
    values = np.concatenate([values, [1e300, -1e300, 1e-300, 2.0**128, 65519.999999]])
    same(probe("from_double", np.uint16, values), probe.form.nearest_of_all(values), values)
    special = np.array([np.inf, -np.inf, np.nan, -0.0])
    infinity = probe.form.infinity
    expected = np.array([infinity, infinity | 0x8000, NAN, 0x8000], np.uint16)
    same(probe("from_double", np.uint16, special), expected, special)


INTEGERS = {"short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "ll": "i8", "ull": "u8"}


@pytest.mark.parametrize("word", INTEGERS)
def test_integers_to_the_nearest(probe, word):
    info = np.iinfo(INTEGERS[word])
    powers = [2**k + d for k in range(info.bits) for d in range(-3, 4)]
    odd = [
        s * (2**k + 2 ** (k - p)) + d
        for k in range(20, 64)
        for p in (8, 11)
        for d in (-1, 0, 1)
        for s in (1, -1)
    ]  # midpoints and their neighbours
    wanted = [*powers, *(-p for p in powers), *odd, info.max, info.min]
    values = sorted({value for value in wanted if info.min <= value <= info.max})
    expected = np.array([probe.form.nearest(Fraction(value)) for value in values], np.uint16)
    array = np.array(values, info.dtype)
    same(probe(f"from_{word}", np.uint16, array), expected, array)
    same(probe(f"from_{word}_rn", np.uint16, array), expected, array)


def clamped(values, round_, dtype):
    """Round, and take the nearest end of the range; what CUDA says of NaN."""
    info, out = np.iinfo(dtype), []
    for value in values.tolist():
        if np.isnan(value):
            out.append((2**63 if info.min == 0 else -(2**63)) if info.bits == 64 else 0)
        elif np.isinf(value):
            out.append(info.max if value > 0 else info.min)
        else:
            out.append(min(max(int(round_(value)), info.min), info.max))
    return np.array(out, dtype)


@pytest.mark.parametrize("word", fast_and_slow(INTEGERS, 1))
def test_every_value_to_an_integer(probe, word):
    values, dtype = ALL.view(probe.form.dtype).astype(np.float64), np.dtype(INTEGERS[word])
    roundings = {"_rz": np.trunc, "_rn": np.rint, "_rd": np.floor, "_ru": np.ceil, "": np.trunc}
    for suffix, round_ in roundings.items():
        same(probe(f"to_{word}{suffix}", dtype, ALL), clamped(values, round_, dtype), ALL)


@pytest.mark.slow
@pytest.mark.parametrize(("word", "dtype"), [("char", np.int8), ("uchar", np.uint8)])
def test_every_value_to_a_char(probe, word, dtype):
    values = ALL.view(probe.form.dtype).astype(np.float64)
    same(probe(f"to_{word}_rz", dtype, ALL), clamped(values, np.trunc, dtype), ALL)


ARITHMETIC = {
    "__hadd": np.add, "__hsub": np.subtract, "__hmul": np.multiply, "__hdiv": np.divide,
    "__hadd_rn": np.add, "__hsub_rn": np.subtract, "__hmul_rn": np.multiply,
}  # fmt: skip
OPERATORS = {"plus": np.add, "minus": np.subtract, "times": np.multiply, "over": np.divide}


@pytest.mark.parametrize("name", fast_and_slow([*ARITHMETIC, *OPERATORS], 2))
def test_arithmetic_is_rounded_once(probe, pairs, name):
    operation = (ARITHMETIC | OPERATORS)[name]
    ours = probe(name if name in OPERATORS else f"do_{name}", np.uint16, *pairs)
    narrow = [bits.view(probe.form.dtype).astype(np.float32) for bits in pairs]
    same(ours, probe.form.canonical(operation(*narrow)), *pairs)


@pytest.mark.parametrize("name", ["__hadd_sat", "__hsub_sat", "__hmul_sat"])
def test_saturated_results_stay_within_0_and_1(probe, pairs, name):
    narrow = [bits.view(probe.form.dtype).astype(np.float32) for bits in pairs]
    wide = ARITHMETIC[name.removesuffix("_sat")](*narrow)
    expected = np.where(np.isnan(wide), 0, np.clip(wide, 0, 1)) + np.float32(0)  # no -0
    same(probe(f"do_{name}", np.uint16, *pairs), probe.form.canonical(expected), *pairs)


def test_fused_multiply_add_is_rounded_once(probe):
    """Random values, and products near a midpoint that a tiny third one moves to one side."""
    rng, form = np.random.default_rng(4), probe.form
    random = rng.integers(0, form.infinity, (3, 4000), np.uint16)
    random |= rng.integers(0, 2, random.shape, np.uint16) << 15
    one = 0x3C00 if form.word == "half" else 0x3F80
    close = rng.integers(one, one + 64, (2, 4000), np.uint16)
    tiny = rng.integers(1, 64, 4000, np.uint16) | (rng.integers(0, 2, 4000, np.uint16) << 15)
    a, b, c = np.concatenate([random, np.stack([*close, tiny])], axis=1)
    x, y, z = (v.view(form.dtype).astype(np.float64).tolist() for v in (a, b, c))
    expected = [
        form.nearest(Fraction(p) * Fraction(q) + Fraction(r))
        for p, q, r in zip(x, y, z, strict=True)
    ]
    ours = probe("fused", np.uint16, a, b, c)
    zero = np.array(expected, np.uint16) & 0x7FFF == 0  # whose sign has rules of its own
    same(
        np.where(zero, ours & 0x7FFF, ours), np.where(zero, 0, expected).astype(np.uint16), a, b, c
    )


COMPARISONS = {
    "eq": np.equal, "le": np.less_equal, "ge": np.greater_equal, "lt": np.less, "gt": np.greater,
}  # fmt: skip
SIGNS = {"equal": "eq", "below": "lt", "above": "gt", "at_most": "le", "at_least": "ge"}


def test_comparisons_and_what_they_say_of_nan(probe, pairs):
    a, b = (bits.view(probe.form.dtype).astype(np.float32) for bits in pairs)
    unordered = np.isnan(a) | np.isnan(b)
    for word, operation in COMPARISONS.items():
        same(probe(f"do___h{word}", bool, *pairs), operation(a, b), a, b)
        same(probe(f"do___h{word}u", bool, *pairs), operation(a, b) | unordered, a, b)
    same(probe("do___hne", bool, *pairs), (a != b) & ~unordered, a, b)
    same(probe("do___hneu", bool, *pairs), a != b, a, b)
    same(probe("unequal", bool, *pairs), a != b, a, b)
    for name, word in SIGNS.items():
        same(probe(name, bool, *pairs), COMPARISONS[word](a, b), a, b)


def test_largest_and_smallest(probe, pairs):
    a, b = (bits.view(probe.form.dtype).astype(np.float32) for bits in pairs)
    both_zero, unordered = (a == 0) & (b == 0), np.isnan(a) | np.isnan(b)
    larger, smaller = np.fmax(a, b), np.fmin(a, b)
    larger[both_zero] = np.where(np.signbit(a) & np.signbit(b), -0.0, 0.0)[both_zero]
    smaller[both_zero] = np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0)[both_zero]
    for name, expected in (("__hmax", larger), ("__hmin", smaller)):
        same(probe(f"do_{name}", np.uint16, *pairs), probe.form.canonical(expected), a, b)
        expected = np.where(unordered, np.float32(np.nan), expected)
        same(probe(f"do_{name}_nan", np.uint16, *pairs), probe.form.canonical(expected), a, b)


MATHEMATICS = {
    "hexp": np.exp, "hexp2": np.exp2, "hlog": np.log, "hlog2": np.log2, "hlog10": np.log10,
    "hsin": np.sin, "hcos": np.cos, "htanh": np.tanh, "hsqrt": np.sqrt,
    "hexp10": lambda x: np.power(10.0, x), "hrsqrt": lambda x: 1 / np.sqrt(x),
    "hrcp": lambda x: 1 / x, "htrunc": np.trunc, "hceil": np.ceil, "hfloor": np.floor,
    "hrint": np.rint, "__hneg": np.negative, "__habs": np.abs,
}  # fmt: skip


@pytest.mark.parametrize("name", fast_and_slow(MATHEMATICS, 2))
def test_mathematics_of_every_value(probe, name):
    exact = MATHEMATICS[name](ALL.view(probe.form.dtype).astype(np.float64))
    expected = probe.form.nearest_of_all(exact)
    same(probe(f"do_{name}", np.uint16, ALL), expected, ALL)


def test_kinds_of_values(probe):
    values = ALL.view(probe.form.dtype).astype(np.float32)
    same(probe("truth", bool, ALL), values != 0, ALL)
    same(probe("is_nan", bool, ALL), np.isnan(values), ALL)
    expected = np.where(np.isinf(values), np.sign(values), 0)
    same(probe("is_inf", np.int32, ALL), np.nan_to_num(expected).astype(np.int32), ALL)
