"""A rank that fails ends all ranks, with its traceback.

Without this the others wait for ever in their next receive: the commonest hang of MPI programs.
`python -m mpi4py program.py` sees to it, and `minidist launch` starts ranks so; these hooks do the
same for a program that is started plainly, and put the rank in front of each line:

    [rank 2] Traceback (most recent call last):
    [rank 2]   ...
    [rank 2] ValueError: no such file

They see what Python reports: exceptions that nobody catches, in any thread, and Ctrl-C. Of
`sys.exit(3)` Python reports nothing, so that function is replaced by one that leaves a note.
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


class Exit:
    """Installed as `sys.exit`: when the process ends by it with a failure, end all ranks."""

    def __init__(self, abort: Abort) -> None:
        self.abort = abort
        self.last: SystemExit | None = None
        atexit.register(self.at_end)

    def __call__(self, status: Any = None) -> NoReturn:
        """Raise SystemExit, as `sys.exit` does."""
        self.last = SystemExit(status)
        raise self.last

    def at_end(self) -> None:
        """The process ends: if by a failing exit that nobody caught, the others end with it."""
        status = self.last.code if self.last else None
        if status not in (None, 0) and self._uncaught():
            sys.stdout.flush()
            self.abort(status if isinstance(status, int) else 1)

    def _uncaught(self) -> bool:
        """Say whether the exception went up through the outermost frame, and was that one's end."""
        trace = self.last.__traceback__ if self.last else None
        if trace is None or trace.tb_frame.f_back is not None:
            return False
        return trace.tb_frame.f_lasti == trace.tb_lasti


def end_all_on_failure(rank: int, abort: Abort) -> None:
    """Install the hooks in this process, once."""
    if isinstance(sys.excepthook, EndAll):
        return
    hook = EndAll(rank, abort)
    sys.excepthook, threading.excepthook = hook, hook.in_thread
    if "mpi4py.run" not in sys.modules:  # started plainly, not by `python -m mpi4py`
        sys.exit = Exit(abort)
