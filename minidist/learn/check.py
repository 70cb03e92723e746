"""The command `minidist check NN`: runs the checks of a lesson on the student's exercise.

    $ minidist check 03
    lesson 03: From parameter server to ring all-reduce
      ok    every rank has the sum of all, from the server
      next  03.2  broadcast (about 4 lines): ...

Tests run in the order of the blanks, on ranks inside this process, and stop at the first failure,
which is told in a few lines. The exit status is 0 when all of them pass, else 1.

After the verdict the process ends, also if the exercise has started threads that go on.
"""

import argparse
import os
import re
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

from minidist.errors import LessonError
from minidist.learn import manifest, subject
from minidist.learn.limit import stay
from minidist.learn.manifest import Lesson
from minidist.learn.report import NO_TERMINAL, shortened
from minidist.learn.subject import Mutant

PRINTED = 20  # lines of the student's own printing that a failure shows


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("lesson", metavar="NN", help="number of the lesson: 03")
    words = "check wrong version K of the lesson (1, 2, ...) in place of your exercise"
    parser.add_argument("--mutant", metavar="K", type=int, help=words)


def main(args: argparse.Namespace) -> int:
    """Check one lesson; return 0 if all is right, else 1."""
    before = threading.enumerate()
    try:
        status = _check(args)
    except KeyboardInterrupt:
        _leave_threads(before, 130)
        raise
    _leave_threads(before, status)
    return status


def _leave_threads(before: Collection[threading.Thread], status: int) -> None:
    """End the process now if the exercise has left threads: Python would wait for them."""
    if any(not t.daemon and t not in before for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _check(args: argparse.Namespace) -> int:
    lessons = manifest.load()
    lesson = manifest.find(lessons, args.lesson)
    for name in ("exercise.py", "check.py"):
        lesson.file(name)
    if not (shared := lesson.folder.parent / "conftest.py").is_file():
        raise LessonError(
            f"{shared} is not there, and no check works without it; bring it back with: "
            f"git checkout -- {shared}"
        )
    print(f"lesson {lesson.id}: {lesson.title}")
    reporter = Reporter(lesson, None if args.mutant is None else _mutant(lesson, args.mutant))
    _run(lesson, reporter)
    if reporter.failure is not None:
        print(f"\n{reporter.failure}")
        return 1
    if not reporter.passed:
        raise LessonError(f"{lesson.folder / 'check.py'} has no test; nothing was checked")
    print(f"\n{_after(lesson, lessons)}")
    return 0


def _mutant(lesson: Lesson, number: int) -> Mutant:
    every = subject.mutants(lesson)
    if not 1 <= number <= len(every):
        raise LessonError(f"lesson {lesson.id} has wrong versions 1 to {len(every)}, not {number}")
    print(f"wrong version {number} of {len(every)}, of {every[number - 1].blank}")
    return every[number - 1]


def _after(lesson: Lesson, lessons: Sequence[Lesson]) -> str:
    """What to say after success: why it works, and where to go on."""
    after = lessons[lessons.index(lesson) + 1 :]
    ahead = f"next: lesson {after[0].id}, {after[0].title}" if after else "this is the last lesson"
    return (
        f"Lesson {lesson.id} is done: all of this holds for what you have written.\n"
        f'why it works: {lesson.folder / "README.md"}, under "Observe"\n{ahead}'
    )


class Reporter:
    """Listens to pytest: one line for each test that passes, and the text of the first failure.

    Gives `lessons/conftest.py` the subject of the check.
    """

    def __init__(self, lesson: Lesson, mutant: Mutant | None) -> None:
        self.lesson, self.mutant = lesson, mutant
        self.passed = 0
        self.failure: str | None = None
        self._says: dict[str, str] = {}

    def subject(self) -> ModuleType:
        """Return the module that is checked: the exercise, or a wrong version."""
        if self.mutant is None:
            return subject.exercise(self.lesson)
        return subject.with_mutant(self.lesson, self.mutant)

    def pytest_itemcollected(self, item: object) -> None:
        """Keep what each test says about itself: the first line of its docstring."""
        test = getattr(item, "obj", None)
        text = str(getattr(test, "__doc__", None) or getattr(item, "name", ""))
        self._says[getattr(item, "nodeid", "")] = text.strip().splitlines()[0].rstrip(".")

    def pytest_collectreport(self, report: object) -> None:
        """A check.py that cannot be read is a failure."""
        if getattr(report, "failed", False):
            self.failure = str(getattr(report, "longrepr", ""))

    def pytest_runtest_logreport(self, report: object) -> None:
        """Tell what came of a test."""
        if getattr(report, "failed", False) and self.failure is None:
            printed = str(getattr(report, "capstdout", "")).splitlines()[-PRINTED:]
            lines = (f"    {shortened(line)}" for line in printed)
            shown = ["", "your code printed:", *lines]
            text = str(getattr(report, "longrepr", ""))
            self.failure = "\n".join([text, *(shown if printed else [])])
        elif getattr(report, "when", "") == "call":
            self.passed += 1
            print(f"  ok  {self._says[getattr(report, 'nodeid', '')]}", flush=True)


def _run(lesson: Lesson, reporter: Reporter) -> None:
    """Run pytest on the check of a lesson; the reporter hears what came of it."""
    try:
        import hypothesis  # noqa: F401
        import pytest
    except ImportError as error:
        raise LessonError(
            f"checks need {error.name}, which is not installed: pip install 'minidist[test]', or "
            "pip install -e '.[test]' in the checkout"
        ) from error
    words = [str(lesson.folder / "check.py"), "--exitfirst", f"--rootdir={lesson.folder.parent}"]
    words += ["--import-mode=importlib", f"-c{os.devnull}", "-pno:cacheprovider", "-pno:terminal"]
    words += ["-pno:debugging"]  # it wants the terminal, and takes breakpoint() for itself
    with _plain_pytest(), stay(), _no_debugger():
        status = pytest.main(words, plugins=[reporter])
    known = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}
    if status == pytest.ExitCode.INTERRUPTED and reporter.failure is None:
        raise KeyboardInterrupt
    if status not in known and reporter.failure is None:
        raise LessonError(f"pytest could not run {words[0]} (status {status})")


@contextmanager
def _plain_pytest() -> Iterator[None]:
    """Keep the user's own flags and plugins of pytest out of it."""
    before = dict(os.environ)
    for name in [n for n in os.environ if re.match(r"PYTEST_(ADDOPTS|PLUGINS)$", n)]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _no_debugger() -> Iterator[None]:
    """Refuse `breakpoint()`: the terminal is not the exercise's, and the time is limited."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise LessonError(f"breakpoint() {NO_TERMINAL}")

    before, sys.breakpointhook = sys.breakpointhook, refuse
    try:
        yield
    finally:
        sys.breakpointhook = before
