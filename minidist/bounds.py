"""The only split there is: who owns which of n things.

Collectives, data slices, optimiser shards, heads and layers all cut with this one function, so two
modules can never disagree about a border. The first ``n % parts`` pieces are one longer:

    bounds(10, 4) == [0, 3, 6, 8, 10]        pieces of 3, 3, 2, 2
    bounds(2, 4)  == [0, 1, 2, 2, 2]         pieces of 1, 1, 0, 0: empty pieces are legal

Real systems often pad to ``ceil(n / parts) * parts`` instead. Padding makes every message equal,
and then has to be masked in norms, losses and checkpoints.
"""

from typing import Protocol

from minidist.errors import ConfigError


class Seat(Protocol):
    """Which of how many: a communicator."""

    rank: int
    size: int


def bounds(n: int, parts: int) -> list[int]:
    """Return the ``parts + 1`` offsets that cut ``range(n)`` into consecutive pieces.

    Piece ``i`` is ``offsets[i]:offsets[i + 1]``. Raises ConfigError for a negative ``n`` or for
    fewer than one part.
    """
    if n < 0 or parts < 1:
        raise ConfigError(f"cannot cut {n} things into {parts} parts: need n >= 0 and parts >= 1")
    small, extra = divmod(n, parts)
    return [i * small + min(i, extra) for i in range(parts + 1)]


def share(comm: Seat, n: int) -> tuple[int, int]:
    """Return where this rank's piece of ``range(n)`` starts and stops, with one piece per rank.

    Local: every rank knows the whole cut, so nobody has to be asked.
    """
    cut = bounds(n, comm.size)
    return cut[comm.rank], cut[comm.rank + 1]
