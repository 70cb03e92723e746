"""The judge of kernels names what is wrong, and wrong kernels fail their cases."""

import re

import numpy as np
import pytest

from minidist import cuda
from minidist.cuda.source import kernels_folder
from minidist.errors import KernelFault
from tests.cuda.kernel_cases import Case, Want, arrays_of, elsewhere, wrong
from tests.cuda.kernel_cases_a import CASES
from tests.tiers import fast_and_slow

# --- the judge ------------------------------------------------------------------------------------

OWNER = np.arange(9, dtype=np.float32)


def doubling(change=lambda x, out: None) -> str:
    """Double x by hand, into its neighbour and another array, change something, and judge."""

    def arguments():
        owner = OWNER.copy()
        return [owner[2:4], [owner[4:6], np.full(2, np.nan, np.float32)], None, 7]

    def reference(x, pair, nothing, number):
        return {(1, 0): Want(2 * x), (1, 1): Want(2.0 * x, 0.5)}

    case = Case("double", "none.cu", "double", (1,), (1,), arguments, reference)
    before = case.arguments()
    after = elsewhere(before, np.copy)
    x, first, second = arrays_of(after).values()
    first[:] = 2 * x
    second[:] = 2 * x + 0.25
    change(x, first if first.base is None else first.base)
    return wrong(case, before, after)


def test_the_judge_accepts_what_is_right():
    assert doubling() == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, owner: x.__setitem__(1, 0), "argument 0: element 1 has changed"),
        (lambda x, owner: owner.__setitem__(6, 0), "element 4 has changed and is no result"),
        (lambda x, owner: owner.__setitem__(0, 1), "element -2 has changed and is no result"),
        (lambda x, owner: owner.__setitem__(5, 7), r"argument \(1, 0\): 1 of 2 elements differ"),
        (lambda x, owner: owner.__setitem__(4, np.nan), "the first is .0,.: .*nan"),
    ],
)
def test_the_judge_names_what_is_wrong(change, words):
    assert re.search(words, doubling(change)), doubling(change)


def test_views_of_one_array_stay_so_elsewhere():
    owner = np.arange(6.0)
    x, y, (z,) = elsewhere([owner[1:3], owner[2:], [owner]], np.copy)
    y[0] = 7
    assert (x[1], z[2], owner[2]) == (7, 7, 2)


# --- wrong kernels --------------------------------------------------------------------------------

MUTANTS = [  # kernel, what stands in its file, what is put in its place
    ("elementwise.cu", "add_f32", "if (i < n) out", "if (i < n - 1) out"),
    ("elementwise.cu", "add_f32", "if (i < n) out", "if (i <= n) out"),
    (
        "elementwise.cu",
        "add_f32_vec",
        "const bool fit = aligned(out, 4)",
        "const bool fit = true || aligned(out, 4)",
    ),
    ("elementwise.cu", "add_f32_vec", "i = 4 * groups + first", "i = 4 * (n / 4) + first"),
    ("elementwise.cu", "max_bf16", "return Max()(a, b)", "return fmaxf(a, b)"),
    ("pack.cu", "pack_search_f32", "offsets[middle] <= i", "offsets[middle] < i"),
    ("pack.cu", "unpack_blocks_bf16", "left < chunk ? left : chunk", "chunk"),
    ("reduce.cu", "sum_sequential", "(count + 1) / 2", "count / 2"),
    ("reduce.cu", "sum_interleaved", " && t + step < blockDim.x", ""),
    ("reduce.cu", "sum_last_block", "(arrived, gridDim.x - 1)", "(arrived, gridDim.x)"),
    ("reduce.cu", "sum_squares", "(double)x * x", "x * x"),
    ("reduce.cu", "largest", "most = Max()(most, x[i])", "most = fmaxf(most, x[i])"),
    ("adamw.cu", "adamw_f32", "sqrtf(v) * s.root + s.eps", "sqrtf(v + s.eps) * s.root"),
    ("adamw.cu", "adamw_f32", "x * s.keep - m", "x - m"),
    ("adamw.cu", "adamw_bf16_vec", "*not_finite != 0", "*not_finite > 1"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("file", "kernel", "old", "new"), fast_and_slow(MUTANTS, 2))
def test_a_wrong_kernel_fails_one_of_its_cases(file, kernel, old, new):
    text = (kernels_folder() / file).read_text("utf-8")
    assert old in text, f"{file} no longer has {old!r}"
    mutant = cuda.load(code=text.replace(old, new)).get_function(kernel)
    assert any(rejects(case, mutant) for case in CASES if case.kernel == kernel)


def rejects(case: Case, kernel: cuda.Kernel) -> bool:
    before = case.arguments()
    after = elsewhere(before, np.copy)
    try:
        kernel(case.grid, case.block, after, shared_mem=case.shared_mem)
    except KernelFault:
        return True
    return bool(wrong(case, before, after))
