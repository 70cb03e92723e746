"""What a failure says to a student: which blank is next, or the counterexample, and nothing else.

A traceback shows only the student's own lines: the frames above are those of the check, and the
frames below those of the package.
"""

import linecache
import re
import traceback
from pathlib import Path

from minidist.learn.limit import OutOfTime
from minidist.learn.manifest import Lesson
from minidist.learn.subject import blank_of
from minidist.testing.ranktable import LawBroken

MARKER = re.compile(r"^(\d\d\.\d+): ")
MODULE = re.compile(r"^(\w+\.)+(?=\w+(:|$))")
DONE = re.compile(r" waits: (gather_objects|bcast_object|barrier) .*")  # where the laws compare


def explain(error: BaseException, lesson: Lesson, test: str) -> str:
    """Return the text for an error that a test of ``lesson`` has raised."""
    if isinstance(error, NotImplementedError) and (found := MARKER.match(str(error))):
        return _next_blank(str(error), found[1], lesson)
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or '?').name}, line {error.lineno}"
        return f"{where}: {error.msg}\n    {(error.text or '').strip()}"
    if isinstance(error, LawBroken):
        return _join(str(error), _read(lesson, test))
    if isinstance(error, OutOfTime):
        return _join(_worlds(error), str(error), _own_lines(error, lesson), _read(lesson, test))
    whole = traceback.TracebackException.from_exception(error)  # knows "Did you mean"
    said = next(whole.format_exception_only()).strip()
    said = DONE.sub(" is done and waits for the others", MODULE.sub("", said))
    return _join(_worlds(error), said, _own_lines(error, lesson), _read(lesson, test))


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
    return f"read: the contract of {blank.name}, {_place(lesson, blank.name)}"


def _place(lesson: Lesson, name: str) -> str:
    """Return file and line of a function of the exercise, as editors understand it."""
    path = lesson.folder / "exercise.py"
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if re.match(rf"(async )?def {name}\b|{name}\s*=|class {name}\b", line):
            return f"{path}:{number}"
    return str(path)


def _worlds(error: BaseException) -> str:
    """The notes: in which world, on which rank."""
    notes = [n for n in getattr(error, "__notes__", []) if not n.startswith("Falsifying example")]
    first = [n for n in notes if " n = " in n][:1]
    return ", ".join([*first, *(n for n in notes if n.startswith("on rank"))][:2])


def _own_lines(error: BaseException, lesson: Lesson) -> str:
    """The student's own lines on the way to the error, innermost last."""
    path = lesson.folder / "exercise.py"
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename) == path:
            text = linecache.getline(frame.filename, frame.lineno or 0).strip()
            lines.append(f"{path.name}, line {frame.lineno}, in {frame.name}:\n    {text}")
    return "\n".join(lines[-3:])


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
