"""How a lesson's check.py is run: pytest inside this process, heard by a reporter."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from minidist.errors import LessonError
from minidist.learn import subject
from minidist.learn.limit import stay
from minidist.learn.manifest import Lesson
from minidist.learn.report import NO_TERMINAL, shortened
from minidist.learn.subject import Mutant

PRINTED = 20  # lines of the student's own printing that a failure shows


def blanks_left(lesson: Lesson) -> set[str]:
    """Return the ids of the blanks that are blank still, by their text."""
    files = (lesson.folder / name for name in ("exercise.py", "exercise.cu"))
    text = "".join(f.read_text("utf-8", "replace") for f in files if f.is_file())
    return {blank.id for blank in lesson.blanks if f'"{blank.id}: ' in text}


class Reporter:
    """Listens to pytest: one line for each test that passes, and the text of the first failure.

    Gives `lessons/conftest.py` the subject of the check.
    """

    def __init__(self, lesson: Lesson, mutant: Mutant | None, quiet: bool = False) -> None:
        self.lesson, self.mutant, self.quiet = lesson, mutant, quiet
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

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Put first who owns what, where there is something to ask about."""
        first = {id(test) for test in getattr(items[0].module, "SYMBOLIC", ())} if items else set()
        left = blanks_left(self.lesson) if self.mutant is None else set()

        def late(item: Any) -> bool:
            blank = subject.blank_of(self.lesson, item.name)
            return id(item.obj) not in first or blank is None or blank.id in left

        items.sort(key=late)

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
            if not self.quiet:
                print(f"  ok  {self._says[getattr(report, 'nodeid', '')]}", flush=True)


def run_check(lesson: Lesson, reporter: Reporter) -> None:
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
