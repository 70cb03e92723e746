"""The laws of lesson 02. A test is about the blank in its name; tests go in order of the blanks.

Small worlds come first, so that what fails first is the smallest case: 2 ranks before 3, no
elements before one, and each world twice: with sends that wait for their receive, so that no buffer
hides a deadlock, and with sends that do not. Times are those of the virtual clock, so they are
exact.
"""

import math

import numpy as np
from hypothesis import given

from minidist.comm import Link
from minidist.learn import laws
from minidist.learn.laws import NOTHING, LawBroken, World, coded, compare, describe, run_all, worlds

RANKS = (2, 3, 4, 5, 8, 1)  # a rank that is its own neighbour is the odd case, so it comes last
EXCHANGED = (
    "after an exchange `recv` holds what the rank `source` has sent. Until a receive is complete "
    "its array has no value, which is nan here."
)
OVERWRITTEN = (
    "after an exchange the sender may overwrite `send` at once, and did so here, with nothing; "
    "`recv` holds what was sent before."
)
INPUT = "what is sent is only read: afterwards it is as it was."
SHIFTED = "after a shift rank r holds what rank r - 1 had, and rank 0 what the last rank had."


def check_content(function, world, law, overwrite):
    """All ranks exchange with their neighbours; what arrives is what was sent, in one message."""

    def program(comm, n):
        (right, left), x = laws.neighbours(comm), coded(comm.rank, n)
        got = np.full(n, NOTHING, float)
        function(comm, x, right, got, left)
        sent = x.copy()
        if overwrite:
            x[...] = NOTHING
        holds = got.copy()
        comm.barrier()
        return holds, sent, comm.traffic.messages

    holds, sent, messages = zip(*run_all(world, program), strict=True)
    everyone = range(world.ranks)
    want = [coded((r - 1) % world.ranks, world.n) for r in everyone]
    compare(law, world.name, want, holds, describe)
    compare(INPUT, f"{world.name}, `send`", [coded(r, world.n) for r in everyone], sent, describe)
    laws.one_message(world, messages)


def test_exchange(exercise):
    """02.1  all ranks of a ring exchange at once, and nobody waits for ever."""
    for world in worlds(RANKS, most=3):
        check_content(exercise.exchange, world, EXCHANGED, overwrite=False)


def test_exchange_is_over_when_it_returns(exercise):
    """02.1  ... and the array that was sent may be overwritten."""
    for world in worlds(RANKS, most=3):
        check_content(exercise.exchange, world, OVERWRITTEN, overwrite=True)


def test_exchange_of_half(exercise):
    """02.1  ... either half may be left out: along a chain, right and then left."""

    def program(comm, n, step):
        before, after = comm.rank - step, comm.rank + step
        source = before if 0 <= before < comm.size else None
        to = after if 0 <= after < comm.size else None
        got = np.full(n, NOTHING, float)
        exercise.exchange(comm, coded(comm.rank, n), to, got, source)
        exercise.exchange(comm, None, to, None, source)
        return got

    for world in worlds(RANKS, most=1):
        for step in (1, -1):
            everyone = range(world.ranks)
            nothing = np.full(world.n, NOTHING, float)
            want = [coded(r - step, world.n) if r - step in everyone else nothing for r in everyone]
            way = f"{world.name}, every rank sends to rank r {'+' if step > 0 else '-'} 1"
            law = "a rank receives if it has a source, and sends if it has somebody to send to."
            compare(law, way, want, run_all(world, program, step), describe)


def test_exchange_of_two(exercise):
    """02.1  ... or all of it: two ranks exchange, and the others do nothing."""

    def program(comm, n):
        got = np.full(n, NOTHING, float)
        if comm.rank in (1, 2):
            exercise.exchange(comm, coded(comm.rank, n), 3 - comm.rank, got, 3 - comm.rank)
        return got

    law = "an exchange is a matter of the ranks that take part: it waits for nobody else."
    for world in worlds((3, 4), most=1):
        nothing = np.full(world.n, NOTHING, float)
        want = [coded(3 - r, world.n) if r in (1, 2) else nothing for r in range(world.ranks)]
        name = f"{world.name}, only ranks 1 and 2 exchange"
        compare(law, name, want, run_all(world, program, law=law, meets=False), describe)


