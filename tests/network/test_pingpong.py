"""A ping-pong is half a round trip: exact on the virtual clock, free of deadlock, and counted."""

import math
import time

import numpy as np
import pytest

from minidist.comm import Link, by_node, run
from minidist.errors import ConfigError, MinidistError
from minidist.network import ping_pong
from minidist.testing.mutants import mutate

LINK = Link(2.0**-10, 2.0**20)  # exact in binary, so that times can be compared with ==
SIZES = (0, 1, 64, 1023, 1 << 16)


def check(ping_pong, synchronous=False, seed=0):
    """The alpha-beta time on both ranks, whoever is late, for all sizes; nan elsewhere."""

    def program(comm):
        comm.compute(comm.rank)  # rank 1 is a second late
        return [ping_pong(comm, np.arange(n, dtype=np.uint8), 2) for n in SIZES]

    want = [LINK.latency + n / LINK.bandwidth for n in SIZES]
    found = run(program, ranks=3, links=LINK, synchronous=synchronous, seed=seed)
    assert found[:2] == [want, want]
    assert all(map(math.isnan, found[2]))


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_half_a_round_trip(synchronous, seed):
    check(ping_pong, synchronous, seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(now() - start) / 2", "(now() - start)"),  # forgets the half
        ("comm.send(y, a)", "comm.send(y[:0], a)"),  # the answer is empty: one way is measured
        ("range(1 + repeats)", "range(repeats - 1)"),
        ("min(best", "max(best"),
        ("comm.recv(seconds, a)", "pass"),  # b keeps its own time
        ("start = now()", "start = start if turn else now()"),  # the sum over all turns
        ("comm.rank == a", "comm.rank < 2"),  # both send first
    ],
)
def test_mutants(old, new):
    if "rank" in old:
        broken = mutate(
            ping_pong, f"{old}:\n            comm.send", f"{new}:\n            comm.send"
        )
    else:
        broken = mutate(ping_pong, old, new)
    with pytest.raises((AssertionError, MinidistError)):
        check(broken, synchronous=True)


def test_any_two_ranks_each_on_its_link():
    inside, across = Link(1.0, 8.0), Link(4.0, 2.0)
    cases = {(0, 1): 2.0, (1, 0): 2.0, (1, 2): 8.0, (4, 0): 8.0, (2, 4): 2.0}  # 8 bytes

    def program(comm):
        return {pair: ping_pong(comm, np.zeros(1), 3, *pair) for pair in cases}

    found = run(program, ranks=5, links=by_node([2, 3], inside, across))
    for pair, seconds in cases.items():
        assert [found[r][pair] for r in pair] == [seconds, seconds]


def warm_up(ping_pong):
    """A link that is slowest in some turn: the first never counts, of the others the shortest."""
    for latencies, repeats, shortest in (
        ([0.5, 4, 1, 2], 3, 1.0),
        ([0.5, 1, 4, 2], 3, 1.0),
        ([0.5, 2, 4, 1], 3, 1.0),
        ([0.5, 1], 1, 1.0),
    ):
        each = iter([Link(t) for turn in latencies for t in (turn, turn)] + [Link(1.0)])
        found = run(
            lambda comm, n=repeats: ping_pong(comm, np.zeros(1), n),
            ranks=2,
            links=lambda a, b, each=each: next(each),
        )
        assert found == [shortest] * 2


def test_the_first_turn_does_not_count():
    warm_up(ping_pong)


@pytest.mark.parametrize("new", ["turn >= 0", "turn > 1", "turn == 1", "turn != 1"])
def test_mutants_of_the_turns(new):
    with pytest.raises(AssertionError):
        warm_up(mutate(ping_pong, "turn > 0", new))


def test_bytes_and_messages_are_as_said_and_x_is_not_changed():
    def program(comm):
        x = np.full(10, comm.rank, np.float32)
        ping_pong(comm, x, 3)
        assert (x == comm.rank).all()
        return comm.traffic.messages, comm.traffic.bytes

    assert run(program, ranks=2) == [(5, 4 * 40 + 8), (4, 4 * 40)]


def test_without_links_the_clock_of_ranks_in_one_process_stands_still():
    def program(comm):
        return ping_pong(comm, np.zeros(8)), ping_pong(comm, np.zeros(8), clock=time.perf_counter)

    still, real = run(program, ranks=2)[0]
    assert still == 0
    assert real > 0


@pytest.mark.parametrize(("repeats", "b"), [(0, 1), (1, 0)])
def test_refusals(repeats, b):
    with pytest.raises(ConfigError, match="between ranks 0 and"):
        run(lambda comm: ping_pong(comm, np.zeros(8), repeats, 0, b), ranks=2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_is_not_there_is_refused(ranks):
    with pytest.raises(MinidistError, match=rf"rank 0, send .* {ranks}"):
        run(lambda comm: ping_pong(comm, np.zeros(8), 1, 0, ranks), ranks=ranks)


def test_over_mpi(mpirun):
    program = """
import numpy as np
from minidist.comm import world
from minidist.network import ping_pong
comm = world()
found = comm.gather_objects([ping_pong(comm, np.zeros(n, np.uint8), 3, 0, 2) for n in (0, 1 << 18)])
if comm.rank == 0:
    assert found[0] == found[2] and all(0 < t < 60 for t in found[0]), found
    assert not any(t == t for t in found[1]), found
    print("well")
"""
    assert mpirun(program, 3).stdout == "well\n"
