"""What a failure says to a student: which blank is next, or the counterexample, and nothing else.

A traceback shows only the student's own lines: the frames above are those of the check, and the
frames below those of the package.
"""

import ast
import linecache
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from traceback import FrameSummary

from minidist.errors import DeadlockError, LessonError, StuckError
from minidist.learn import subject
from minidist.learn.limit import Left, OutOfTime
from minidist.learn.manifest import Lesson
from minidist.learn.subject import blank_of
from minidist.testing.ranktable import LawBroken, cut

MARKER = re.compile(r"^(\d\d\.\d+): ")
MODULE = re.compile(r"^(\w+\.)+(?=\w+(:|$))")
DONE = re.compile(r" waits: (gather_objects|bcast_object|barrier) .*")  # where the laws compare
STUCK = re.compile(r"(, at .+ in \S+); is the loop endless\?.*", re.S)
EVERY_RECEIVE = (
    "every receive needs its send, and a send may have to wait for its receive: whatever the "
    "others do, each rank must get to where it does its part."
)
EVERYBODY = "what all ranks have to call, each of them must call, or the others wait for ever."
NO_TERMINAL = "does not work in a check, where nobody can type; print(...) does"
WIDEST = 400  # characters of a line
MOST_OF_TABLE = 30  # lines


def explain(error: BaseException, lesson: Lesson, test: str) -> str:
    """Return the text for an error that a test of ``lesson`` has raised."""
    if isinstance(error, NotImplementedError) and (found := MARKER.match(str(error))):
        return _next_blank(str(error), found[1], lesson)
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or '?').name}, line {error.lineno}"
        return shortened(f"{where}: {error.msg}\n    {(error.text or '').strip()}")
    frames = traceback.extract_tb(error.__traceback__)
    loaded = all(frame.filename != subject.__file__ for frame in frames)
    read = _read(lesson, test) if loaded else ""  # no contract says what an import does
    if isinstance(error, LawBroken):
        return _join(shortened(str(error), MOST_OF_TABLE), read)
    if isinstance(error, StopIteration) and error.__context__ is not None:
        hidden = "your code has caught this at a yield and gone on; let it pass there:"
        return f"{hidden}\n\n{explain(error.__context__, lesson, test)}"
    lines = _own_lines([*frames], lesson) or _own_lines(getattr(error, "seen", ()), lesson)
    if isinstance(error, DeadlockError):
        return _join(_worlds(error), *_deadlock(error, lesson), read)
    return _join(_worlds(error), shortened(_said(error, lines, lesson, test)), lines, read)


def _said(error: BaseException, lines: str, lesson: Lesson, test: str) -> str:
    """The error in words: what Python says, and more where that means nothing to a student."""
    if isinstance(error, OutOfTime | Left | LessonError):
        return str(error)
    if isinstance(error, OSError) and "reading from stdin" in str(error):
        return f"to read from the terminal, as input() and debuggers do, {NO_TERMINAL}"
    whole = traceback.TracebackException.from_exception(error)  # knows "Did you mean"
    said = MODULE.sub("", next(whole.format_exception_only()).strip())
    if isinstance(error, StuckError):  # the place is the student's, if one was seen
        return STUCK.sub(r": is the loop endless?" if lines else r"\1: is the loop endless?", said)
    blank = blank_of(lesson, test)
    if "'NoneType'" in said and not lines and blank is not None:
        return f"{said}\nHas {blank.name} returned None? Then a `return` is missing."
    return said


def _deadlock(error: DeadlockError, lesson: Lesson) -> tuple[str, str, str]:
    """Who waits for whom, the student's lines, and the law.

    A rank that waits where the laws compare is done; but not if the student waits there, too.
    """
    path, own = lesson.folder / "exercise.py", []

    def waits(found: re.Match[str]) -> str:
        calls = _calls(path, found[1])
        own.extend(calls)
        return found[0] if calls else " is done and waits for the others"

    said = MODULE.sub("", f"{type(error).__name__}: {DONE.sub(waits, str(error))}")
    if not own:
        return shortened(said), "", f"the law: {EVERY_RECEIVE}"
    places = [FrameSummary(str(path), line, name) for line, name in dict.fromkeys(own)]
    return shortened(said), _own_lines(places, lesson), f"the law: {EVERYBODY}"


def _calls(path: Path, name: str) -> list[tuple[int, str]]:
    """The lines of a file that call a method of this name, each with its function."""
    tree = ast.parse(path.read_bytes())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return [
        (call.lineno, function.name)
        for function in functions
        for call in ast.walk(function)
        if isinstance(call, ast.Attribute) and call.attr == name
    ]


def _next_blank(text: str, number: str, lesson: Lesson) -> str:
    task = MARKER.sub("", text)
    blank = next((b for b in lesson.blanks if b.id == number), None)
    if blank is None:
        return f"next  {number}  {task}"
    about = f"about {blank.lines} line{'' if blank.lines == 1 else 's'}"
    where = f"write it in {_place(lesson, blank.name)}"
    return f"next  {number}  {blank.name} ({about}): {task}\n\n{where}"


def _read(lesson: Lesson, test: str) -> str:
    blank = blank_of(lesson, test)
    if blank is None:
        return f"read: {lesson.folder / 'README.md'}"
    text = f"read: the contract of {blank.name}, {_place(lesson, blank.name)}"
    try:
        path, line = lesson.paragraph(blank)
    except LessonError:  # a student may change the README, too
        return text
    return f'{text}, and {path.name}:{line}, "{blank.read}"'


def _place(lesson: Lesson, name: str) -> str:
    """Return file and line of a function of the exercise, as editors understand it."""
    path = lesson.folder / "exercise.py"
    begins = rf'(async )?def {name}\b|{name}\s*=|class {name}\b|extern "C" .*\b{name}\('
    for there in filter(Path.is_file, (path.with_suffix(".cu"), path)):
        for number, line in enumerate(there.read_text("utf-8", "replace").splitlines(), 1):
            if re.match(begins, line):
                return f"{there}:{number}"
    return str(path)


def _worlds(error: BaseException) -> str:
    """The notes: in which world, on which rank."""
    notes = [n for n in getattr(error, "__notes__", []) if not n.startswith("Falsifying example")]
    first = [n for n in notes if " n = " in n][:1]
    if not first and isinstance(error, DeadlockError):  # all ranks have a line in it
        count = len(re.findall(r"^  rank \d", str(error), re.M))
        first = [f"{count} rank{'' if count == 1 else 's'}"]
    return ", ".join([*first, *(n for n in notes if n.startswith("on rank"))][:2])


def _own_lines(frames: Iterable[FrameSummary], lesson: Lesson) -> str:
    """The student's own lines on the way to the error, innermost last."""
    path = lesson.folder / "exercise.py"
    lines = []
    for frame in frames:
        if Path(frame.filename) == path:
            text = linecache.getline(frame.filename, frame.lineno or 0).strip()
            lines.append(f"{path.name}, line {frame.lineno}, in {frame.name}:\n    {text}")
    return shortened("\n".join(lines[-3:]))


def shortened(text: str, most: int = 12) -> str:
    """The first lines of a text, and of each line the beginning."""
    lines = [cut(line, WIDEST) for line in text.splitlines()]
    more = [f"... ({len(lines)} lines in all)"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
