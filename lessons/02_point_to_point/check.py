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
from minidist.errors import DeadlockError
from minidist.learn.laws import (
    LARGER,
    NOTHING,
    LawBroken,
    World,
    coded,
    compare,
    describe,
    larger_worlds,
    worlds,
)
from minidist.learn.report import DONE

RANKS = (2, 3, 4, 5, 8, 1)  # a rank that is its own neighbour is the odd case, so it comes last
EXCHANGED = (
    "after an exchange `recv` holds what the rank `source` has sent. Until a receive is complete "
    "its array has no value, which is nan here."
)
OVERWRITTEN = (
    "after an exchange the sender may overwrite `send` at once, and did so here, with nothing; "
    "`recv` holds what was sent before."
)
NO_CIRCLE = (
    "a rank that waits does nothing else: if each waits for one that waits, all wait for ever. "
    "Whatever the others do, each rank must get to where it receives what they send."
)
SHIFTED = "after a shift rank r holds what rank r - 1 had, and rank 0 what the last rank had."


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def run_all(world, program, *args, **how):
    """Run a program in a world; a deadlock is a broken law, and its ranks are the table."""
    try:
        return world.run(program, *args, **how)
    except DeadlockError as error:
        waiting = [DONE.sub(" is done", line.strip()) for line in str(error).splitlines()[1:]]
        sends = ", each send waits for its receive" if world.synchronous else ""
        stuck = f"{world.name}{sends}: no rank can go on"
        raise LawBroken(NO_CIRCLE, stuck, "\n".join(waiting)) from None


def check_content(function, world, law, overwrite):
    """All ranks exchange with their neighbours; what arrives is what was sent."""

    def program(comm, n):
        (right, left), x = neighbours(comm), coded(comm.rank, n)
        got = np.full(n, NOTHING, float)
        function(comm, x, right, got, left)
        if overwrite:
            x[...] = NOTHING
        holds = got.copy()
        comm.barrier()
        return holds

    want = [coded((r - 1) % world.ranks, world.n) for r in range(world.ranks)]
    compare(law, world.name, want, run_all(world, program), describe)


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
            want = [
                coded(r - step, world.n)
                if r - step in everyone
                else np.full(world.n, NOTHING, float)
                for r in everyone
            ]
            way = f"{world.name}, every rank sends to rank r {'+' if step > 0 else '-'} 1"
            law = "a rank receives if it has a source, and sends if it has somebody to send to."
            compare(law, way, want, run_all(world, program, step), describe)


def test_exchange_with_a_tag(exercise):
    """02.1  ... and only messages with its tag are meant."""

    def program(comm, n, name):
        right, left = neighbours(comm)
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


@LARGER
@given(world=larger_worlds)
def test_exchange_of_any_size(exercise, world):
    """02.1  ... of any size, in any order of events."""
    check_content(exercise.exchange, world, OVERWRITTEN, overwrite=True)


def check_shift(function, world):
    """Content, what is returned, and what it costs."""

    def program(comm, n):
        x, out = coded(comm.rank, n), np.full(n, NOTHING, float)
        returned = function(comm, x, out)
        return out, returned is out, comm.traffic.messages

    everyone = range(world.ranks)
    want = [coded((r - 1) % world.ranks, world.n) for r in everyone]
    outs, returned, messages = zip(*run_all(world, program), strict=True)
    compare(SHIFTED, world.name, want, outs, describe)
    words = {True: "the array `out`", False: "something else"}.get
    compare("shift returns `out`.", world.name, [True] * world.ranks, returned, words, "return")
    if world.ranks > 1:
        law = "a shift costs each rank one message."
        compare(law, world.name, [1] * world.ranks, messages, lambda m: f"{m} messages", "send")


def test_shift(exercise):
    """02.2  what every rank holds moves on to the right."""
    for world in worlds(RANKS, most=3):
        check_shift(exercise.shift, world)


@LARGER
@given(world=larger_worlds)
def test_shift_of_any_size(exercise, world):
    """02.2  ... of any size, in any order of events."""
    check_shift(exercise.shift, world)


LATENCY, BANDWIDTH = 0.25, 64.0  # exact in binary, so that times can be compared with ==


def seconds(value):
    """A time for people; a rank that does not take part has none."""
    return (
        "no time" if value is None else f"{value:g} s" if isinstance(value, float) else repr(value)
    )


def timed(comm, n, function, repeats, a, b):
    """The result of a ping-pong, nan as None, and the bytes that this rank sent."""
    result = function(comm, np.zeros(n, np.uint8), repeats, a, b)
    skipped = isinstance(result, float) and math.isnan(result)
    return None if skipped else result, comm.traffic.bytes


