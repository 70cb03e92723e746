"""Ping-pong: the seconds that one message takes.

    rank a   --- x --->   rank b          The clock of a runs from here ...
    rank a   <-- x ----   rank b          ... to here: two messages.

The clocks of two machines do not agree, so nobody can subtract the time of departure on one from
the time of arrival on the other. A round trip begins and ends on one clock, and half of it is the
time of one message (if both ways are alike; on real networks they may not be).

Of several round trips the *shortest* counts. Whatever disturbs a message (another process, an
interrupt, the page that is touched for the first time) makes it slower, never faster: the mean
measures the disturbance too, the minimum comes closest to the link. osu_latency takes the mean of
thousands, which needs an idle machine.
"""

import math
from collections.abc import Callable

import numpy as np

from minidist.arrays import Array, namespace
from minidist.comm import Comm
from minidist.errors import ConfigError


def ping_pong(
    comm: Comm,
    x: Array,
    repeats: int = 1,
    a: int = 0,
    b: int = 1,
    clock: Callable[[], float] | None = None,
) -> float:
    """Return the seconds that ``x`` takes from one rank to the other: half a round trip.

    Ranks ``a`` and ``b`` call it and get the same number, the least of ``repeats``; other ranks may
    call it and get nan at once. ``x``: a contiguous array of any size, also of none, equal in size
    and dtype on both ranks; it is not changed. Each of the two sends ``(1 + repeats) * x.nbytes``
    bytes, and ``a`` 8 more at the end. ``clock``: `Comm.time` unless given; ranks inside one
    process stand still on that clock unless they have links, and need `time.perf_counter` to be
    timed for real. Raises ConfigError if a is b, or for fewer than one repeat.
    """
    if a == b or repeats < 1:
        raise ConfigError(f"ping_pong between ranks {a} and {b}, {repeats} times: needs 2 and >= 1")
    if comm.rank not in (a, b):
        return math.nan
    now = clock or (lambda: comm.time)
    y, best = namespace(x).empty_like(x), math.inf
    for turn in range(1 + repeats):
        start = now()
        if comm.rank == a:
            comm.send(x, b)
            comm.recv(y, b)
        else:  # the other order: two ranks that both send first may wait for each other
            comm.recv(y, a)
            comm.send(y, a)
        if turn > 0:  # the first turn only brings both ranks, and the memory of y, into place
            best = min(best, (now() - start) / 2)

    seconds = np.array([best])
    if comm.rank == a:
        comm.send(seconds, b)  # rank b has not seen when its answer arrived
    else:
        comm.recv(seconds, a)
    return float(seconds[0])
