"""The formulas of `costs` against the virtual clock, exactly, and against the counters.

Latency, bandwidth and sizes are powers of two or small integers, so that every time is exact in
float64 and `==` is meant.
"""

from functools import partial

import numpy as np
import pytest

from minidist.collectives import (
    all_to_all,
    costs,
    doubling,
    folding,
    halving,
    hierarchical,
    ring,
    rooted,
    segmented,
    server,
    tree,
)
from minidist.comm import Link, by_node, run
from minidist.ops.reduce import combine
from minidist.testing.mutants import mutate, rebind

RANKS = range(1, 9)
LINK = Link(0.25, 64.0)
ADD = 2.0**-8  # seconds a byte
SIZE = 840 * 8  # bytes; divided by all of 1 .. 8


def out_of(a, b):
    """Return a link of the one wire that leaves rank ``a``."""
    return LINK._replace(name=f"out of {a}")


def into(a, b):
    """Return a link of the one wire that reaches rank ``b``."""
    return LINK._replace(name=f"into {b}")


def to_and_from_the_root(a, b):
    """Return a link of one wire into rank 0, and one out of it."""
    return LINK._replace(name="into 0" if b == 0 else "out of 0" if a == 0 else None)


def spent(call, ranks, links=LINK, size=SIZE):
    """The longest time of a rank on the virtual clock, for ``call(comm, x)``."""

    def program(comm):
        call(comm, np.zeros(size, np.uint8))
        return comm.time

    return max(run(program, ranks=ranks, links=links))


def pair(comm, x):
    return ring.shift(comm, x, np.empty_like(x))


