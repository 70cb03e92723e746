"""What a kernel did wrong, in words: kernel, element, argument, line, block and thread."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from minidist import cuda
from minidist.cuda import emulator, faults
from minidist.cuda.arguments import convert
from minidist.cuda.compiler import build_library, find
from minidist.cuda.faults import Outcome, error, line_at, shortened
from minidist.cuda.memory import Range
from minidist.cuda.signature import signatures
from minidist.cuda.source import read
from minidist.errors import KernelFault, KernelTimeout

NOWHERE = Path("/nowhere.so")
K = signatures(read(code='extern "C" __global__ void k(const float* x, double* y, int n) {}'))["k"]
VALUES = convert(K, (np.zeros(100, "f4"), np.zeros((2, 3)), 5))


def outcome(kind: int, argument: int = 0, offset: int = 0, text: str = "", **other) -> Outcome:
    found = Outcome(kind=kind, argument=argument, offset=offset, text=text.encode(), **other)
    found.block[0], found.thread[1] = 7, 9
    return found


def told(found: Outcome, timeout: float | None = 2.5) -> str:
    return str(error(found, K, VALUES, NOWHERE, timeout))


AT = ", in thread (0, 9, 0) of block (7, 0, 0)"
MESSAGES = [
    (
        outcome(faults.OUT_OF_BOUNDS, 0, 400, "byte 400 ...", size=4),
        f"k: read of 4 bytes out of bounds: element 100 of argument 0 'x' (float32[100]){AT}",
    ),
    (
        outcome(faults.OUT_OF_BOUNDS, 1, -8, size=8, write=1),
        f"k: write of 8 bytes out of bounds: element -1 of argument 1 'y' (float64[2, 3]){AT}",
    ),
    (
        outcome(faults.CONST_WRITE, 0, 12, size=4, write=1),
        f"k: write of 4 bytes: element 3 of argument 0 'x' (float32[100]), which is const{AT}",
    ),
    (
        outcome(faults.OUT_OF_BOUNDS, -2, 64, "byte 64 of static shared memory", size=4),
        f"k: read of 4 bytes out of bounds: byte 64 of static shared memory{AT}",
    ),
    (
        outcome(faults.OUT_OF_BOUNDS, 0, 4 << 40, size=4),
        f"k: read of 4 bytes out of bounds: element {1 << 40} of argument 0 'x' (float32[100]), "
        f"an address that is near no argument{AT}",
    ),
    (
        outcome(faults.DIVISION_BY_ZERO),
        f"k: division of a whole number by zero, or of the smallest one by -1{AT}",
    ),
    (outcome(faults.ASSERTION, text="i < n"), f"k: an assertion failed: i < n{AT}"),
    (
        outcome(faults.DEADLOCK, text="block (0,0,0):\n  3 threads"),
        "k: deadlock: every thread waits for another\nblock (0,0,0):\n  3 threads",
    ),
    (outcome(99), f"k: fault 99{AT}"),
]


@pytest.mark.parametrize(("found", "wanted"), MESSAGES, ids=[text[:30] for _, text in MESSAGES])
def test_messages(found, wanted):
    assert told(found) == wanted
    assert isinstance(error(found, K, VALUES, NOWHERE, 1), KernelFault)


def test_every_kind_has_words():
    for kind in range(faults.OUT_OF_BOUNDS, faults.CONST_WRITE + 1):
        assert "fault" not in told(outcome(kind, size=4))


def test_a_kernel_that_was_stopped():
    found = outcome(faults.STOPPED, text="block (0,0,0)")
    assert told(found) == "k: did not finish in 2.5 s, and was stopped\nblock (0,0,0)"
    assert told(found, None) == "k: was stopped\nblock (0,0,0)"
    assert isinstance(error(found, K, VALUES, NOWHERE, 1), KernelTimeout)


def test_a_kernel_that_finished_is_no_error():
    assert error(outcome(faults.FINISHED), K, VALUES, NOWHERE, 1) is None


def test_paths_are_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shortened(f"in {tmp_path}/k.cu:3, in {tmp_path}/x/<code>:4") == "in k.cu:3, in <code>:4"
    assert shortened("in /elsewhere/k.cu:3") == "in /elsewhere/k.cu:3"


WRONG = """
__device__ void store(float* x, int i) {
    x[i] = 1;  // here
}
extern "C" __global__ void k(float* x) {
    store(x, threadIdx.x);
}
"""


def launch_wrong(**given) -> str:
    kernel = cuda.load(**given).get_function("k")
    with pytest.raises(KernelFault) as caught:
        kernel(1, 8, (np.zeros(5, "f4"),))
    return str(caught.value)


@pytest.mark.kernel
def test_the_line_is_that_of_the_access_not_of_the_call(tmp_path, monkeypatch):
    (tmp_path / "k.cu").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    assert launch_wrong(file="k.cu") == (
        "k: write of 4 bytes out of bounds: element 5 of argument 0 'x' (float32[5]), "
        "at k.cu:3, in thread (5, 0, 0) of block (0, 0, 0)"
    )
    assert "at <code>:3, in" in launch_wrong(code=WRONG)


@pytest.mark.kernel
def test_the_line_in_a_header_is_that_of_the_header(tmp_path, monkeypatch):
    before, _, after = WRONG.partition('extern "C"')
    (tmp_path / "k.cu").write_text(f'#include "h.cuh"\nextern "C"{after}')
    (tmp_path / "h.cuh").write_text(before)
    monkeypatch.chdir(tmp_path)
    assert ", at h.cuh:3, in thread" in launch_wrong(file="k.cu")


@pytest.mark.kernel
def test_without_addr2line_the_line_is_missing_and_nothing_else(monkeypatch):
    cuda.load(code=WRONG).emulated()  # compiled while there is a path
    monkeypatch.setattr(faults.shutil, "which", lambda name: None)
    line_at.cache_clear()
    said = launch_wrong(code=WRONG)
    line_at.cache_clear()
    assert "argument 0 'x' (float32[5]), in thread (5, 0, 0) of block" in said
    assert " at " not in said


def test_an_address_that_no_line_belongs_to_has_none():
    assert line_at(NOWHERE, 16) == ""


@pytest.mark.kernel
def test_after_a_fault_the_next_launch_works():
    launch_wrong(code=WRONG)
    x = np.zeros(5, "f4")
    cuda.load(code=WRONG).get_function("k")(1, 5, (x,))
    assert x.tolist() == [1] * 5


@pytest.mark.kernel
def test_structures_are_as_large_as_the_runtime_has_them(tmp_path):
    """A program in C++ is asked, since a difference would be garbage, not an error."""
    program = tmp_path / "sizes.cpp"
    program.write_text(
        '#include "abi.h"\n#include <cstddef>\n'
        'extern "C" __attribute__((visibility("default"))) int sizes(int i) {\n'
        "int all[] = {sizeof(md_range), sizeof(md_config), sizeof(md_outcome), "
        "offsetof(md_config, seed), offsetof(md_outcome, text)}; return all[i]; }\n"
    )
    compiler = find()
    flags = [*compiler.flags(seen=False), f"-I{emulator.RUNTIME}"]
    build_library(compiler, [program], flags, "sizes.so", tmp_path / "sizes.so")
    sizes = ctypes.CDLL(str(tmp_path / "sizes.so")).sizes
    assert [sizes(i) for i in range(5)] == [
        ctypes.sizeof(Range),
        ctypes.sizeof(emulator.Config),
        ctypes.sizeof(Outcome),
        emulator.Config.seed.offset,
        Outcome.text.offset,
    ]