def test_exchange_with_a_tag(exercise):
    """02.1  ... and only messages with its tag are meant."""

    def program(comm, n, name):
        right, left = laws.neighbours(comm)
        got, other = np.full(n, NOTHING, float), np.full(n, NOTHING, float)
        first = comm.isend(coded(comm.rank, n, start=100), right)
        exercise.exchange(comm, coded(comm.rank, n), right, got, left, 7)
        want = [coded((r - 1) % comm.size, n) for r in range(comm.size)]
        law = "a message is received only under its own tag; [100:...] was sent under another one."
        compare(law, name, want, comm.gather_objects(got), describe)
        comm.recv(other, left)
        first.wait()

    for world in worlds(RANKS, most=2):
        if world.n and not world.synchronous:  # so that a wrong message comes, and can be shown
            run_all(world, program, world.name)


@laws.LARGER
@given(world=laws.larger_worlds)
def test_exchange_of_any_size(exercise, world):
    """02.1  ... of any size, in any order of events."""
    check_content(exercise.exchange, world, OVERWRITTEN, overwrite=True)


def check_shift(function, world):
    """Content, what is returned, and what it costs."""

    def program(comm, n):
        x, out = coded(comm.rank, n), np.full(n, NOTHING, float)
        returned = function(comm, x, out)
        what = "nothing" if returned is None else "something else"
        what = "the array `out`" if returned is out else what
        return out, x, what, comm.traffic.messages

    everyone = range(world.ranks)
    want = [coded((r - 1) % world.ranks, world.n) for r in everyone]
    outs, x, returned, messages = zip(*run_all(world, program), strict=True)
    compare(SHIFTED, world.name, want, outs, describe)
    compare(INPUT, f"{world.name}, `x`", [coded(r, world.n) for r in everyone], x, describe)
    want = ["the array `out`"] * world.ranks
    compare("shift returns `out`.", world.name, want, returned, str, "return")
    if world.ranks > 1:
        laws.one_message(world, messages)


def test_shift(exercise):
    """02.2  what every rank holds moves on to the right."""
    for world in worlds(RANKS, most=3):
        check_shift(exercise.shift, world)


def test_shift_of_any_dtype(exercise):
    """02.2  ... to the last bit, whatever the dtype."""
    for ranks in (2, 3):
        for dtype, first in ((np.float32, 0.1), (np.uint8, 250), (np.int64, 2**53 + 1)):

            def program(comm, n, dtype=dtype, first=first):
                x = np.full(n, first, dtype) + dtype(2 * comm.rank)
                return x, exercise.shift(comm, x, np.zeros(n, dtype))

            had, got = zip(*run_all(World(ranks, 1), program), strict=True)
            law = f"{SHIFTED} The bytes as they are: 2**53 + 1 is no float64."
            compare(
                law,
                f"{ranks} ranks, n = 1, {np.dtype(dtype).name}",
                [had[r - 1] for r in range(ranks)],
                got,
            )


@laws.LARGER
@given(world=laws.larger_worlds)
def test_shift_of_any_size(exercise, world):
    """02.2  ... of any size, in any order of events."""
    check_shift(exercise.shift, world)


X_STAYS = "what comes goes into y; x is as it was."
SLOW = Link(0.25, 64.0)  # exact in binary, so that times can be compared with ==


def timed(comm, n, function, repeats, a, b, fast=1):
    """The result of a ping-pong, nan as None; the bytes that this rank sent; whether x is intact.

    A clock that it is handed runs ``fast`` times as fast as that of the communicator; then x is
    read-only, since on rank a x comes back as it was, and would hide that it was written to.
    """
    x = np.full(n, 1 + comm.rank, np.uint8)
    clock = None if fast == 1 else lambda: fast * comm.time
    x.flags.writeable = fast == 1
    result = function(comm, x, repeats, a, b, clock)
    skipped = isinstance(result, float) and math.isnan(result)
    intact = "x" if (x == 1 + comm.rank).all() else "another x"
    return None if skipped else result, comm.traffic.bytes, intact


def test_ping_pong(exercise):
    """02.3  a ping-pong finds the time of one message, exactly."""
    for ranks, a, b in ((2, 0, 1), (3, 0, 1), (3, 2, 1), (4, 1, 3)):
        for n in (0, 1, 16, 64, 1000):
            for synchronous in (True, False):
                world = World(ranks, n, synchronous=synchronous)
                size = laws.counted(n, "byte")
                name = f"{ranks} ranks, {size}, latency 0.25 s, 64 bytes/s, between {a} and {b}"
                found = run_all(world, timed, exercise.ping_pong, 2, a, b, links=SLOW)
                times, sent, intact = zip(*found, strict=True)
                want = [laws.line(SLOW, n) if r in (a, b) else None for r in range(ranks)]
                law = f"one message of {size} takes latency + {n} / bandwidth."
                compare(law, name, want, times, laws.seconds, "find")
                bytes_sent = [{a: 3 * n + 8, b: 3 * n}.get(r, 0) for r in range(ranks)]
                law = "1 + 2 turns, in each of which x goes and comes back, and 8 bytes at the end."
                compare(law, name, bytes_sent, sent, "{} bytes".format, "send")
                compare(X_STAYS, name, ["x"] * ranks, intact, str, "keep")