def gathered(comm, x):
    piece = np.empty(x.size // comm.size, x.dtype)
    return rooted.gather(comm, piece, x if comm.rank == 0 else None)


def scattered(comm, x):
    piece = np.empty(x.size // comm.size, x.dtype)
    return rooted.scatter(comm, x if comm.rank == 0 else None, piece)


def exchanged(comm, x):
    return all_to_all(comm, x, np.empty_like(x))


EVERYWHERE = {
    # name: the call, its formula on links that nobody shares
    "shift": (pair, costs.shift),
    "reduce_scatter": (ring.reduce_scatter, costs.reduce_scatter),
    "all_gather": (ring.all_gather, costs.all_gather),
    "all_reduce": (ring.all_reduce, costs.ring_all_reduce),
    "halving": (halving.all_reduce, costs.halving_all_reduce),
    "doubling": (doubling.all_reduce, partial(costs.doubling_all_reduce, one_port=False)),
    "all_to_all": (exchanged, costs.all_to_all),
    "broadcast": (tree.broadcast, partial(costs.broadcast, one_port=False)),
    "reduce": (tree.reduce, partial(costs.reduce, one_port=False)),
    "tree": (tree.all_reduce, partial(costs.tree_all_reduce, one_port=False)),
    "server": (server.all_reduce, partial(costs.server_all_reduce, one_port=False)),
    "gather": (gathered, partial(costs.gather, one_port=False)),
    "scatter": (scattered, partial(costs.scatter, one_port=False)),
}


def fitting(name, ranks):
    """A size that is cut evenly."""
    return 64 * 8 * 8 if name in ("halving", "doubling") else SIZE


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_clock_shows_the_formula(name, ranks):
    call, formula = EVERYWHERE[name]
    size = fitting(name, ranks)
    assert spent(call, ranks, size=size) == formula(ranks, size).seconds(LINK)


ONE_PORT = {
    # name: the call, its formula with one wire out and one in, the wires that matter
    "broadcast": (tree.broadcast, costs.broadcast, out_of),
    "server": (server.all_reduce, costs.server_all_reduce, to_and_from_the_root),
    "gather": (gathered, costs.gather, into),
    "scatter": (scattered, costs.scatter, out_of),
    "all_reduce": (ring.all_reduce, costs.ring_all_reduce, out_of),
    "all_to_all": (exchanged, costs.all_to_all, into),
    "doubling": (doubling.all_reduce, costs.doubling_all_reduce, into),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ONE_PORT)
def test_the_clock_shows_the_formula_of_one_port(name, ranks):
    call, formula, links = ONE_PORT[name]
    assert spent(call, ranks, links) == formula(ranks, SIZE).seconds(LINK)


@pytest.mark.parametrize("ranks", range(1, 20))
def test_a_reduction_through_one_port_takes_at_most_the_formula(ranks):
    taken, most = spent(tree.reduce, ranks, into), costs.reduce(ranks, SIZE).seconds(LINK)
    assert taken == most if ranks & (ranks - 1) == 0 else taken <= most


@pytest.mark.parametrize("ranks", range(9, 34))
def test_the_chains_of_doubling_and_trees_on_many_ranks(ranks):
    for call, formula in (EVERYWHERE["doubling"], EVERYWHERE["broadcast"], EVERYWHERE["reduce"]):
        assert spent(call, ranks, size=64) == formula(ranks, 64).seconds(LINK)


def test_a_formula_that_is_off_by_a_message_is_found():
    off = mutate(costs.reduce_scatter, "ranks - 1", "ranks")
    with pytest.raises(AssertionError):
        assert spent(ring.reduce_scatter, 4) == off(4, SIZE).seconds(LINK)


# --- with the time that adding takes --------------------------------------------------------------


def timed(comm):
    """A `combine` that takes its time on the clock of this rank."""

    def combine_slowly(op, a, b, out):
        comm.compute(out.nbytes * ADD)
        return combine(op, a, b, out=out)

    return combine_slowly


def ring_with_time(comm, x):
    return rebind(ring.reduce_scatter, combine=timed(comm))(comm, x)


def tree_with_time(comm, x):
    return rebind(tree.reduce, combine=timed(comm))(comm, x)


def halving_with_time(comm, x):
    slow = timed(comm)
    work = rebind(halving.halve_and_double, combine=slow)
    fold = rebind(folding.folded, combine=slow)
    return rebind(halving.all_reduce, folded=fold, halve_and_double=work)(comm, x)


def doubling_with_time(comm, x):
    slow = timed(comm)
    fold, work = rebind(folding.folded, combine=slow), rebind(doubling.double, combine=slow)
    return rebind(doubling.all_reduce, folded=fold, double=work)(comm, x)


SLOW = {
    "reduce_scatter": (ring_with_time, costs.reduce_scatter),
    "reduce": (tree_with_time, partial(costs.reduce, one_port=False)),
    "halving": (halving_with_time, costs.halving_all_reduce),
    "doubling": (doubling_with_time, partial(costs.doubling_all_reduce, one_port=False)),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", SLOW)
def test_sums_take_their_time(name, ranks):
    call, formula = SLOW[name]
    size = fitting(name, ranks)
    assert spent(call, ranks, size=size) == formula(ranks, size).seconds(LINK, ADD)


@pytest.mark.parametrize("add", [0.0, 2.0**-9, 2.0**-4])
@pytest.mark.parametrize("ranks", RANKS)
def test_the_segmented_ring_adds_while_it_sends(ranks, add):
    segment, size = 64, ranks * 4 * 64

    def call(comm, x):
        def slowly(op, a, b, out):
            comm.compute(out.nbytes * add)
            return combine(op, a, b, out=out)

        scatter = rebind(segmented.reduce_scatter, combine=slowly)
        whole = rebind(segmented.all_reduce, reduce_scatter=scatter)
        return whole(comm, x, segment=segment)

    want = costs.segmented_all_reduce(ranks, size, LINK, add, segment)
    assert spent(call, ranks, size=size) == want
    plain = costs.ring_all_reduce(ranks, size).seconds(LINK._replace(latency=0.0), add)
    free = costs.segmented_all_reduce(ranks, size, LINK._replace(latency=0.0), add, segment)
    assert free <= plain  # on a link without latency nothing is lost
    assert (free < plain) == (add > 0 and ranks > 1)


def test_the_number_of_segments_is_that_of_the_longest_piece():
    """130 bytes on 2 ranks are pieces of 65 bytes, and so two segments of at most 64."""

    def messages(nbytes, segment):
        def program(comm):
            segmented.all_reduce(comm, np.zeros(nbytes, np.uint8), segment=segment)
            return comm.traffic.messages

        return set(run(program, ranks=2))

    for nbytes, segment in ((130, 64), (128, 64), (257, 64), (385, 64), (384, 64)):
        count = segmented.segments(-(-nbytes // 2), segment)
        assert messages(nbytes, segment) == {count + 1}
        seconds = costs.segmented_all_reduce(2, nbytes, Link(1.0), segment=segment)
        assert seconds == count + 1


# --- two levels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [(1,), (4,), (2, 2), (4, 4), (2, 2, 2, 2), (3, 2), (1, 3), (4, 1)]
)
def test_two_levels(sizes):
    inside, across = Link(0.25, 512.0), Link(2.0, 64.0)
    hosts = [i for i, n in enumerate(sizes) for _ in range(n)]

    def call(comm, x):
        return hierarchical.all_reduce(comm, x, hierarchical.nodes(comm, hosts))

    inner, outer = costs.hierarchical_all_reduce(sizes, SIZE)
    want = inner.seconds(inside) + outer.seconds(across)
    assert spent(call, len(hosts), by_node(sizes, inside, across)) == want
    shared = across._replace(bandwidth=across.bandwidth / min(sizes))
    if min(sizes) == max(sizes):
        want = inner.seconds(inside) + outer.seconds(shared)
        assert spent(call, len(hosts), by_node(sizes, inside, across, shared_card=True)) <= want


# --- counters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", RANKS)
def test_bytes_sent_are_the_formula(ranks):
    """The longest chain of a symmetric collective is what every rank sends."""
    _, extra = folding.split_ranks(ranks)
    size = 64 * 8 * 8 * ranks
    for call, formula in (
        (pair, costs.shift),
        (ring.reduce_scatter, costs.reduce_scatter),
        (ring.all_gather, costs.all_gather),
        (ring.all_reduce, costs.ring_all_reduce),
        (exchanged, costs.all_to_all),
        *[(halving.all_reduce, costs.halving_all_reduce)] * (not extra),
        *[(doubling.all_reduce, costs.doubling_all_reduce)] * (not extra),
    ):

        def program(comm, call=call):
            call(comm, np.zeros(size, np.uint8))
            return comm.traffic.messages, comm.traffic.bytes

        assert run(program, ranks=ranks) == [formula(ranks, size)[:2]] * ranks


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("segment", [8, 40, 1 << 20])
def test_the_segmented_ring_sends_the_same_bytes_in_more_messages(ranks, segment):
    def program(comm):
        segmented.all_reduce(comm, np.zeros(840), segment=segment)
        return comm.traffic.messages, comm.traffic.bytes

    count = segmented.segments(SIZE // ranks, segment)
    want = (count + 1) * (ranks - 1), costs.ring_all_reduce(ranks, SIZE).nbytes
    assert run(program, ranks=ranks) == [want] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_the_root_sends_and_receives_what_the_formula_says(ranks):
    """Sent by all, which is what the root receives, or sent by the root."""

    def program(comm, call):
        call(comm, np.zeros(SIZE, np.uint8))
        return comm.traffic.bytes

    others = ranks - 1
    sent = {call: run(program, call, ranks=ranks) for call in (gathered, scattered, tree.reduce)}
    assert sent[gathered] == [0] + [SIZE // ranks] * others
    assert sent[scattered] == [SIZE // ranks * others] + [0] * others
    assert sent[tree.reduce] == [0] + [SIZE] * others
    assert sum(run(program, tree.broadcast, ranks=ranks)) == SIZE * others
    if ranks > 1:
        server_sends = run(program, server.all_reduce, ranks=ranks)
        assert server_sends == [SIZE * others] + [SIZE] * others
        assert 2 * server_sends[0] == costs.server_all_reduce(ranks, SIZE).nbytes


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (4, 4), (2, 2, 2, 2)])
def test_a_hierarchy_sends_what_its_two_levels_say(sizes):
    hosts = [i for i, n in enumerate(sizes) for _ in range(n)]

    def program(comm):
        nodes = hierarchical.nodes(comm, hosts)
        hierarchical.all_reduce(comm, np.zeros(SIZE, np.uint8), nodes)
        return nodes.local.traffic.bytes, nodes.across.traffic.bytes, comm.traffic.bytes

    inner, outer = costs.hierarchical_all_reduce(sizes, SIZE)
    want = inner.nbytes, outer.nbytes, inner.nbytes + outer.nbytes
    assert run(program, ranks=len(hosts)) == [want] * len(hosts)
