"""Drives the bodies of a collective without ranks: a thousand of them on one core.

There is no scheduler and no communicator, only a mailbox and a list of bodies that can go on, so a
message costs a few microseconds. It answers "is it right, and how many messages" for sizes at which
starting ranks would be slow.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from minidist.arrays import Array
from minidist.collectives.steps import Collective, Exchange
from minidist.comm.scratch import Scratch
from minidist.errors import DeadlockError


@dataclass
class Place:
    """What a simulated body sees of a communicator."""

    name: str
    rank: int
    size: int
    room: Scratch = field(repr=False)

    def scratch(self, size: int, like: Array) -> AbstractContextManager[Array]:
        """Lend a work array."""
        return self.room.lend(size, like)

    def at(self, action: str) -> str:
        """Begin a message to people."""
        return f"rank {self.rank}, {action} in simulated {self.name}"


def simulate(
    collective: Collective, ranks: int, arguments: Callable[[int], tuple[Any, ...]]
) -> tuple[list[Any], list[int]]:
    """Run one body per rank; return each rank's result and the number of messages it sent.

    ``arguments(rank)`` gives what the call gets besides the communicator. Bodies that exchange
    across several communicators need real ranks. Raises DeadlockError if no body can go on.
    """
    room, name = Scratch(), collective.__name__
    bodies = [collective.steps(Place(name, r, ranks, room), *arguments(r)) for r in range(ranks)]
    results: list[Any] = [None] * ranks
    sent = [0] * ranks
    mail: defaultdict[Any, deque[Array]] = defaultdict(deque)  # (source, to) -> messages
    at: dict[int, Exchange] = {}  # the exchange that each unfinished body is at

    def go_on(rank: int) -> None:
        """Run one body to its next exchange, and put its message into the mail."""
        try:
            e = at[rank] = next(bodies[rank])
        except StopIteration as end:
            results[rank] = end.value
            at.pop(rank, None)
            return
        able.append(rank)
        if e.meanwhile is not None:
            e.meanwhile()
        if e.send is not None and e.to is not None:
            mail[rank, e.to].append(e.send.copy())
            sent[rank] += 1
            able.append(e.to)

    able: list[int] = []
    for rank in range(ranks):
        go_on(rank)
    while able:
        rank = able.pop()
        e = at.get(rank)
        if e is None:
            continue  # it has finished
        if e.recv is not None:
            if not mail[e.source, rank]:
                continue  # whoever sends it puts this rank back on the list
            e.recv[...] = mail[e.source, rank].popleft()
        go_on(rank)
    if at:
        raise DeadlockError(f"{name}: ranks {sorted(at)} of {ranks} wait for ever")
    return results, sent
