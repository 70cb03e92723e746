"""What a collective has sent, message by message: whose values, of which piece, from whom to whom.

The real body runs. Its input is not numbers but names: in piece p of rank r one bit is set, which
stands for (p, r). Sums keep the bits apart, so each message says itself whose values are in it, and
a value that was added twice carries into another bit and is found.

    for step, sent in enumerate(history(ring.all_reduce, 4)): ...
    tables = states(history(ring.all_reduce, 4), 4)       who has what, after each step
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minidist.collectives.simulate import simulate
from minidist.collectives.steps import Collective, Steps
from minidist.errors import ConfigError

MOST = 7
"""Ranks at most: ranks times ranks bits are those of an int64."""


class Sent(NamedTuple):
    """One message."""

    source: int
    to: int
    piece: int
    ranks: frozenset[int]
    """Whose values were added up in it."""


def history(collective: Collective, ranks: int) -> list[list[Sent]]:
    """Return the messages of an all-reduce of `ranks` pieces, step by step. Local: no ranks run.

    A step is the n-th exchange of each rank. Raises ConfigError for more ranks than `MOST`, and if
    a message is not a sum of one piece in which each rank is at most once.
    """
    if not 1 <= ranks <= MOST:
        raise ConfigError(f"history: {ranks} ranks; 1 to {MOST} can be told apart")
    found: list[list[Sent]] = []

    def watched(comm: Any, x: Any) -> Steps:
        for step, exchange in enumerate(collective.steps(comm, x)):
            if exchange.send is not None and exchange.to is not None:
                while len(found) <= step:
                    found.append([])
                piece, who = _read(exchange.send, ranks)
                found[step].append(Sent(comm.rank, exchange.to, piece, who))
            yield exchange

    def names(rank: int) -> tuple[Any]:
        return (np.array([1 << (ranks * p + rank) for p in range(ranks)]),)

    simulate(Collective(watched), ranks, names)
    return [sorted(step) for step in found]


def _read(message: Any, ranks: int) -> tuple[int, frozenset[int]]:
    """Return piece and ranks of a message of one element."""
    value = int(message[0]) if message.size == 1 else 0
    bits = [n for n in range(ranks * ranks) if value >> n & 1]
    pieces = {n // ranks for n in bits}
    if len(pieces) != 1:
        raise ConfigError(
            f"history: a message of {message.size} elements with the bits {bits} is not the sum of "
            "one piece, each rank once"
        )
    return pieces.pop(), frozenset(n % ranks for n in bits)


def states(steps: Sequence[Sequence[Sent]], ranks: int) -> list[list[list[frozenset[int]]]]:
    """Return [step][rank][piece] -> whose values this rank has of it; the first is the start.

    A rank adds what it receives to what it has.
    """
    now = [[frozenset({rank})] * ranks for rank in range(ranks)]
    found = [[list(row) for row in now]]
    for step in steps:
        for sent in step:
            now[sent.to][sent.piece] = now[sent.to][sent.piece] | sent.ranks
        found.append([list(row) for row in now])
    return found
