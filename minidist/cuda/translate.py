"""From a kernel file to the C++ file that a CPU's compiler takes.

Three things change:

    #include "emulated_cuda.h"               1. what CUDA has built in
    #line 1 "/home/me/reduce.cu"                (errors name the student's file)
    ... the text, but
    extern __shared__ float tile[];          2. becomes   float (*tile) = ...;
    ... to its end
    MD_KERNEL(sum_f32, sum_f32)              3. a function that the launcher can call

Every line stays where it was. Headers of the project get the same change, in copies.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from minidist.cuda.compiler import LAUNCHER, MAIN
from minidist.cuda.signature import PARENTHESES, Signature
from minidist.cuda.source import Source, blank, includes, line_of, resolve, shown
from minidist.errors import CompileError

ALIGN = rf"(?:(?:__align__|alignas)\s*{PARENTHESES}\s*)?"
DYNAMIC = re.compile(
    rf"(?:extern\s+{ALIGN}__shared__|__shared__\s+extern)\s+{ALIGN}([\w:\s<>,]+?)\s*\b(\w+)\s*"
    r"\[\s*\]((?:\s*\[[^\]]*\])*)\s*;"
)
CONDITION = re.compile(
    r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(?:[^\n\\]|\\\n|\\.)*", re.M
)

HALVES = ("cuda_fp16.h", "cuda_bf16.h")

Names = Mapping[Path, str]  # of each header: the name of its copy


def translate(
    source: Source, kernels: Sequence[Signature], macros: Sequence[str] = ()
) -> dict[str, str]:
    """Return the texts of the files to compile, by their names.

    Macros of the user, as options (-DT=float), come after what CUDA has built in, which would read
    its own T as theirs.
    """
    copies = {path: f"{i}_{path.name}" for i, path in enumerate(source.headers)}
    texts = [source.text, *source.headers.values()]
    main = [
        '#include "emulated_cuda.h"',
        *(f"#include <{name}>" for name in HALVES if any(name in text for text in texts)),
        *("#define " + macro.removeprefix("-D").replace("=", " ", 1) for macro in macros),
        rewrite(source, source.path, copies),
        f'#line 1 "{LAUNCHER}"',
        "MD_MODULE",
        *(entry(source, kernel, symbol) for symbol, kernel in symbols(kernels).items()),
    ]
    files = {name: rewrite(source, path, copies) for path, name in copies.items()}
    if source.path is None:
        files[source.name] = source.text  # a compiler looks there for the line that it quotes
    return files | {MAIN: "\n".join([*main, ""])}


def symbols(kernels: Sequence[Signature]) -> dict[str, Signature]:
    """Return the kernels by the names of their functions; "scale<float>" can be none."""
    return {
        kernel.name if kernel.name.isidentifier() else f"instance_{i}": kernel
        for i, kernel in enumerate(kernels)
    }


def rewrite(source: Source, path: Path | None, copies: Names) -> str:
    """Return the text of one file, line by line where it was, as the emulator wants it."""
    text = source.headers[path] if path and path in copies else source.text
    name = str(path) if path else source.name
    changes = []
    for begin, end, included in includes(text):
        header = resolve(included, path, source.folders)
        if header and header in copies:
            changes.append((begin, end, copies[header]))
    clean = blank(text)
    for match in DYNAMIC.finditer(clean):
        if clean.count("{", 0, match.start()) == clean.count("}", 0, match.start()):
            where = f"{shown(path) if path else name}:{line_of(text, match.start())}"
            raise CompileError(
                f"{where}: extern __shared__ {match.group(2)}[] stands outside of a function; "
                "declare it in the kernel that uses it"
            )
        changes.append((*match.span(), dynamic(match)))
    for begin, end, new in sorted(changes, reverse=True):
        text = text[:begin] + new + text[end:]
    return f"#line 1 {quoted(name)}\n{text}"


def dynamic(match: re.Match[str]) -> str:
    """Return the declaration of a pointer to the block's dynamic shared memory, as many lines."""
    element, name, rest = (re.sub(r"\s+", " ", part).strip() for part in match.groups())
    lines = "\n" * match.group(0).count("\n")
    return f"{element} (*{name}){rest} = ({element} (*){rest})md_here.dynamic_shared;{lines}"


def quoted(name: str) -> str:
    """Return a name as C++ writes it."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def entry(source: Source, kernel: Signature, symbol: str) -> str:
    """Return the lines that make a kernel callable, if the kernel itself is compiled."""
    before = conditions(source.text, kernel.position or 0)
    ends = ["#endif"] * sum(opens(line) for line in before)
    return "\n".join([*before, f"MD_KERNEL({symbol}, {kernel.name})", *ends])


def conditions(text: str, position: int) -> list[str]:
    """Return the #if, #elif and #else lines that decide whether a place is compiled."""
    groups: list[list[str]] = []
    for match in CONDITION.finditer(blank(text), 0, position):
        line, word = match.group(0), match.group(1)
        if opens(line):
            groups.append([line])
        elif groups and word == "endif":
            groups.pop()
        elif groups:
            groups[-1].append(line)
    return [line for group in groups for line in group]


def opens(line: str) -> bool:
    """Whether a line for the preprocessor begins an #if."""
    return line.lstrip(" \t#").startswith("if")