def test_ping_pong(exercise):
    """02.3  a ping-pong finds the time of one message, exactly."""
    for ranks, a, b in ((2, 0, 1), (3, 0, 1), (3, 2, 1), (4, 1, 3)):
        for n in (0, 1, 16, 64, 1000):
            for synchronous in (True, False):
                world = World(ranks, n, synchronous=synchronous)
                name = f"{ranks} ranks, {n} bytes, latency 0.25 s, 64 bytes/s, between {a} and {b}"
                found = run_all(
                    world, timed, exercise.ping_pong, 2, a, b, links=(LATENCY, BANDWIDTH)
                )
                times, sent = zip(*found, strict=True)
                want = [LATENCY + n / BANDWIDTH if r in (a, b) else None for r in range(ranks)]
                law = f"one message of {n} bytes takes latency + {n} / bandwidth."
                compare(law, name, want, times, seconds, "find")
                bytes_sent = [{a: 3 * n + 8, b: 3 * n}.get(r, 0) for r in range(ranks)]
                law = "1 + 2 turns, in each of which x goes and comes back, and 8 bytes at the end."
                compare(law, name, bytes_sent, sent, lambda v: f"{v} bytes", "send")


def test_ping_pong_takes_the_shortest(exercise):
    """02.3  ... of the turns after the first, the shortest."""
    for ranks in (2, 3):
        # turns 0 (does not count), 1, 2 and 3, each there and back; then what rank a tells rank b
        latencies = iter([0.5, 0.5, 4.0, 4.0, 1.0, 1.0, 2.0, 2.0, 2.0])

        def next_link(a, b, latencies=latencies):
            return Link(next(latencies))

        found = run_all(World(ranks, 1), timed, exercise.ping_pong, 3, 0, 1, links=next_link)
        want = [1.0 if r < 2 else None for r in range(ranks)]
        name = f"{ranks} ranks, messages of turns 0, 1, 2, 3 take 0.5, 4, 1, 2 s"
        law = "turn 0 does not count, and of the others the shortest does."
        compare(law, name, want, [time for time, _ in found], seconds, "find")


SIZES = [2.0**k for k in range(27)]
LINKS = [Link(1e-6, 5e9), Link(20e-6, 1.25e9), Link(2.0, 8.0)]


def line(link, n):
    return link.latency + n / link.bandwidth


def numbers(link):
    return f"latency {link.latency:.4g} s, bandwidth {link.bandwidth:.4g} bytes/s"


def test_fit(exercise):
    """02.4  the fit of times that lie on a line is that line."""
    for true in LINKS:
        found = exercise.fit(SIZES, [line(true, n) for n in SIZES])
        if numbers(found) != numbers(true):
            law = "times that lie on a line are fitted by that line."
            raise LawBroken(law, f"times of {numbers(true)}, without any error:\n"
                            f"fit should find that, finds {numbers(found)}")  # fmt: skip


def test_fit_weighs_errors_in_proportion(exercise):
    """02.4  ... and with errors of ten percent no other line is nearer, in proportion."""

    def off(link, times):
        return sum((line(link, n) / t - 1) ** 2 for n, t in zip(SIZES, times, strict=True))

    for true in LINKS:
        times = [line(true, n) * (1 + 0.1 * (-1) ** k) for k, n in enumerate(SIZES)]
        found = exercise.fit(SIZES, times)
        nudged = [
            Link(found.latency * p, found.bandwidth * q) for p in (0.99, 1.01) for q in (0.99, 1.01)
        ]
        nearest = min([true, *nudged], key=lambda link: off(link, times))
        if not off(found, times) <= off(nearest, times) * (1 + 1e-9):
            law = "of all lines, the fit has the least sum of squares of (line - time) / time."
            raise LawBroken(law, f"times of {numbers(true)}, ten percent off, up or down in turn\n"
                            f"fit finds {numbers(found)};\nnearer is {numbers(nearest)}\n"
                            f"sum of squares {off(found, times):.4g}, of the nearer one "
                            f"{off(nearest, times):.4g}")  # fmt: skip


def test_fit_has_no_negative_latency(exercise):
    """02.4  ... and no latency below zero."""
    found = exercise.fit([1, 2], [0.5, 2.0])
    if not math.isclose(1 / found.bandwidth, 0.6) or found.latency != 0:
        law = "the latency is never negative: the nearest line is then one through zero."
        raise LawBroken(law, f"1 byte in 0.5 s and 2 bytes in 2 s: fit finds {numbers(found)}")


def test_knee(exercise):
    """02.5  at the knee the bytes cost as much as the latency."""
    for link in (Link(2.0, 8.0), Link(0.25, 64.0), Link(0.0, 8.0)):
        found = exercise.knee(link)
        if found is None or line(link, found) != 2 * link.latency:
            want = link.latency * link.bandwidth
            law = (
                "at the knee a message takes twice its latency: once for the start, once for bytes."
            )
            raise LawBroken(law, f"{numbers(link)}: knee should be {want:g} bytes, is {found}")
