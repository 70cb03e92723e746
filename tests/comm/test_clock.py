"""The virtual clock: what a described machine would take, exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.collectives import ring
from minidist.comm import Link, by_node, run
from minidist.errors import ConfigError

ALPHA, BETA = 0.25, 64.0  # exact in binary, so that times can be compared with ==


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ranks", range(1, 9))
def test_ring_takes_the_alpha_beta_time(ranks, seed):
    nbytes = 64 * ranks

    def program(comm):
        ring.all_reduce(comm, np.zeros(nbytes, np.uint8))
        return comm.time

    want = 2 * (ranks - 1) * (ALPHA + nbytes / ranks / BETA)
    assert run(program, ranks=ranks, links=(ALPHA, BETA), seed=seed) == [want] * ranks


def test_messages_queue_on_their_wire():
    def program(comm):
        if comm.rank == 0:
            requests = [comm.isend(np.zeros(64, np.uint8), 1) for _ in range(3)]
            comm.wait_all(requests)
            return comm.time
        times = []
        for _ in range(3):
            comm.recv(np.zeros(64, np.uint8), 0)
            times.append(comm.time)
        return times

    assert run(program, ranks=2, links=(ALPHA, BETA)) == [0, [1.25, 2.25, 3.25]]


def test_a_shared_card_is_one_wire():
    def program(comm):
        x = np.zeros(64, np.uint8)
        if comm.rank < 2:
            comm.send(x, comm.rank + 2)
        else:
            comm.recv(x, comm.rank - 2)
        return comm.time

    inside, across = Link(0, 1e9), Link(ALPHA, BETA)
    apart = run(program, ranks=4, links=by_node([2, 2], inside, across))
    shared = run(program, ranks=4, links=by_node([2, 2], inside, across, shared_card=True))
    assert apart[2:] == [1.25, 1.25]
    assert sorted(shared[2:]) == [1.25, 2.25]


def test_links_inside_and_across_nodes():
    links = by_node([1, 2], Link(1, 10), Link(2, 5))
    assert links(1, 2) == Link(1, 10)
    assert links(0, 2) == links(2, 0) == Link(2, 5)


def test_computing_and_waiting_overlap():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(64, np.uint8), 1)
        else:
            request = comm.irecv(np.zeros(64, np.uint8), 0)
            comm.compute(1.0)
            assert not request.test()  # it arrives at 1.25
            request.wait()
            assert comm.time == 1.25
            comm.compute(1.0)
        return comm.time

    assert run(program, ranks=2, links=(ALPHA, BETA)) == [0, 2.25]


def test_a_synchronous_message_leaves_when_it_is_taken():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(64, np.uint8), 1)
        else:
            comm.compute(3.0)
            comm.recv(np.zeros(64, np.uint8), 0)
        return comm.time

    assert run(program, ranks=2, links=(ALPHA, BETA), synchronous=True) == [3, 4.25]


def test_everybody_leaves_a_barrier_with_the_last():
    def program(comm):
        comm.compute(comm.rank)
        comm.barrier()
        return comm.time

    assert run(program, ranks=4, links=(ALPHA, BETA)) == [3.0] * 4


@given(st.lists(st.integers(0, 8), min_size=3, max_size=3), st.integers(0, 1000))
def test_a_shared_wire_serves_in_order_of_time_whatever_the_seed(delays, seed):
    def program(comm):
        if comm.rank == 3:
            got = []
            requests = [comm.irecv(np.zeros(64, np.uint8), r) for r in range(3)]
            while requests:
                requests.remove(comm.wait_any(requests))
                got.append(comm.time)
            return got
        comm.compute(delays[comm.rank])
        comm.send(np.zeros(64, np.uint8), 3)
        return None

    links = lambda a, b: Link(ALPHA, BETA, "one wire")  # noqa: E731
    busy, want = 0.0, []
    for start in sorted(delays):
        busy = max(busy, start) + 1.0
        want.append(busy + ALPHA)
    assert run(program, ranks=4, links=links, seed=seed)[3] == want


def hidden_share(start):
    """How much of an all-reduce disappears behind 40 pieces of computation, from 0 to 1."""
    work, n = 0.25, 4 * 64

    def program(comm, overlap):
        x = np.zeros(n, np.uint8)
        if overlap:
            handle = start(comm, x)
        for _ in range(40):
            comm.compute(work)
            if overlap:
                handle.poll()
        if overlap:
            handle.wait()
        else:
            ring.all_reduce(comm, x)
        return comm.time

    alone, both = (max(run(program, flag, ranks=4, links=(ALPHA, BETA))) for flag in (False, True))
    communication = 6 * (ALPHA + n / 4 / BETA)
    return (alone - both) / communication


def test_a_polled_collective_hides_behind_computation():
    assert hidden_share(ring.all_reduce.start) > 0.9


def test_a_collective_that_blocks_hides_nothing():
    class Blocking:
        def __init__(self, comm, x):
            ring.all_reduce(comm, x)

        def poll(self):
            return True

        def wait(self):
            pass

    assert hidden_share(Blocking) == 0


@pytest.mark.parametrize("links", [(-1, 1), (0, 0), (0, -5)])
def test_impossible_links_are_refused(links):
    with pytest.raises(ConfigError, match="latency >= 0 s and bandwidth > 0"):
        run(lambda comm: None, links=links)


def test_links_and_times_that_are_none_are_refused():
    with pytest.raises(ConfigError, match=r"links\(., .\) is None: it must return a Link"):
        run(lambda comm: comm.isend(np.zeros(1), 1 - comm.rank), ranks=2, links=lambda a, b: None)
    with pytest.raises(ConfigError, match=r"compute in .* time does not run backwards"):
        run(lambda comm: comm.compute(-1), ranks=1)
