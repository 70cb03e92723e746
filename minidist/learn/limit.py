"""Limits for code that may do anything: loop for ever, or end the process of its own check.

In-process ranks prove a deadlock and name a rank that loops (`minidist.comm`); what is left is a
loop outside of ranks, or one in which ranks exchange for ever. For these there is the system's
alarm clock. It also rings in between and notes where the student's code is, because the exception
that ends a loop need not pass through it: a body that has yielded is not on the stack.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary
from types import FrameType, GeneratorType
from typing import Any, NoReturn

from minidist.errors import StuckError

TICK = 1.0  # seconds between two looks


class OutOfTime(BaseException):
    """The limit is over.

    Not an Exception, so that no handler goes on after it, and no search for a smaller case.
    """


class Left(BaseException):
    """The code has asked for the end of the process."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after ``seconds``. Only the main thread has an alarm clock.

    An OutOfTime or a StuckError leaves with ``seen``: where exercise.py was when last looked at.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[FrameSummary] = []
    end = time.monotonic() + seconds

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal end
        stack = places(frame)
        if any(Path(place.filename).name == "exercise.py" for place in stack):
            seen[:] = stack
        if time.monotonic() >= end:
            end += seconds  # once more, should the code catch this one
            raise OutOfTime(f"no end after {seconds:g} s: is there a loop that goes on for ever?")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, min(TICK, seconds), min(TICK, seconds))
    try:
        yield
    except (OutOfTime, StuckError) as error:
        vars(error)["seen"] = tuple(seen)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def places(frame: FrameType | None) -> list[FrameSummary]:
    """Where a frame is, outermost call first, with the bodies that wait at a yield meanwhile.

    Who drives a body (`minidist.collectives.steps`) has it in a variable ``steps``.
    """
    found: list[FrameSummary] = []
    while frame is not None:
        if "steps" in frame.f_code.co_varnames:
            found += reversed(_yields(frame.f_locals.get("steps")))
        found.append(_place(frame))
        frame = frame.f_back
    return found[::-1]


def _yields(body: Any) -> list[FrameSummary]:
    """The yields at which a generator waits, its own first; none if it is running."""
    waits = []
    while isinstance(body, GeneratorType) and body.gi_frame is not None and not body.gi_running:
        waits.append(_place(body.gi_frame))
        body = body.gi_yieldfrom
    return waits


def _place(frame: FrameType) -> FrameSummary:
    code = frame.f_code
    return FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False)


@contextmanager
def stay() -> Iterator[None]:
    """Raise Left in the block where `os._exit` is called, so that no check ends without a verdict.

    A child process would tell as much, but needs care to be ended; a child that the code has
    started itself may leave.
    """
    leave, own, process = os._exit, os.getpid, os.getpid()  # a check may replace os.getpid

    def refuse(status: int) -> NoReturn:
        if own() != process:
            leave(status)
        raise Left(
            f"os._exit({status}) ends the whole process, and the check with it: leave it out"
        )

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
