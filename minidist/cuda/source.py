"""The text of a kernel file, and the headers of the project that it includes.

    reduce.cu ──#include "minidist.cuh"──> minidist.cuh ──#include "more.cuh"──> more.cuh
       │                                     │
       └ Source.text                         └ Source.headers[path], found recursively

All that this package knows about C++ it finds with regular expressions, in a copy of the text in
which comments and strings are blanked. The copy has the length of the text, so what is found in it
stands at the same place, and on the same line, of the real one.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minidist.errors import KernelError

PACKAGE = Path(__file__).resolve().parents[1]
CODE = "<code>"  # what messages call a text without a file

APART = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z)        # comments
    | R"([^()\\\s]{0,16})\(.*?\)\1"                  # raw strings
    | "(?:\\.|[^"\\\n])*" | (?<!\d)'(?:\\.|[^'\\\n])*'""",
    re.S | re.X,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]*)"', re.M)


@dataclass(frozen=True)
class Source:
    """A kernel file as it was when it was read; later edits do not change it.

    ``headers`` are the included files that were found, ``folders`` where they were looked for
    besides the folder of the file that includes them.
    """

    name: str
    path: Path | None
    text: str
    headers: Mapping[Path, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()

    def digest(self) -> str:
        """Return a hash of the headers, for caches that look at the text alone."""
        whole = hashlib.sha256()
        for path, text in sorted(self.headers.items()):
            whole.update(f"{path}\0{text}\0".encode())
        return whole.hexdigest()[:16]

    def place(self, position: int) -> str:
        """Return file:line of a position in the text, as messages show it."""
        return f"{shown(self.path) if self.path else self.name}:{line_of(self.text, position)}"


def kernels_folder() -> Path:
    """Return the folder of the project's kernels: in the package, or beside it in a checkout."""
    installed = PACKAGE / "kernels"
    return installed if installed.is_dir() else PACKAGE.parent / "kernels"


def read(file: str | os.PathLike[str] | None = None, code: str | None = None) -> Source:
    """Read a file of kernels/ (a bare name), any other file (a path), or take the text itself."""
    if (file is None) == (code is None):
        raise KernelError('load takes either a file, load("reduce.cu"), or a text, load(code=...)')
    if code is not None:
        if not isinstance(code, str):
            raise KernelError(f"code= is the text of a kernel, not {type(code).__name__}")
        folders: tuple[Path, ...] = (kernels_folder(),)
        return Source(CODE, None, code, headers_of(code, None, folders), folders)
    path = find(file)
    text = text_of(path)
    folders = tuple(dict.fromkeys((path.parent, kernels_folder())))
    return Source(path.name, path, text, headers_of(text, path, folders), folders)


def find(file: str | os.PathLike[str] | None) -> Path:
    """Return the file that is meant: "reduce.cu" is one of kernels/, "./reduce.cu" is not."""
    if not isinstance(file, (str, os.PathLike)):
        raise KernelError(f"a kernel file is a name or a path, not {type(file).__name__}")
    ours = kernels_folder()
    bare = isinstance(file, str) and not os.path.dirname(file)
    if bare and (ours / file).is_file():
        return ours / file
    path = Path(os.path.abspath(file))
    if path.is_file():
        return path
    there = ", ".join(sorted(each.name for each in ours.glob("*.cu"))) or "none"
    raise KernelError(f"there is no kernel file {os.fspath(file)!r}; in {ours}: {there}")


def text_of(path: Path) -> str:
    """Read one file."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KernelError(f"{path} is no text in UTF-8: {error.reason}") from error


def includes(text: str) -> list[tuple[int, int, str]]:
    """Return begin, end and name of what stands between the quotes of every #include "..."."""
    return [(*m.span(1), text[slice(*m.span(1))]) for m in INCLUDE.finditer(blank(text))]


def resolve(name: str, including: Path | None, folders: tuple[Path, ...]) -> Path | None:
    """Return the file that an #include "name" means, or None if it is none of ours."""
    first = (including.parent,) if including else ()
    for folder in (*first, *folders):
        path = Path(os.path.normpath(folder / name))
        if path.is_file():
            return path
    return None


def headers_of(text: str, path: Path | None, folders: tuple[Path, ...]) -> dict[Path, str]:
    """Return the texts of all headers that a text includes, directly or through others."""
    found: dict[Path, str] = {}
    ahead = [(text, path)]
    while ahead:
        text, path = ahead.pop()
        for _, _, name in includes(text):
            header = resolve(name, path, folders)
            if header and header not in found:
                found[header] = text_of(header)
                ahead.append((found[header], header))
    return found


def blank(text: str) -> str:
    """Return the text with comments and the insides of strings as spaces; `"C"` stays."""
    return APART.sub(_spaces, text)


def _spaces(match: re.Match[str]) -> str:
    found = match.group(0)
    if found == '"C"':
        return found
    empty = re.sub(r"[^\n]", " ", found)
    return f'"{empty[1:-1]}"' if found[0] == '"' else empty


def line_of(text: str, position: int) -> int:
    """Return the number of the line at a position."""
    return text.count("\n", 0, position) + 1


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as people want to read it: short where it lies below the current folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