def test_ping_pong_with_a_clock(exercise):
    """02.3  ... on the clock that it is handed."""
    found = run_all(World(2, 64), timed, exercise.ping_pong, 2, 0, 1, 8, links=SLOW)
    name = "2 ranks, a message takes 1.25 s, and `clock` runs 8 times as fast as comm.time"
    law = "if there is a `clock`, it measures."
    compare(law, name, [10.0] * 2, [time for time, *_ in found], laws.seconds, "find")


def test_ping_pong_takes_the_shortest(exercise):
    """02.3  ... of the turns after the first, the shortest."""
    for ranks in (2, 3):
        for turns in ((0.5, 4.0), (0.5, 1.0, 4.0), (0.5, 4.0, 1.0, 2.0)):
            # each turn there and back; then what rank a tells rank b
            links = iter([Link(float(t)) for t in (*np.repeat(turns, 2), 2)])
            repeats, how = len(turns) - 1, {"links": lambda a, b, links=links: next(links)}
            found = run_all(World(ranks, 1), timed, exercise.ping_pong, repeats, 0, 1, **how)
            want = [min(turns[1:]) if r < 2 else None for r in range(ranks)]
            name = f"{ranks} ranks, messages of turns 0 to {repeats} take {turns} s"
            law = "turn 0 does not count, and of the others the shortest does."
            compare(law, name, want, [time for time, *_ in found], laws.seconds, "find")


SIZES = [2.0**k for k in range(27)]
LINKS = [Link(1e-6, 5e9), Link(20e-6, 1.25e9), Link(2.0, 8.0)]


def test_fit(exercise):
    """02.4  the fit of times that lie on a line is that line."""
    for true in LINKS:
        found = exercise.fit(SIZES, [laws.line(true, n) for n in SIZES])
        if laws.of_link(found) != laws.of_link(true):
            law = "times that lie on a line are fitted by that line."
            raise LawBroken(law, f"times of {laws.of_link(true)}, without any error:\n"
                            f"fit should find that, finds {laws.of_link(found)}")  # fmt: skip


def test_fit_weighs_errors_in_proportion(exercise):
    """02.4  ... and with errors of ten percent no other line is nearer, in proportion."""

    def off(link, times):
        return sum((laws.line(link, n) / t - 1) ** 2 for n, t in zip(SIZES, times, strict=True))

    for true in LINKS:
        times = [laws.line(true, n) * (1 + 0.1 * (-1) ** k) for k, n in enumerate(SIZES)]
        found = exercise.fit(SIZES, times)
        some = (0.99, 1.01)
        nudged = [Link(found.latency * p, found.bandwidth * q) for p in some for q in some]
        nearest = min([true, *nudged], key=lambda link: off(link, times))
        if not off(found, times) <= off(nearest, times) * (1 + 1e-9):
            law = "of all lines, the fit has the least sum of squares of (line - time) / time."
            raise LawBroken(law, f"times of {laws.of_link(true)}, off by ten percent in turn\n"
                            f"fit finds {laws.of_link(found)};\nnearer is {laws.of_link(nearest)}\n"
                            f"sum of squares {off(found, times):.4g}, of the nearer one "
                            f"{off(nearest, times):.4g}")  # fmt: skip


def test_fit_has_no_negative_latency(exercise):
    """02.4  ... and no latency below zero."""
    found = exercise.fit([1, 2], [0.5, 2.0])
    if not math.isclose(1 / found.bandwidth, 0.6) or found.latency != 0:
        law = "the latency is never negative: the nearest line is then one through zero."
        raise LawBroken(law, f"1 byte in 0.5 s and 2 bytes in 2 s: fit finds {laws.of_link(found)}")


def test_knee(exercise):
    """02.5  at the knee the bytes cost as much as the latency."""
    for link in (Link(2.0, 8.0), SLOW, Link(0.5, 5.0), Link(0.0, 8.0)):
        found = exercise.knee(link)
        if found is None or laws.line(link, found) != 2 * link.latency:
            want = link.latency * link.bandwidth
            law = "at the knee a message takes twice its latency: for the start, and for bytes."
            raise LawBroken(law, f"{laws.of_link(link)}: knee should be {want:g} bytes, is {found}")
