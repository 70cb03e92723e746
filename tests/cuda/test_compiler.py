"""The compiler: found or named, and what it says about a student's file, with line and caret."""

import pytest

from minidist import cuda
from minidist.cuda import emulator
from minidist.cuda.compiler import Compiler, find, readable
from minidist.cuda.signature import signatures
from minidist.cuda.source import read
from minidist.errors import CompileError, NoCompilerError

K = 'extern "C" __global__ void k(float* x, int n) {\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def build(**given):
    """Compile a file or a text without loading it."""
    source = read(**given)
    return emulator.build(source, list(signatures(source).values()), (), find())


def program(folder, name: str, says: str, status: int = 0):
    """Write a program that says something, for example which compiler it is."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_no_compiler_is_one_sentence_with_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match=r"^no C\+\+ compiler, .*apt-get install g\+\+"):
        find()
    works, reason = cuda.emulator_available()
    assert not works
    assert "apt-get install g++" in reason


def test_the_compiler_that_cxx_names_comes_first(tmp_path, monkeypatch):
    program(tmp_path, "g++", "gxx 1")
    mine = program(tmp_path, "mine", "my clang 2")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("CXX", raising=False)
    assert find() == Compiler((str(tmp_path / "g++"),), "gxx 1")
    monkeypatch.setenv("CXX", "mine --fast")
    assert find() == Compiler((str(mine), "--fast"), "my clang 2")
    assert find().clang
    monkeypatch.setenv("CXX", "nowhere")
    with pytest.raises(NoCompilerError, match="CXX=nowhere is no C"):
        find()


def test_a_compiler_that_does_not_start_is_passed_over(tmp_path, monkeypatch):
    program(tmp_path, "g++", "broken", status=1)
    program(tmp_path, "clang++", "clang version 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("CXX", raising=False)
    assert find().version == "clang version 3"


def test_options_for_gcc_and_clang():
    gcc, clang = Compiler(("g++",), "g++ 12"), Compiler(("clang++",), "clang version 19")
    assert "--param tsan-distinguish-volatile=1" in " ".join(gcc.flags(seen=True))
    assert "-mllvm -tsan-distinguish-volatile=1" in " ".join(clang.flags(seen=True))
    assert "-fno-gnu-unique" not in clang.flags(seen=True)
    assert not any("sanitize=" in flag for flag in gcc.flags(seen=False))


def test_what_is_said_about_generated_lines_is_left_out():
    said = """kernel.cpp: In function 'int f()':
k.cu:3:5: error: 'y' was not declared
    3 |     y = 1;
      |     ^
<launcher>:1:1: error: no type named
    1 | MD_KERNEL(k, k)
      | ^~~~~~~~~
k.cu:4:1: note: here
"""
    wanted = "k.cu:3:5: error: 'y' was not declared\n    3 |     y = 1;\n      |     ^\n"
    assert readable(said, "/nowhere") == wanted + "k.cu:4:1: note: here"


def test_what_is_left_out_is_told_when_there_is_nothing_else():
    assert readable("<launcher>:1:1: error: no type named\n", "/nowhere").startswith("<launcher>")


@pytest.mark.kernel
def test_an_error_shows_file_line_and_caret(cache, tmp_path, monkeypatch):
    (tmp_path / "k.cu").write_text(f"// one\n{K}    int i = n;\n    x[i] = y;\n}}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError) as caught:
        build(file="./k.cu")
    lines = str(caught.value).splitlines()
    assert lines[0] == "k.cu does not compile:"
    [error] = [line for line in lines if "'y'" in line]
    assert error.startswith("k.cu:4:12: error: ")
    quoted = lines[lines.index(error) + 1]
    caret = lines[lines.index(error) + 2]
    assert quoted.endswith("x[i] = y;")
    assert quoted[caret.index("^")] == "y"
    assert "MD_KERNEL" not in str(caught.value)
    assert "kernel.cpp" not in str(caught.value)


@pytest.mark.kernel
def test_an_error_in_a_header_shows_the_header(cache, tmp_path, monkeypatch):
    (tmp_path / "k.cu").write_text(f'#include "h.cuh"\n{K}}}\n')
    (tmp_path / "h.cuh").write_text("\n\n__device__ int f() { return 1 + ; }\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError, match=r"\nh.cuh:3:33: error: .*\n.*return 1 \+ ; }\n *\| +\^"):
        build(file="k.cu")


@pytest.mark.kernel
def test_an_error_in_a_text_shows_its_line(cache):
    with pytest.raises(CompileError, match=r"<code>:2:5: error: .*\n.*oops;\n *\| +\^"):
        build(code=f"{K}    oops;\n}}\n")


@pytest.mark.kernel
def test_a_header_that_is_not_there_is_told_by_the_compiler(cache):
    with pytest.raises(CompileError, match=r"<code>:1:10: fatal error: .*nowhere.cuh"):
        build(code=f'#include "nowhere.cuh"\n{K}}}\n')


@pytest.mark.kernel
def test_an_edited_header_compiles_again(cache, tmp_path):
    (tmp_path / "k.cu").write_text(f'#include "h.cuh"\n{K}    x[0] = ONE;\n}}\n')
    (tmp_path / "h.cuh").write_text("#define ONE 1\n")
    first = build(file=tmp_path / "k.cu")
    assert build(file=tmp_path / "k.cu") == first
    (tmp_path / "h.cuh").write_text("#define ONE 2\n")
    assert build(file=tmp_path / "k.cu") != first


@pytest.mark.kernel
def test_other_options_and_other_compilers_compile_again(cache, monkeypatch):
    source = read(code=f"{K}}}\n")
    kernels = list(signatures(source).values())
    real = find()
    newer = Compiler(real.command, real.version + " newer")
    made = {
        emulator.build(source, kernels, (), real),
        emulator.build(source, kernels, ("-DX=1",), real),
        emulator.build(source, kernels, (), newer),
    }
    assert len(made) == len(list(cache.glob("*.so"))) == 3
