"""What every check of a lesson shares: the exercise beside it, and failures in a few lines."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from minidist.learn import manifest, report, subject
from minidist.learn.limit import limit
from minidist.learn.running import Reporter

LIMIT = 20.0  # seconds of one test; the package's own functions need one or two


def lesson_of(item: pytest.Item) -> manifest.Lesson:
    """The lesson in the folder of which a test stands."""
    lessons = manifest.load(item.path.parent.parent)
    return next(lesson for lesson in lessons if lesson.folder == item.path.parent)


@pytest.fixture
def exercise(request: pytest.FixtureRequest) -> ModuleType:
    """The student's exercise.py, loaded afresh; or what `minidist check` has chosen instead."""
    for plugin in request.config.pluginmanager.get_plugins():
        if isinstance(plugin, Reporter):
            return plugin.subject()
    return subject.exercise(lesson_of(request.node))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with limit(LIMIT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with limit(LIMIT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Put the counterexample in place of the traceback."""
    made = yield
    if call.excinfo is not None and made.failed:
        made.longrepr = report.explain(call.excinfo.value, lesson_of(item), item.name)
    return made
