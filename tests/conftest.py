"""What every test shares: how many examples hypothesis draws, `--all`, and real ranks."""

import functools
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from minidist import processes
from minidist.cuda import emulator_available
from minidist.device import gpu
from minidist.errors import LaunchError
from minidist.launch import library

# No deadline: a first call compiles a kernel or imports a library.
settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=20, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("all", max_examples=200, deadline=None, print_blob=True)

COUNTED = ("mpi", "kernel", "gpu")
RAN = pytest.StashKey[dict[str, int]]()  # mark -> tests that really ran
FOUND = pytest.StashKey[dict[str, int]]()  # mark -> tests that were chosen


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also the slow tests, and more examples")


def pytest_configure(config: pytest.Config) -> None:
    profile = "all" if config.getoption("all") else "ci" if os.environ.get("CI") else "dev"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))
    # A shell that starts pytest with & has it ignore Ctrl-C, and what pytest starts would as well.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[RAN] = dict.fromkeys(COUNTED, 0)
    config.stash[FOUND] = dict.fromkeys(COUNTED, 0)


@functools.cache
def missing(mark: str) -> str:
    """Why tests with this mark cannot run here, or ''. Asked only when there are such tests."""
    if mark == "gpu":
        works, reason = gpu()
        return "" if works else reason
    if mark == "kernel":
        works, reason = emulator_available()
        return "" if works else reason
    if mark == "mpi":
        try:
            library()
        except LaunchError as error:
            return str(error)
    return ""


def pytest_itemcollected(item: pytest.Item) -> None:
    if "mpirun" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.mpi)


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("all"):
            item.add_marker(pytest.mark.skip(reason="slow: only with --all"))
            continue
        for mark in filter(item.get_closest_marker, COUNTED):
            config.stash[FOUND][mark] += 1
            if reason := missing(mark):
                item.add_marker(pytest.mark.skip(reason=f"{mark}: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = (yield).get_result()
    if report.when == "call" and not report.skipped:
        for mark in filter(item.get_closest_marker, COUNTED):
            item.config.stash[RAN][mark] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line that says what a green run proves: real ranks, kernels, devices, or none."""
    stash, parts = terminalreporter.config.stash, []
    for mark in COUNTED:
        ran, found = stash[RAN][mark], stash[FOUND][mark]
        why = f" ({missing(mark)})" if ran < found and missing(mark) else ""
        parts.append(f"{ran} {mark}" if ran == found else f"{ran} of {found} {mark}{why}")
    terminalreporter.write_line("ran: " + ", ".join(parts))


@pytest.fixture
def mpirun(tmp_path) -> Callable[..., processes.Completed]:
    """`mpirun(program, ranks=2, timeout=60, env=None, check=True)`: see minidist/processes.py."""
    return functools.partial(processes.mpirun, folder=tmp_path)
