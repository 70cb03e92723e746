"""Programs of a check on real ranks, where there are as many as the program wants.

`minidist check` runs the whole check of a lesson in one process first. Then it starts 2, 3 and 4
MPI ranks, each of which runs the same check: a program for as many ranks as there are runs on them,
and every rank compares the results of all.
"""

from collections.abc import Callable
from typing import Any

from minidist.comm import Comm
from minidist.comm import run as in_process
from minidist.comm.traffic import Traffic


class Ranks:
    """The MPI ranks of this process, if it is one of several, and what has run on them."""

    def __init__(self) -> None:
        self.comm: Comm | None = None
        self.programs = 0

    @property
    def size(self) -> int:
        """How many there are; 0 in a process of its own."""
        return self.comm.size if self.comm else 0


RANKS = Ranks()


def run(
    program: Callable[..., Any],
    *args: Any,
    ranks: int = 4,
    links: Any = None,
    **how: Any,
) -> list[Any]:
    """Run ``program(comm, *args)`` on so many ranks; return the result of each by rank.

    As `minidist.comm.run`, to which it goes unless there are just as many real ranks. A virtual
    clock (``links``), and orders of events, exist in one process only.
    """
    comm = RANKS.comm
    if comm is None or comm.size != ranks or links is not None:
        return in_process(program, *args, ranks=ranks, links=links, **how)
    RANKS.programs += 1
    comm.traffic = Traffic()  # counts begin anew, as in a new world
    return comm.gather_objects(program(comm, *args))
