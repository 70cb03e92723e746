"""Blanks that are kernels: written in exercise.cu, solved by a kernel of kernels/.

    add_f32 = kernel(HERE / "exercise.cu", "add_f32")         in exercise.py
    solution = "kernels/elementwise.cu:add_f32"               in lessons.toml
    add_f32(grid, block, (out, a, b, n))                      in check.py, whoever has written it

A blank is a kernel whose body holds `TODO("04.1: ...")`; to launch it raises NotImplementedError
with that text, as a blank in Python does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minidist import cuda
from minidist.cuda.limits import Size
from minidist.cuda.source import blank, kernels_folder, line_of
from minidist.errors import CompileError, LessonError
from minidist.testing.mutants import MutantError

LEFT = re.compile(r'\bTODO\(\s*((?:"(?:\\.|[^"\\\n])*"\s*)+)\)')
NAMED = re.compile(r"\bstruct\s+(?:__align__\(\d+\)\s*)?(\w+)|(?!__)\b(\w+)\s*\(")
ENTRY = r'extern\s+"C"\s+__global__'


@dataclass(frozen=True)
class Part:
    """A function or struct at the top level of a kernel file: text[begin:end]."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True)
class TextKernel:
    """A kernel, and the file that it stands in; ``changed``: ``text`` is not that of the file."""

    path: Path
    name: str
    text: str
    changed: bool = False

    def __call__(self, grid: Size, block: Size, args: Sequence[Any], shared_mem: int = 0) -> None:
        """Launch it as `minidist.cuda` does. A blank raises NotImplementedError."""
        if left := LEFT.search(self.source()):
            raise NotImplementedError("".join(re.findall(r'"((?:\\.|[^"\\])*)"', left[1])))
        self._check_braces()
        module = cuda.load(code=self._alone()) if self.changed else cuda.load(self.path)
        module.get_function(self.name)(grid, block, args, shared_mem)

    def _check_braces(self) -> None:
        """Say of which kernel a brace is missing, which compilers tell of others."""
        found = {part.name for part in parts_of(self.text)}
        for entry in re.finditer(rf"{ENTRY}[^()]*\b(\w+)\s*\(", blank(self.text)):
            if entry[1] not in found:
                place = f"{self.path}:{line_of(self.text, entry.start())}"
                raise CompileError(
                    f"the braces of {entry[1]}, or of what stands before it, do not match: {place}"
                )

    def _alone(self) -> str:
        """What is compiled of a wrong version: not the whole file, but with its lines."""
        texts = re.findall(r"^#\s*(?:include|define)\b.*", self.text, flags=re.M)
        for part in self.parts():
            texts.append(f'#line {line_of(self.text, part.begin)} "{self.path}"')
            texts.append(self.text[part.begin : part.end])
        return "\n".join(texts)

    def source(self) -> str:
        """Return the text of the kernel and of what it calls in the same file."""
        return "\n\n".join(self.text[part.begin : part.end] for part in self.parts())

    def parts(self) -> list[Part]:
        """Return the kernel and what it uses of the same file, in the order of the file."""
        every, plain = parts_of(self.text), blank(self.text)
        if self.name not in {part.name for part in every}:
            return [self._broken(plain)]
        wanted, ahead = set(), {self.name}
        while ahead:
            wanted |= ahead
            bodies = [plain[p.begin : p.end] for p in every if p.name in ahead]
            ahead = {word for body in bodies for word in re.findall(r"\w+", body)}
            ahead &= {part.name for part in every} - wanted
        return [part for part in every if part.name in wanted]

    def _broken(self, plain: str) -> Part:
        """A kernel whose braces do not match, as far as it goes."""
        begin = re.search(rf"{ENTRY}[^()]*\b{self.name}\s*\(", plain)
        if not begin:
            raise LessonError(
                f"{self.path.name} has no kernel {self.name} any more; write it again, or bring "
                f"the file back: git checkout -- {self.path}"
            )
        end = re.search(ENTRY, plain[begin.end() :])
        length = end.start() if end else len(plain) - begin.end()
        return Part(self.name, begin.start(), begin.end() + length)

    def mutated(self, old: str, new: str) -> "TextKernel":
        """Return a copy in which ``old`` has become ``new``.

        Raises MutantError unless it stands exactly once in `source`.
        """
        count = self.source().count(old)
        if count != 1:
            raise MutantError(f"{self.name} has {old!r} {count} times, not once")
        part = next(p for p in self.parts() if old in self.text[p.begin : p.end])
        at = self.text.index(old, part.begin)
        text = self.text[:at] + new + self.text[at + len(old) :]
        return replace(self, text=text, changed=True)


def kernel(path: Path, name: str) -> TextKernel:
    """Return a kernel of a file, as the file is now. Raises LessonError if it is not there."""
    try:
        return TextKernel(path, name, path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError(
            f"cannot read {path} ({error}); bring it back with: git checkout -- {path}"
        ) from error


def of_package(spec: str) -> TextKernel:
    """Return a kernel of the project: "kernels/reduce.cu:sum_sequential"."""
    file, _, name = spec.partition(":")
    return kernel(kernels_folder() / Path(file).name, name)


def parts_of(text: str) -> list[Part]:
    """Return the functions and structs at the top level of a text in CUDA C++.

    Each begins after the last one and the blank lines, comments and directives behind it.
    """
    plain = re.sub(r"^[ \t]*#.*", lambda m: " " * len(m[0]), blank(text), flags=re.M)
    found, depth, begin = [], 0, 0
    for match in re.finditer(r"[{};]", plain):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        structure = plain[begin : match.end()].lstrip().startswith("struct")
        if depth or (match[0] == "}" and structure):  # a struct ends with its semicolon
            continue
        body = plain[begin : match.end()]
        start = begin + len(body) - len(body.lstrip())
        if "{" in body and (name := NAMED.search(body)):
            found.append(Part(name[1] or name[2], start, match.end()))
        begin = match.end()
    return found
