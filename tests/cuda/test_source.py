"""Kernel files and their headers: found, read, blanked, and changed without moving a line."""

import pytest

from minidist.cuda import source
from minidist.cuda.signature import signatures
from minidist.cuda.source import blank, includes, read
from minidist.cuda.translate import conditions, symbols, translate
from minidist.errors import CompileError, KernelError


def translated(given) -> dict[str, str]:
    return translate(given, list(signatures(given).values()))


def test_comments_and_strings_become_spaces_of_the_same_length():
    text = """a // b " c
/* d " e
f */ g "h // i" 'j' '"' extern "C" R"x(k "l" )x" 1'000'000 m \\
// n \\
o
p"""
    clean = blank(text)
    assert len(clean) == len(text)
    assert [i for i, c in enumerate(clean) if c == "\n"] == [
        i for i, c in enumerate(text) if c == "\n"
    ]
    assert clean.split() == ["a", "g", '"', '"', "extern", '"C"', "1'000'000", "m", "\\", "p"]


def test_a_comment_that_does_not_end_blanks_the_rest():
    assert blank("a /* b\nc").split() == ["a"]


def test_headers_are_found_through_headers_and_once_in_a_circle(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "k.cu").write_text('#include "sub/a.cuh"\n#include <cuda_fp16.h>\n')
    (tmp_path / "sub/a.cuh").write_text('#  include "b.cuh"\n// #include "no.cuh"\n')
    (tmp_path / "sub/b.cuh").write_text('#include "a.cuh"\n#include "../c.cuh"\n')
    (tmp_path / "c.cuh").write_text('#include "nowhere.h"\n')
    (tmp_path / "no.cuh").write_text("")
    found = read(tmp_path / "k.cu")
    assert sorted(path.name for path in found.headers) == ["a.cuh", "b.cuh", "c.cuh"]


def test_a_header_of_the_project_is_found_from_anywhere(tmp_path, monkeypatch):
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "project.cuh").write_text("int x;\n")
    (ours / "known.cu").write_text("")
    monkeypatch.setattr(source, "kernels_folder", lambda: ours)
    (tmp_path / "k.cu").write_text('#include "project.cuh"\n')
    assert list(read(tmp_path / "k.cu").headers) == [ours / "project.cuh"]
    assert list(read(code='#include "project.cuh"').headers) == [ours / "project.cuh"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known.cu").write_text("// mine")
    assert read("known.cu").text == ""  # a bare name is one of the project's
    assert read("./known.cu").text == "// mine"
    assert read("k.cu").path == tmp_path / "k.cu"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either a file"),
        ({"file": "a.cu", "code": "x"}, "either a file"),
        ({"file": "nowhere.cu"}, "no kernel file 'nowhere.cu'; in .*kernels: "),
        ({"file": 3}, "a name or a path, not int"),
        ({"code": 3}, "the text of a kernel, not int"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments, words):
    with pytest.raises(KernelError, match=words):
        read(**arguments)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "k.cu").write_bytes(b"// \xff")
    with pytest.raises(KernelError, match=r"k.cu is no text in UTF-8"):
        read(tmp_path / "k.cu")


def test_the_digest_follows_the_headers(tmp_path):
    (tmp_path / "k.cu").write_text('#include "a.cuh"\n')
    (tmp_path / "a.cuh").write_text("int a;\n")
    before = read(tmp_path / "k.cu").digest()
    assert before == read(tmp_path / "k.cu").digest()
    (tmp_path / "a.cuh").write_text("int b;\n")
    assert before != read(tmp_path / "k.cu").digest()


def test_includes_are_those_outside_of_comments():
    text = '#include "a.h"\n//#include "b.h"\n /* */ # include "c.h"\n#include "d.h" // e\n'
    assert [name for _, _, name in includes(text)] == ["a.h", "c.h", "d.h"]
    assert [text[begin:end] for begin, end, _ in includes(text)] == ["a.h", "c.h", "d.h"]


DYNAMIC = [
    ("extern __shared__ float s[];", "float (*s) ="),
    ("extern __shared__ __align__(16) unsigned char raw[];", "unsigned char (*raw) ="),
    ("extern __shared__ __align__(sizeof(float4)) T raw[ ];", "T (*raw) ="),
    ("extern __align__(16) __shared__ double d[];", "double (*d) ="),
    ("__shared__ extern float4 v[];", "float4 (*v) ="),
    ("extern\n  __shared__\n  int\n  x[];", "int (*x) ="),
    ("extern __shared__ float rows[][32];", "float (*rows)[32] = (float (*)[32])"),
    ("extern __shared__ pair<int, float> p[];", "pair<int, float> (*p) ="),
]


@pytest.mark.parametrize(("declared", "wanted"), DYNAMIC, ids=[wanted for _, wanted in DYNAMIC])
def test_dynamic_shared_memory_becomes_a_pointer_and_no_line_moves(declared, wanted):
    text = f"void f() {{\n{declared} int last;\n}}\nint here;"
    main = translated(read(code=text))["kernel.cpp"]
    assert wanted in main
    assert "__shared__" not in main
    begin = main.index('#line 1 "<code>"\n') + len('#line 1 "<code>"\n')
    lines = main[begin:].split("\n")
    assert lines[text.split("\n").index("int here;")] == "int here;"


def test_dynamic_shared_memory_in_comments_stays():
    text = "void f() { // extern __shared__ float s[];\n}"
    assert "extern __shared__ float s[];" in translated(read(code=text))["kernel.cpp"]


def test_dynamic_shared_memory_outside_of_a_function_is_refused():
    with pytest.raises(CompileError, match=r"<code>:2: extern __shared__ s\[\] stands outside"):
        translated(read(code="\nextern __shared__ float s[];\n"))


def test_headers_are_copied_with_their_own_name_and_lines(tmp_path):
    (tmp_path / "k.cu").write_text('#include "a.cuh"\n')
    (tmp_path / "a.cuh").write_text("inline void f() {\n  extern __shared__ int s[];\n}\n")
    files = translated(read(tmp_path / "k.cu"))
    assert '#include "0_a.cuh"' in files["kernel.cpp"]
    assert files["0_a.cuh"].startswith(f'#line 1 "{tmp_path}/a.cuh"\ninline void f() {{\n')
    assert "int (*s) =" in files["0_a.cuh"]


CONDITIONAL = """#if A
#endif
#ifdef B  // why
int b;
#if C > \\
    1
#else
extern "C" __global__ void k(int n) {}
#endif
#endif
extern "C" __global__ void always(int n) {}
"""


def test_a_kernel_is_callable_only_where_it_is_compiled():
    kernels = signatures(read(code=CONDITIONAL))
    found = conditions(CONDITIONAL, kernels["k"].position)
    assert [" ".join(line.split()) for line in found] == ["#ifdef B", "#if C > \\ 1", "#else"]
    assert conditions(CONDITIONAL, kernels["always"].position) == []
    main = translated(read(code=CONDITIONAL))["kernel.cpp"]
    assert main.count("#endif") == 3 + 2
    assert "MD_KERNEL(k, k)\n#endif\n#endif\nMD_KERNEL(always, always)" in main


def test_an_instance_of_a_template_gets_a_name_that_a_function_can_have():
    text = "template <class T> __global__ void scale(T* x) {}"
    found = symbols(list(signatures(read(code=text), ("scale<float>",)).values()))
    assert {symbol: kernel.name for symbol, kernel in found.items()} == {
        "instance_0": "scale<float>"
    }
