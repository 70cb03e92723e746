"""A limit in seconds for code that may never end, from the system's alarm clock.

In-process ranks prove a deadlock and name a rank that loops (`minidist.comm`); what is left is a
loop outside of ranks, or one in which ranks exchange for ever.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """The limit is over.

    Not an Exception, so that no handler goes on after it, and no search for a smaller case.
    """


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after ``seconds``. Only the main thread has an alarm clock."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"no end after {seconds:g} s: is there a loop that goes on for ever?")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
