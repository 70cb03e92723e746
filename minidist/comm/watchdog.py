"""Names the rank that computes for ever.

In-process ranks give way only inside communication, so a rank in an endless loop would stop all
others, and the test run with them. A thread looks on: if no rank has given way for longer than
the limit, it raises an exception inside the thread of the ranks, which lands in the rank at fault.
(Python delivers it at the next bytecode, so a call that hangs inside C is out of reach.)
"""

import ctypes
import threading
from types import TracebackType


class _Alarm(BaseException):
    """What the watchdog throws into the rank; the scheduler turns it into a StuckError."""


class Watchdog:
    """Throws an alarm into the thread that entered it after ``limit`` seconds without a beat."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._beats = 0
        self._over = threading.Event()
        self._lock = threading.Lock()  # so that no alarm is raised once the world is over

    def beat(self) -> None:
        """A sign of life."""
        self._beats += 1

    def fired(self, error: BaseException) -> bool:
        """Say whether this exception is the watchdog's."""
        return isinstance(error, _Alarm)

    def __enter__(self) -> "Watchdog":
        watched = threading.get_ident()
        threading.Thread(target=self._watch, args=(watched,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._over.set()

    def _watch(self, thread: int) -> None:
        seen = -1
        while not self._over.wait(self.limit):
            with self._lock:
                if self._beats == seen and not self._over.is_set():
                    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
                    raise_in(ctypes.c_ulong(thread), ctypes.py_object(_Alarm))
            seen = self._beats
