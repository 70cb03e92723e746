"""Blanks that are kernels: what is still to do, what a kernel consists of, and wrong versions."""

import numpy as np
import pytest

from minidist.cuda.source import kernels_folder
from minidist.errors import CompileError, KernelFault, LessonError, NoCompilerError
from minidist.learn import kernels, manifest, report
from minidist.testing.mutants import MutantError

TEXT = """#include "minidist.cuh"
#define TODO(task)
// { not code }
struct Twice { __device__ float operator()(float x) const { return 2 * x; } };

template <typename Op> __device__ void each(float* y, int n, Op op) {
    if (threadIdx.x < n) y[threadIdx.x] = op(y[threadIdx.x]);
}
extern "C" __global__ void twice(float* y, int n) {
    each(y, n, Twice());  // }
}
extern "C" __global__ void left(float* y, int n) {
    TODO("04.1: write "
         "this");
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "exercise.cu"
    path.write_text(TEXT)
    return path


def run(kernel, n=3):
    y = np.arange(3, dtype=np.float32)
    kernel(1, 32, (y, n))
    return y


def test_a_blank_says_what_is_to_do(file):
    with pytest.raises(NotImplementedError, match=r"^04\.1: write this$"):
        kernels.kernel(file, "left")(1, 32, ())


@pytest.mark.kernel
def test_a_kernel_runs_although_another_is_a_blank(file):
    assert np.array_equal(run(kernels.kernel(file, "twice")), [0, 2, 4])


def test_a_kernel_has_the_parts_that_it_uses(file):
    twice = kernels.kernel(file, "twice")
    assert [part.name for part in twice.parts()] == ["Twice", "each", "twice"]
    assert twice.source().startswith("struct Twice {")
    assert twice.source().endswith("// }\n}")
    assert "TODO" not in twice.source()
    assert kernels.kernel(file, "left").source().splitlines()[0].endswith("left(float* y, int n) {")


@pytest.mark.kernel
def test_a_mutant_changes_one_place_of_what_it_uses(file):
    twice = kernels.kernel(file, "twice")
    assert np.array_equal(run(twice.mutated("2 * x", "3 * x")), [0, 3, 6])
    with pytest.raises(KernelFault, match="element 3 of argument 0 'y'"):
        run(twice.mutated("if (threadIdx.x < n) ", ""))
    with pytest.raises(MutantError, match="2 times, not once"):
        twice.mutated("each", "some")
    with pytest.raises(MutantError, match="0 times, not once"):
        twice.mutated("TODO", "")


@pytest.mark.parametrize("change", ["twice(float* y, int n) {{", "twice(float* y, int n) {}}"])
def test_braces_that_do_not_match_are_told(file, change):
    file.write_text(TEXT.replace("twice(float* y, int n) {", change))
    with pytest.raises(CompileError, match=r"^the braces of \w+, or of .*exercise\.cu:\d+$"):
        run(kernels.kernel(file, "twice"))
    with pytest.raises(NotImplementedError, match=r"^04\.1"):
        run(kernels.kernel(file, "left"))


def test_without_a_compiler_the_check_says_what_to_install(file, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoCompilerError) as told:
        run(kernels.kernel(file, "twice"))
    said = report.explain(told.value, manifest.find(manifest.load(), "04"), "test_add_f32")
    assert said.startswith("NoCompilerError: CXX=no-such-compiler is no C++ compiler here")
    assert "apt-get install g++" in said.splitlines()[0]


def test_a_kernel_that_has_gone_is_told(file):
    with pytest.raises(LessonError, match=r"exercise\.cu has no kernel gone any more"):
        kernels.kernel(file, "gone")(1, 32, ())
    with pytest.raises(LessonError, match="git checkout"):
        kernels.kernel(file.with_name("none.cu"), "twice")


def test_a_solution_is_a_kernel_of_the_project():
    source = kernels.of_package("kernels/elementwise.cu:add_scaled_f32_stride").source()
    assert "i += index_stride()" in source
    assert source.count("__global__") == 1


@pytest.mark.parametrize("path", sorted(kernels_folder().glob("*.cu")), ids=lambda path: path.stem)
def test_every_kernel_of_the_project_is_found(path):
    text = path.read_text("utf-8")
    parts = {part.name: text[part.begin : part.end] for part in kernels.parts_of(text)}
    entries = {name for name, part in parts.items() if part.startswith('extern "C"')}
    assert len(entries) == text.count('\nextern "C" __global__')
