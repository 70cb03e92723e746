"""The subject of a check: the student's exercise, or the same file with the package's own objects.

A check takes a module and uses only the names of its blanks, so one check judges three kinds:

    exercise(lesson)            what the student has written
    solved(lesson)              the solutions in place of the blanks: every check must pass
    with_mutant(lesson, m)      one solution with one changed line: some check must reject it

There is no folder of solutions: the solution of a blank *is* an object of the package, or a kernel
(minidist/learn/kernels.py).
"""

import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from minidist.errors import LessonError
from minidist.learn import kernels
from minidist.learn.manifest import Blank, Lesson, blank_by_id
from minidist.testing.mutants import mutate


@dataclass(frozen=True)
class Mutant:
    """A wrong version of a blank's solution: ``old`` has become ``new`` in its text.

    ``story`` says to whom this happened, with a reference, or what it looks like to a user.
    """

    name: str
    blank: str
    old: str
    new: str
    story: str


def load_file(path: Path) -> ModuleType:
    """Run a file of a lesson afresh and return its module. What the file raises is raised."""
    name = f"lesson_{path.parent.name}_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LessonError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and inspect look there
    linecache.checkcache(str(path))
    # Compiled here and not by the loader, whose cached bytecode goes by whole seconds of the file's
    # time: two saves within one second would be one.
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    return module


def exercise(lesson: Lesson) -> ModuleType:
    """Return the lesson's exercise.py as it is now. Raises LessonError if a blank has gone."""
    path = lesson.file("exercise.py")
    module = load_file(path)
    for blank in lesson.blanks:
        if not hasattr(module, blank.name):
            raise LessonError(
                f"{path.name} has no {blank.name} any more, which is blank {blank.id}; write it "
                f"again, or bring the file back: git checkout -- {path}"
            )
    return module


def checks(lesson: Lesson) -> dict[str, Callable[[Any], None]]:
    """Return the tests of the lesson's check.py by name, in their order."""
    every = vars(load_file(lesson.file("check.py")))
    return {name: test for name, test in every.items() if name.startswith("test_")}


def mutants(lesson: Lesson) -> tuple[Mutant, ...]:
    """Return the lesson's mutants."""
    return tuple(load_file(lesson.file("mutants.py")).MUTANTS)


def solution(blank: Blank) -> Any:
    """Return the object of the package that solves a blank. Raises LessonError if there is none."""
    if ".cu:" in blank.solution:
        return kernels.of_package(blank.solution)
    try:
        return resolve_name(blank.solution)
    except (ImportError, AttributeError, ValueError) as error:
        raise LessonError(f"blank {blank.id}: there is no {blank.solution}: {error}") from error


def solved(lesson: Lesson) -> ModuleType:
    """Return the exercise with the package's own object in place of each blank."""
    module = exercise(lesson)
    for blank in lesson.blanks:
        setattr(module, blank.name, solution(blank))
    return module


def with_mutant(lesson: Lesson, mutant: Mutant) -> ModuleType:
    """Return the solved exercise with a mutant in place of one solution.

    Raises MutantError if the text to change is not there exactly once.
    """
    module = solved(lesson)
    blank = blank_by_id(lesson, mutant.blank)
    right = solution(blank)
    change = right.mutated if isinstance(right, kernels.TextKernel) else partial(mutate, right)
    setattr(module, blank.name, change(mutant.old, mutant.new))
    return module


def blank_of(lesson: Lesson, test: str) -> Blank | None:
    """Return the blank that a test is about: `test_NAME` or `test_NAME_and_more`."""
    about = [b for b in lesson.blanks if f"{test}_".startswith(f"test_{b.name}_")]
    return max(about, key=lambda b: len(b.name), default=None)
