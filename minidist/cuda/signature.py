"""What a kernel wants to be given, read from the line that declares it.

    extern "C" __global__ void __launch_bounds__(256)
    axpy(float a, const float* __restrict__ x, float* y, int n)

    Signature("axpy", (Parameter("a", f4), Parameter("x", *cf4), Parameter("y", *f4), ...))

CUDA has no way to ask a kernel for its parameters, so a launch with an 8-byte number where 4 bytes
are declared runs, and computes nonsense. Knowing the types here is what lets a launch convert and
refuse. Types are few on purpose (minidist/cuda/kinds.py); what is not understood is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minidist.cuda.kinds import ALLOWED, Kind, kind_of
from minidist.cuda.source import Source, blank, line_of, shown
from minidist.errors import CompileError

PARENTHESES = r"\((?:[^()]|\([^()]*\))*\)"
BOUNDS = rf"(?:__launch_bounds__\s*{PARENTHESES}\s*)?"
DECLARED = rf"__global__\s+(?:static\s+|inline\s+)?{BOUNDS}void\s+{BOUNDS}"
ENTRY = re.compile(rf'extern\s+"C"\s+{DECLARED}(\w+)\s*\(')
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
ALIAS = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*([\w\s]+);")
TOKEN = re.compile(r"\w+|\S")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Signature:
    """A kernel: how it is asked for, its parameters, where it is declared (file:line).

    ``position`` is where in the text of the file an entry point stands, for whoever writes
    something that belongs behind the same #if; None for an instance of a template.
    """

    name: str
    parameters: tuple[Parameter, ...]
    place: str
    position: int | None = None


def signatures(source: Source, expressions: tuple[str, ...] = (),
               defines: Mapping[str, object] = {}) -> dict[str, Signature]:  # fmt: skip
    """Return every entry point of a file, and an instance of a template for every expression.

    ``defines`` are the macros of the command line, which may name types.
    """
    macros = aliases(source) | {name: str(value) for name, value in defines.items()}
    text = code_of(source.text)
    found = {}
    for match in ENTRY.finditer(text):
        name, place = match.group(1), source.place(match.start())
        listed = inside(text, match.end() - 1)
        found[name] = Signature(name, parameters(listed, macros, place), place, match.start())
    for expression in expressions:
        found[expression] = instance(source, expression, macros)
    return found


def aliases(source: Source) -> dict[str, str]:
    """Return the names that the file and its headers give to types, as in typedef float real."""
    found = {}
    for text in (*source.headers.values(), source.text):
        for match in ALIAS.finditer(code_of(text)):
            old, name, other, its = match.groups()
            found[name or other] = old or its
    return found


def code_of(text: str) -> str:
    """Return the text without comments, strings and lines for the preprocessor."""
    return DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), blank(text))


def inside(text: str, opening: int) -> str:
    """Return what stands between the bracket at ``opening`` and the one that closes it."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "(<[{") - (text[place] in ")>]}")
        if depth == 0:
            return text[opening + 1 : place]
    return text[opening + 1 :]


def split(text: str) -> list[str]:
    """Split at the commas that stand in no brackets."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parameters(listed: str, macros: Mapping[str, str], place: str) -> tuple[Parameter, ...]:
    """Return the parameters between the brackets of a declaration; replace the macros in them."""
    if listed.strip() == "void":
        return ()
    return tuple(parameter(part, macros, place) for part in split(listed))


def parameter(text: str, macros: Mapping[str, str], place: str) -> Parameter:
    """Return one parameter, or raise CompileError with the line of the kernel."""
    *words, name = TOKEN.findall(text) or [""]
    tokens = [token for word in words for token in TOKEN.findall(macros.get(word, word))]
    kind = kind_of(tokens)
    if kind is None or not name.isidentifier():
        tidy = re.sub(r"\s+", " ", text.strip())
        raise CompileError(
            f"{place}: parameter '{tidy}' is of a type that a launch cannot fill; "
            f"a kernel takes {ALLOWED}, each with a name"
        )
    return Parameter(name, kind)


def instance(source: Source, expression: str, macros: Mapping[str, str]) -> Signature:
    """Return the signature of a template's instance, for example of "scale<float, 4>"."""
    base, _, rest = expression.partition("<")
    base = base.strip()
    chosen = split(rest.rpartition(">")[0])
    for place, types, listed in declarations(source, base):
        names = {name: value for (name, _), value in zip(types, chosen, strict=False)}
        names |= {name: value for name, value in types[len(chosen) :] if value}
        if len(chosen) <= len(types) and len(names) == len(types):
            return Signature(expression, parameters(listed, {**macros, **names}, place), place)
    raise CompileError(
        f"{source.name}: there is no kernel template for {expression!r}; write "
        f"'template <class T> __global__ void {base or 'name'}(...)' out, not by a macro"
    )


Template = list[tuple[str, str]]  # name and default of each parameter of a template


def declarations(source: Source, name: str) -> Iterator[tuple[str, Template, str]]:
    """Yield place, template parameters and parameter list of the kernels with a name."""
    kernel = re.compile(rf"{DECLARED}{re.escape(name)}\s*\(")
    for path, whole in [(source.path, source.text), *source.headers.items()]:
        text = code_of(whole)
        for match in kernel.finditer(text):
            where = shown(path) if path else source.name
            line = line_of(text, match.start())
            listed = inside(text, match.end() - 1)
            yield f"{where}:{line}", template(text[: match.start()]), listed


def template(before: str) -> Template:
    """Return the parameters of the template whose head ends just here; [] if there is none."""
    start = before.rfind("template")
    head = before[start:] if start >= 0 else ""
    opening = head.find("<")
    if opening < 0:
        return []
    listed = inside(head, opening)
    if head[opening + len(listed) + 2 :].strip() not in ("", "static", "inline"):
        return []  # the head of something else further up
    found = []
    for part in split(listed):
        declared, _, default = part.partition("=")
        found.append((TOKEN.findall(declared)[-1], default.strip()))
    return found
