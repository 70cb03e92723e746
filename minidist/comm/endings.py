"""A rank that fails ends all ranks, with its traceback.

Without this the others wait for ever in their next receive: the commonest hang of MPI programs.
`python -m mpi4py program.py` sees to it, and `minidist launch` starts ranks so; these hooks do the
same for a program that is started plainly, and put the rank in front of each line:

    [rank 2] Traceback (most recent call last):
    [rank 2]   ...
    [rank 2] ValueError: no such file

They see what Python reports: exceptions that nobody catches, in any thread, and Ctrl-C. Of
`sys.exit(3)` Python reports nothing, so that function is replaced by one whose exception notices.
(`raise SystemExit(3)` goes past it, and only `python -m mpi4py` sees that.)
"""

import atexit
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

Abort = Callable[[int], Any]
"""Ends all ranks with a status: `MPI.COMM_WORLD.Abort`."""


class EndAll:
    """Installed as `sys.excepthook`: print the traceback under the rank's name, end all ranks."""

    def __init__(self, rank: int, abort: Abort) -> None:
        self.rank, self.abort = rank, abort

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Report an exception that nobody has caught."""
        lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
        sys.stdout.flush()
        sys.stderr.write("".join(f"[rank {self.rank}] {line}\n" for line in lines))  # in one piece
        sys.stderr.flush()
        self.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def in_thread(self, args: threading.ExceptHookArgs) -> None:
        """Report one of another thread."""
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            self(args.exc_type, args.exc_value, args.exc_traceback)


class Exit(SystemExit):
    """What `sys.exit` raises. It knows whether it ends the process or was caught on the way.

    The interpreter asks an uncaught SystemExit for its ``code`` when all frames of the program have
    gone; whoever catches one and asks still has a frame.
    """

    def __init__(self, status: Any, ends_process: Callable[[Any], None]) -> None:
        super().__init__(status)
        self._status, self._ends_process = status, ends_process

    @property
    def code(self) -> Any:  # type: ignore[override]
        """The exit status."""
        try:
            sys._getframe(1)
        except ValueError:
            self._ends_process(self._status)
        return self._status


class ExitAll:
    """Installed as `sys.exit`: a process that ends by it with a failure ends all ranks."""

    def __init__(self, abort: Abort) -> None:
        self.abort = abort

    def __call__(self, status: Any = None) -> NoReturn:
        """Raise SystemExit, as `sys.exit` does."""
        raise Exit(status, self._ends_process)

    def _ends_process(self, status: Any) -> None:
        if status not in (None, 0):
            atexit.register(self.abort, status if isinstance(status, int) else 1)


def end_all_on_failure(rank: int, abort: Abort) -> None:
    """Install the hooks in this process, once."""
    if isinstance(sys.excepthook, EndAll):
        return
    hook = EndAll(rank, abort)
    sys.excepthook, threading.excepthook = hook, hook.in_thread
    if "mpi4py.run" not in sys.modules:  # started plainly, not by `python -m mpi4py`
        sys.exit = ExitAll(abort)
