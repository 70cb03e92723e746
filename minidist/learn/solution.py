"""`minidist solution NN.k`: how the package does it, and how that differs from what you wrote.

There is no folder of solutions: what solves a blank is the object that training runs on. Looking at
it before the lesson is done is noted, and `minidist lessons` shows a hollow mark; nothing else.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import Any

from minidist.errors import LessonError
from minidist.learn import manifest, progress, subject
from minidist.learn.kernels import TextKernel
from minidist.learn.manifest import Blank, Lesson
from minidist.testing.mutants import source_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("blank", metavar="NN.k", help="number of the blank: 03.2")


def main(args: argparse.Namespace) -> int:
    """Print the source of the solution, and the difference to the exercise."""
    lesson, blank = manifest.find_blank(manifest.load(), args.blank)
    done = progress.load(manifest.lessons_folder())
    text = text_of(subject.solution(blank))
    print(f"{blank.id}  {blank.name} is {blank.solution}\n\n{text}")
    if lines := list(difference(lesson, blank, text)):
        print("\nfrom yours (-) to the package's (+):\n\n" + "\n".join(lines))
    if lesson.id not in done.done and blank.id not in done.looked:
        try:
            done.note("looked", blank.id)
        except LessonError as error:
            print(error, file=sys.stderr)
    return 0


def text_of(target: Callable[..., Any]) -> str:
    """Return the source text of a solution, or of what a student has written."""
    source = target.source() if isinstance(target, TextKernel) else source_of(target)
    return source.rstrip()


def difference(lesson: Lesson, blank: Blank, text: str) -> Iterator[str]:
    """Yield the lines of a diff; none for an exercise that cannot be loaded, or is blank still."""
    try:
        yours = text_of(getattr(subject.exercise(lesson), blank.name))
    except Exception:  # whatever a half-written file raises
        return
    if f"{blank.id}: " in yours:
        return
    yield from list(unified_diff(yours.splitlines(), text.splitlines(), lineterm="", n=99))[2:]
