"""Lesson 02: point to point. Fill in the five blanks, from top to bottom.

    ./run check 02          which blank is next, or the smallest case that goes wrong

A message goes from one rank to one other rank. Both have to say so:

    comm.send(x, to)                rank `to` gets the array x; returns when x may be changed again
    comm.recv(y, source)            fill y with the next array from rank `source`; returns when it
                                    is there. y has the size and dtype of what was sent

`send` may have to wait until the other side receives: whether it does depends on the size of the
message and on the library. So there is a second pair, which starts and does not wait:

    request = comm.isend(x, to)     from now on x must not change ...
    request = comm.irecv(y, source) ... and y has no value ...
    comm.wait_all(requests)         ... until this returns, when all of these messages are complete

Each takes one more argument, a tag: a number that has to be the same on both sides. Messages with
one tag, from one rank to another, arrive in the order in which they were sent.
"""

import math

import numpy as np

from minidist.comm import Link


def exchange(comm, send, to, recv, source, tag=0):
    """Send the array ``send`` to rank ``to`` and fill ``recv`` from rank ``source``, at once.

    A half may be left out: if ``send`` or ``to`` is None nothing is sent, if ``recv`` or ``source``
    is None nothing is received. When it returns, ``send`` may be changed and ``recv`` is there.

    Each rank sends one message. It must end even if every send waits for its receive, and even if
    all ranks of a ring call it at the same time:

        3 ranks, to the right:    0 -> 1    1 -> 2    2 -> 0

    A rank may be its own neighbour: then it sends to itself.
    """
    raise NotImplementedError(
        "02.1: start the receive and the send, those that there are, and wait for both"
    )


def shift(comm, x, out):
    """Send ``x`` to the right neighbour and return ``out``, filled by the left neighbour.

    The ranks stand in a ring: right of rank r is r + 1, and right of the last rank is rank 0.
    ``out`` has the size and dtype of ``x`` and memory of its own. All ranks call it; each sends
    one message. On one rank, which is its own neighbour, ``out`` becomes a copy of ``x``.

        before    rank 0 has A    rank 1 has B    rank 2 has C
        after     rank 0 has C    rank 1 has A    rank 2 has B        in out
    """
    n, r = comm.size, comm.rank
    raise NotImplementedError(
        "02.2: exchange with the two neighbours, whose numbers count modulo n"
    )


def ping_pong(comm, x, repeats=1, a=0, b=1, clock=None):
    """Return the seconds that ``x`` takes from rank ``a`` to rank ``b``: half a round trip.

    In each turn rank a sends x to rank b, which fills y with it and sends y back:

        rank a   --- x --->   rank b          The clock of a runs from here ...
        rank a   <-- y ----   rank b          ... to here: two messages.

    The first turn does not count (it only brings everything into place), and of the ``repeats``
    others the shortest does: whatever disturbs a message makes it slower, never faster.
    """
    if comm.rank not in (a, b):
        return math.nan
    now = clock or (lambda: comm.time)
    y, best = np.empty_like(x), math.inf
    for turn in range(1 + repeats):
        start = now()
        raise NotImplementedError(
            "02.3: on rank a send x and receive y, on rank b the other way round; then, if this "
            "turn counts, put the seconds of ONE message into `best` if they are fewer"
        )

    seconds = np.array([best])
    if comm.rank == a:
        comm.send(seconds, b)  # rank b has not seen when its answer arrived
    else:
        comm.recv(seconds, a)
    return float(seconds[0])


def fit(nbytes, seconds):
    """Return the link that explains best why ``nbytes[i]`` took ``seconds[i]``.

    A link has a latency in seconds and a bandwidth in bytes per second, and a message of n bytes
    takes ``latency + n / bandwidth``. For each message that is one equation with two unknowns:

        latency * 1  +  per_byte * n[i]  =  t[i]            per_byte = 1 / bandwidth

    There are more equations than unknowns, so none is met exactly: find the numbers for which the
    squares of the errors add up to the least (`np.linalg.lstsq`). But times go from microseconds
    to milliseconds, and errors count in proportion: one percent of a short message weighs as much
    as one percent of a long one. So divide every equation by its t[i] first.
    """
    n, t = np.asarray(nbytes, float), np.asarray(seconds, float)
    latency, per_byte = math.nan, math.nan
    raise NotImplementedError("02.4: find latency and per_byte by np.linalg.lstsq(equations, ones)")
    if latency < 0:  # the nearest line that a link can have goes through zero
        latency, per_byte = 0.0, np.sum(n / t) / np.sum((n / t) ** 2)
    return Link(float(latency), float(1 / per_byte))


def knee(link):
    """Return the size in bytes at which a message costs as much for its bytes as for its latency.

    Left of it a message costs the same whatever its size; right of it, twice the bytes cost twice
    the time. Of 2 seconds and 8 bytes a second the knee is at 16 bytes.
    """
    raise NotImplementedError("02.5: for how many bytes n is n / link.bandwidth == link.latency?")
