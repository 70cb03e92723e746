"""NVIDIA's compiler takes every kernel for every generation of GPUs, and names the line if not."""

import importlib.metadata
import re

import pytest

from minidist.cuda import nvrtc, source
from minidist.errors import CompileError, KernelError, NoCompilerError
from tests.tiers import fast_and_slow

KERNELS = sorted(path.name for path in source.kernels_folder().glob("*.cu"))
BROKEN = """\
// A first line.
extern "C" __global__ void broken(float* a) {
    a[threadIdx.x] = factor * 2.0f;
}
"""


def installed() -> str:
    try:
        nvrtc.library()
    except NoCompilerError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(installed()), reason=installed())


@pytest.fixture
def fresh():
    """Forget the library that was found, before the test and after it."""
    nvrtc.library.cache_clear()
    nvrtc.headers_folder.cache_clear()
    yield
    nvrtc.library.cache_clear()
    nvrtc.headers_folder.cache_clear()


def test_there_are_kernels():
    assert {"elementwise.cu", "reduce.cu", "attention.cu"} <= set(KERNELS)


ALL = [(name, architecture) for name in KERNELS for architecture in nvrtc.ARCHITECTURES]


@pytest.mark.parametrize(("name", "architecture"), fast_and_slow(ALL, 0, 5))
def test_a_kernel_compiles_without_a_gpu(name, architecture):
    built = nvrtc.build(name, architecture)
    assert built.code[:4] == b"\x7fELF"  # a cubin is an ELF file
    assert built.log == ""  # and the compiler has nothing to complain about


def test_ptx_names_the_architecture_and_the_kernels():
    listing = nvrtc.build("reduce.cu", "sm_80", ptx=True).code.decode()
    assert re.search(r"^\.target sm_80", listing, re.M)
    assert ".visible .entry sum_one_thread(" in listing


def test_defines_reach_the_kernel():
    text = 'extern "C" __global__ void f(int* a) { a[0] = WANTED; }'
    listing = nvrtc.build(code=text, ptx=True, defines={"WANTED": 4711}).code.decode()
    assert "4711" in listing
    with pytest.raises(CompileError, match="WANTED"):
        nvrtc.build(code=text)


@pytest.mark.parametrize("name", ["mine.cu", 'a "quoted" name.cu', "back\\slash.cu"])
def test_a_mistake_is_shown_at_its_line_of_its_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(BROKEN)
    with pytest.raises(CompileError) as caught:
        nvrtc.build(tmp_path / name, "sm_90")
    message = str(caught.value)
    assert message.startswith(f"NVRTC does not compile {name} for sm_90:\n")
    assert f'{name}(3): error: identifier "factor" is undefined' in message
    assert "a[threadIdx.x] = factor * 2.0f;" in message


def test_a_mistake_in_a_header_is_shown_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.cuh").write_text("\n\n__device__ int broken() { return missing; }\n")
    (tmp_path / "mine.cu").write_text('#include "mine.cuh"\n')
    with pytest.raises(CompileError, match=r"mine\.cuh\(3\): error: identifier \"missing\""):
        nvrtc.build("mine.cu")


def test_a_warning_is_no_error():
    built = nvrtc.build(code='extern "C" __global__ void f() {\n  int unused;\n}')
    assert "<code>(2): warning" in built.log
    assert '"unused" was declared but never referenced' in built.log


def test_what_no_compiler_can_do_is_refused():
    with pytest.raises(CompileError, match=r"for sm_12:\nnvrtc: error: invalid value"):
        nvrtc.build("reduce.cu", "sm_12")
    with pytest.raises(KernelError, match="there is no kernel file"):
        nvrtc.build("no_such.cu")


@pytest.mark.usefixtures("fresh")
def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(NoCompilerError) as caught:
        nvrtc.build("reduce.cu")
    assert "pip install 'nvidia-cuda-nvrtc'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("fresh")
def test_a_library_that_does_not_load_is_named(monkeypatch, tmp_path):
    (tmp_path / "libnvrtc.so.13").write_text("no library")
    monkeypatch.setattr(nvrtc, "find_library", lambda: tmp_path / "libnvrtc.so.13")
    with pytest.raises(NoCompilerError, match=r"NVRTC does not load: .*libnvrtc\.so\.13"):
        nvrtc.build("reduce.cu")


@pytest.mark.usefixtures("fresh")
def test_headers_go_into_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "new" / "cache"))
    text = '#include <cuda_fp16.h>\nextern "C" __global__ void f(__half* a) { a[0] = a[1]; }'
    nvrtc.build(code=text)
    assert len(list((tmp_path / "new" / "cache").glob("cuda-headers-*/cuda_fp16.h"))) == 1
