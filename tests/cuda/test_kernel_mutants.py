"""The cases of a model's kernels have teeth: each of these wrong versions fails at least one.

A mutant changes one thing that is easily got wrong. Most give wrong numbers; some leave an array,
read what no thread has written, or depend on the order of the threads.
"""

import pytest

from minidist import cuda
from minidist.cuda.source import kernels_folder
from tests.cuda.kernel_cases_b import CASES
from tests.cuda.test_kernel_cases import rejects
from tests.tiers import fast_and_slow

MUTANTS = {
    "rms_norm.cu": [
        ("/ width + eps", "/ width"),
        ("/ width + eps", "+ eps"),
        ("i = lane; i < width", "i = lane + 1; i < width"),
        ("v.z * scale * w.z", "v.z * scale * w.w"),
        ("width % 4 == 0 && ", ""),
        ("aligned(x, 4) && ", ""),
        ("aligned(weight, 4) && ", ""),
        (" && aligned(y, 4)", ""),
        ("if (row >= rows) return;", ""),
        ("if (channel >= width) return;", ""),
        ("row += gridDim.x", "row += gridDim.x + 1"),
        ("row < rows; row += warps", "row < rows - 1; row += warps"),
        (" * scale * scale;", " * scale;"),
        ("row < (part + 1) * step", "row <= (part + 1) * step"),
        ("(rows + parts - 1) / parts", "rows / parts"),
        ("for (int part = 0; part", "for (int part = 1; part"),
    ],
    "cross_entropy.cu": [
        ("        largest = block_max(largest);\n", ""),
        ("sum = sum * expf(largest - x[v]) + 1.0f", "sum += 1.0f"),
        ("block_sum(sum * expf(largest - block_largest))", "block_sum(sum)"),
        ("float weight = label < 0 ? 0.0f : scale", "float weight = scale"),
        ("label < 0 ? 0.0f : logits", "label <= 0 ? 0.0f : logits"),
        ("labels[row] < 0 ? 0.0f : logf(all", "logf(all"),
        ("LOWEST = -3.402823466e38f", "LOWEST = 0.0f"),
        ("LOWEST = -3.402823466e38f", "LOWEST = -__builtin_huge_valf()"),
        ("v == label ? weight", "v == label ? 1.0f"),
        ("all.largest + logf(all.sum)", "logf(all.sum)"),
        ("if (row >= rows) return;", ""),
    ],
    "swiglu.cu": [
        ("s + silu * (1.0f - s)", "s + silu * s"),
        ("expf(-x)", "expf(x)"),
        ("4 * full, n", "4 * full + 1, n"),
        ("full = fours ? n / 4 : 0", "full = fours ? (n + 3) / 4 : 0"),
        ("b.up, c.up", "c.up, b.up"),
        ("aligned(gate, 4) && ", ""),
        (" && aligned(h, 4)", ""),
        ("aligned(dh, 4) && ", ""),
        (" &&\n                 aligned(dups, 4)", ""),
        ("aligned(dgate, 4) &&", ""),
    ],
    "rope.cu": [
        ("b * cosine + a * sine", "b * cosine - a * sine"),
        ("channel < half", "channel <= half"),
        ("(-1.0 / half)", "(-2.0 / half)"),
        ("double angle", "float angle"),
        ("direction * (float)sin", "(float)sin"),
        ("head / heads % length", "head / heads"),
        ("at + half]", "at]"),
        ("pair < n / 2", "pair <= n / 2"),
    ],
    "dropout.cu": [
        ("(number + 1)", "number"),
        ("bits < threshold", "bits <= threshold"),
        ("samples[row / length]", "row / length"),
        ("positions[row % length]", "row % length"),
        ("channels % 4 == 0 && aligned(x, 4)", "aligned(x, 4)"),
        ("aligned(x, 4) && ", ""),
        (" && aligned(y, 4)", ""),
        ("c < channels && ", ""),
        ("c < 4 * k + 4", "c < 4 * k + 3"),
        ("16 * (channel % 4)", "16 * (3 - channel % 4)"),
        ("0.0f : scale", "0.0f : 1.0f"),
        ("word ^ (word >> 31)", "word ^ (word >> 32)"),
    ],
    "attention.cu": [
        ("k_pos <= q_pos[is", "k_pos < q_pos[is"),
        ("k_pos[s] > q_pos[t]", "k_pos[s] >= q_pos[t]"),
        ("my.o[n][i] *= factor", "my.o[n][i] *= 1.0f"),
        ("my.sum[n] * factor", "my.sum[n]"),
        ("        __syncthreads();\n        weigh", "        weigh"),
        ("if (!__syncthreads_or(there && k_pos[s] <= latest)) continue;", ""),
        ("there && k_pos[s] <= latest)", "there && k_pos[s] < latest)"),
        ("is.has(c); c++) latest", "c < 1; c++) latest"),
        ("c < ROWS && is.has(c)", "c < ROWS"),
        ("fmaxf(my.sum[n], 1.0f)", "my.sum[n]"),
        ("fmaxf(sum, 1.0f)", "sum"),
        ("bool visible = there && ", "bool visible = "),
        ("bool there = start + s < is.keys", "bool there = true"),
        ("if (!is.has(own + n)) continue;", ""),
        ("if (channel < is.size) o", "o"),
        ("(first + c) / heads", "(first + c) % queries"),
        ("(first + c) % heads", "0"),
        ("logf(sum)", "logf(fmaxf(sum, 1.0f))"),
        ("my.largest[n] + logf", "logf"),
        ("1.0f / sqrtf((float)is.size)", "1.0f"),
        ("s * groups", "s"),
        ("s) * groups + group;", "s) * groups;"),
        ("largest = LOWEST, sum", "largest = 0.0f, sum"),
        ("is.sample >= batch || ", ""),
    ],
}


ALL = [(file, *change) for file, changes in MUTANTS.items() for change in changes]


@pytest.mark.kernel
@pytest.mark.parametrize(("file", "old", "new"), fast_and_slow(ALL, 0, 27))
def test_a_wrong_version_fails_a_case(file, old, new):
    text = (kernels_folder() / file).read_text("utf-8")
    assert old in text, f"{file} no longer has {old!r}"
    mutant = cuda.load(code=text.replace(old, new))
    with cuda.settings(order="random", timeout=5.0):
        assert any(
            rejects(case, mutant.get_function(case.kernel)) for case in CASES if case.file == file
        )
