"""A rank that fails ends all ranks, with its traceback.

Without this the others wait for ever in their next receive: the commonest hang of MPI programs.
`python -m mpi4py program.py` sees to it, and `minidist launch` starts ranks so; these hooks do the
same for a program that is started plainly, and put the rank in front of each line:

    [rank 2] Traceback (most recent call last):
    [rank 2]   ...
    [rank 2] ValueError: no such file

They see what Python reports: exceptions that nobody catches, in any thread, and Ctrl-C. Of
`sys.exit(3)` Python reports nothing; only `python -m mpi4py` sees that.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from minidist.errors import MemoryLimitError

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
        text = "".join(traceback.format_exception(kind, error, trace))
        if isinstance(error, MemoryLimitError):  # a table that says what to do; no line is at fault
            text = str(error)
        lines = text.splitlines()
        sys.stdout.flush()
        sys.stderr.write("".join(f"[rank {self.rank}] {line}\n" for line in lines))  # in one piece
        sys.stderr.flush()
        self.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def in_thread(self, args: threading.ExceptHookArgs) -> None:
        """Report one of another thread."""
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            self(args.exc_type, args.exc_value, args.exc_traceback)


def end_all_on_failure(rank: int, abort: Abort) -> None:
    """Install the hooks in this process, once."""
    if isinstance(sys.excepthook, EndAll):
        return
    hook = EndAll(rank, abort)
    sys.excepthook, threading.excepthook = hook, hook.in_thread
