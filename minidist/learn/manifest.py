"""What lessons there are: `lessons/lessons.toml`, read into frozen records.

    [[lesson]]
    id = "03"
    folder = "03_ring_all_reduce"
    title = "From parameter server to ring all-reduce"
    needs = "cpu"                       cpu, mpi or gpu
    minutes = 60
    weekend = true                      one of the short track; may be left out

    [[lesson.blank]]
    id = "03.3"
    name = "reduce_scatter"             a function of exercise.py
    solution = "minidist.collectives.ring.reduce_scatter"
    lines = 7
    read = "Why it works."              how the paragraph of README.md begins that explains it
    hints = ["a question", "a direction", "nearly the answer"]

The lessons belong to the checkout and not to the package: they are there to be edited.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minidist
from minidist.errors import LessonError

NEEDS = ("cpu", "mpi", "gpu")
VARIABLE = "MINIDIST_LESSONS"
"""The environment variable that names another folder of lessons: a copy to work in."""


@dataclass(frozen=True)
class Blank:
    """A function of exercise.py that the student writes; ``solution`` is the package's own."""

    id: str
    name: str
    solution: str
    lines: int
    read: str
    hints: tuple[str, ...]


@dataclass(frozen=True)
class Lesson:
    """One lesson; its files lie in ``folder``."""

    id: str
    folder: Path
    title: str
    needs: str
    minutes: int
    blanks: tuple[Blank, ...]
    weekend: bool = False

    def file(self, name: str) -> Path:
        """Return the path of a file of the lesson. Raises LessonError if it is not there."""
        path = self.folder / name
        if not path.is_file():
            raise LessonError(
                f"lesson {self.id} has no {path}; bring it back with: git checkout -- {self.folder}"
            )
        return path

    def paragraph(self, blank: Blank) -> tuple[Path, int]:
        """Return where a blank is explained: README.md and a line. Raises LessonError if nowhere.

        Bold letters at the beginning of a paragraph do not count.
        """
        path, before = self.file("README.md"), ""
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not before.strip() and line.lstrip("*").startswith(blank.read):
                return path, number
            before = line
        raise LessonError(f"no paragraph of {path} begins with '{blank.read}', for {blank.id}")


def lessons_folder() -> Path:
    """Return the folder of the lessons: $MINIDIST_LESSONS, or lessons/ of the checkout.

    Raises LessonError if there is none: a package from a wheel has no lessons.
    """
    if chosen := os.environ.get(VARIABLE):
        if not Path(chosen).is_dir():
            raise LessonError(f"{VARIABLE} is {chosen}, which is no folder; unset it or correct it")
        return Path(chosen).resolve()
    checkout = Path(minidist.__file__).resolve().parent.parent
    if (checkout / "setup.py").is_file() and (checkout / "lessons").is_dir():
        return checkout / "lessons"
    raise LessonError(
        f"there are no lessons beside the package in {checkout}: they are part of the repository, "
        "not of an installed package. Clone the repository and use its ./run, or name the folder: "
        f"{VARIABLE}=/path/to/lessons"
    )


def load(folder: Path | None = None) -> tuple[Lesson, ...]:
    """Return the lessons of ``folder`` (default: `lessons_folder`), in the order of the file.

    Raises LessonError that names the entry and the field at fault.
    """
    folder = lessons_folder() if folder is None else folder
    path = folder / "lessons.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LessonError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LessonError(f"{path} is not TOML: {error}") from error
    lessons = tuple(_lesson(entry, folder) for entry in table.get("lesson", []))
    _distinct([lesson.id for lesson in lessons], path)
    _distinct([blank.id for lesson in lessons for blank in lesson.blanks], path)
    return lessons


def find(lessons: Sequence[Lesson], number: str) -> Lesson:
    """Return the lesson with this id; "3" is "03". Raises LessonError that lists the ids."""
    for lesson in lessons:
        if lesson.id == number.zfill(2):
            return lesson
    known = ", ".join(lesson.id for lesson in lessons)
    raise LessonError(f"there is no lesson '{number}'; there are {known}")


FIELDS: dict[str, type] = {"id": str, "folder": str, "title": str, "needs": str, "minutes": int}
BLANK_FIELDS: dict[str, type] = {"id": str, "name": str, "solution": str, "lines": int, "read": str}


def _lesson(entry: Mapping[str, Any], folder: Path) -> Lesson:
    where = f"lesson {entry.get('id', '?')} of lessons.toml"
    fields = _fields(entry, FIELDS, {"blank", "weekend"}, where)
    if type(weekend := entry.get("weekend", False)) is not bool:
        raise LessonError(f"{where}: weekend must be true or false, is {weekend!r}")
    if fields["needs"] not in NEEDS:
        raise LessonError(f"{where}: needs is {fields['needs']!r}, not one of {', '.join(NEEDS)}")
    blanks = tuple(_blank(b, fields["id"]) for b in entry.get("blank", []))
    _distinct([b.name for b in blanks], folder / "lessons.toml")
    fields |= {"folder": folder / fields["folder"], "blanks": blanks, "weekend": weekend}
    return Lesson(**fields)


def _blank(entry: Mapping[str, Any], lesson: str) -> Blank:
    where = f"blank {entry.get('id', '?')} of lessons.toml"
    fields = _fields(entry, BLANK_FIELDS, {"hints"}, where)
    hints = entry.get("hints", [])
    if len(hints) != 3 or not all(isinstance(h, str) and h for h in hints):
        raise LessonError(f"{where}: needs three hints, from a question to nearly the answer")
    if not fields["id"].startswith(f"{lesson}."):
        raise LessonError(f"{where}: it stands in lesson {lesson}, so its id is {lesson}.something")
    return Blank(**fields, hints=tuple(hints))


def blank_by_id(lesson: Lesson, number: str) -> Blank:
    """Return the blank with this id. Raises LessonError that lists those there are."""
    for blank in lesson.blanks:
        if blank.id == number:
            return blank
    known = ", ".join(b.id for b in lesson.blanks)
    raise LessonError(f"lesson {lesson.id} has no blank {number}; it has {known}")


def find_blank(lessons: Sequence[Lesson], number: str) -> tuple[Lesson, Blank]:
    """Return a blank and its lesson; "3.2" is "03.2". Raises LessonError as `find` does."""
    of, _, place = number.partition(".")
    lesson = find(lessons, of)
    return lesson, blank_by_id(lesson, f"{lesson.id}.{place}")


def _fields(
    entry: Mapping[str, Any], types: Mapping[str, type], more: set[str], where: str
) -> dict[str, Any]:
    """Return the fields of an entry, all of them there and of the right type, and no others."""
    for name, kind in types.items():
        if type(entry.get(name)) is not kind:
            raise LessonError(f"{where}: {name} must be a {kind.__name__}, is {entry.get(name)!r}")
    if unknown := set(entry) - set(types) - more:
        raise LessonError(f"{where}: unknown {', '.join(sorted(unknown))}")
    return {name: entry[name] for name in types}


def _distinct(names: Sequence[str], path: Path) -> None:
    if twice := sorted({n for n in names if list(names).count(n) > 1}):
        raise LessonError(f"{path}: {', '.join(twice)} stands there twice")
