"""Says what a rank waits for, when it waits for long.

A deadlock over MPI is a program that does nothing, without a word. In-process ranks prove one at
once (`minidist.comm.scheduler`); between processes nobody sees the whole. So each rank has a thread
that looks on, and a rank that has waited for longer than the limit says for whom:

    rank 0 has waited 60 s: receive from rank 1, tag 0, in all_reduce #3 (ring) of world
    rank 1 has waited 60 s: barrier of world

Read together, the lines of all ranks are the knot. They come again after twice the time, four
times, and so on; nothing is ended, since waiting for long may be right.

The thread can run because MPI calls leave Python's lock while they block.
"""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from minidist.comm.base import Comm, Request

SHOWN = 4  # of the requests that a rank waits for


class Patience:
    """Prints a line to stderr when rank ``rank`` waits for more than ``limit`` seconds.

    ``waiting`` is what the rank is blocked in, or None: a function that puts it in words and the
    function's arguments, in a new tuple for each blocking call. A limit of 0 means patience without
    end.
    """

    def __init__(self, rank: int, limit: float) -> None:
        self.rank, self.limit = rank, limit
        self.waiting: tuple[Any, ...] | None = None
        self._over = threading.Event()
        if limit > 0:
            threading.Thread(target=self._watch, name="patience", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()

    def _watch(self) -> None:
        seen: tuple[Any, ...] | None = None
        since = due = 0.0
        while not self._over.wait(min(self.limit / 8, 1.0)):
            now = time.monotonic()
            if self.waiting is not seen:  # another wait than at the last look
                seen, since, due = self.waiting, now, self.limit
            elif seen is not None and now - since >= due:
                in_words, *of_what = seen
                line = f"rank {self.rank} has waited {now - since:.0f} s: {in_words(*of_what)}\n"
                sys.stderr.write(line)  # in one piece, so that lines of two ranks do not mix
                sys.stderr.flush()
                due *= 2


def requests_text(requests: Sequence[Request]) -> str:
    """Say what a wait for these requests waits for; the first few are enough."""
    waiting = [r for r in requests if not r.done]
    more = [f"and {len(waiting) - SHOWN} more"] if len(waiting) > SHOWN else []
    return "; ".join([*map(str, waiting[:SHOWN]), *more])


def swap_text(comm: Comm, to: int, source: int) -> str:
    """Say what a blocking exchange waits for."""
    return f"send to rank {to} and receive from rank {source}, tag 0, in {comm.where}"
