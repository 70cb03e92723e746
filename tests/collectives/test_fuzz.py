"""Every collective under many orders of events: seeds, synchronous sends, links of random latency.

A seed is one order in which the ranks run; with links, the order is that of random latencies, so
messages of one rank overtake those of another. The result must be the same in all of them, and so
must the bytes sent. `--all` takes 1,000 seeds in each of the four worlds, otherwise a few.
"""

import random
from functools import partial

import numpy as np
import pytest

from minidist.collectives import (
    all_to_all,
    doubling,
    halving,
    hierarchical,
    ring,
    rooted,
    segmented,
    server,
    tree,
)
from minidist.comm import Link, run
from minidist.errors import MinidistError
from minidist.testing import laws
from minidist.testing.mutants import mutate

SEEDS = 1000
FEW = 8  # in the fast tier


def reduced(collective):
    """An all-reduce of an uneven size, in place, and its traffic."""

    def program(comm):
        x = laws.values(comm.rank, 11)
        collective(comm, x)
        laws.same(x, laws.combined(comm.size, 11, "sum"), f"rank {comm.rank}")

    return program


def on_two_nodes(comm):
    hosts = [int(r >= 3) for r in range(comm.size)]
    nodes = hierarchical.nodes(comm, hosts)
    reduced(lambda comm, x: hierarchical.all_reduce(comm, x, nodes))(comm)


def exchanged(comm):
    everyone = range(comm.size)
    counts = [[(3 * s + 2 * r + 1) % 4 for r in everyone] for s in everyone]
    laws.all_to_all(comm, all_to_all, counts)


def shifted(comm):
    x, out = laws.values(comm.rank, 3), np.empty(3)
    ring.shift(comm, x, out)
    laws.same(out, laws.values((comm.rank - 1) % comm.size, 3), f"rank {comm.rank}")


def several_at_once(comm):
    """Started collectives of different kinds, waited for in the opposite order."""
    arrays = [laws.values(comm.rank, n) for n in (7, 0, 11, 4)]
    kinds = [ring.all_reduce, doubling.all_reduce, segmented.all_reduce, halving.all_reduce]
    started = [kind.start(comm, x) for kind, x in zip(kinds, arrays, strict=True)]
    for s, x in list(zip(started, arrays, strict=True))[::-1]:
        laws.same(s.wait(), laws.combined(comm.size, x.size, "sum"), f"rank {comm.rank}")


PROGRAMS = {
    "ring.all_reduce": reduced(ring.all_reduce),
    "ring.reduce_scatter": lambda comm: laws.reduce_scatter(comm, ring.reduce_scatter, 11),
    "ring.all_gather": lambda comm: laws.all_gather(comm, ring.all_gather, 11),
    "ring.shift": shifted,
    "segmented.all_reduce": reduced(partial(segmented.all_reduce, segment=8)),
    "halving.all_reduce": reduced(halving.all_reduce),
    "doubling.all_reduce": reduced(doubling.all_reduce),
    "tree.all_reduce": reduced(tree.all_reduce),
    "tree.broadcast": lambda comm: laws.broadcast(comm, tree.broadcast, 11, 2),
    "tree.reduce": lambda comm: laws.reduce(comm, tree.reduce, 11, 2),
    "server.all_reduce": reduced(server.all_reduce),
    "hierarchical.all_reduce": on_two_nodes,
    "all_to_all": exchanged,
    "gather and scatter": lambda comm: laws.gather_scatter(
        comm, rooted.gather, rooted.scatter, 11, 2, None
    ),
    "several at once": several_at_once,
}


def random_links(seed):
    """Each pair of ranks has its own latency, from 1 to 1,000; bytes are free or dear."""
    draw = random.Random(seed)
    table = {
        (a, b): Link(10 ** draw.uniform(0, 3), draw.choice([float("inf"), 1.0]))
        for a in range(8)
        for b in range(8)
    }
    return lambda a, b: table[a, b]


def fuzz(program, seeds, synchronous, timed):
    for seed in seeds:
        ranks = (5, 3, 6, 4, 8, 2, 7, 1)[seed % 8]
        links = random_links(seed) if timed else None
        run(program, ranks=ranks, seed=seed, synchronous=synchronous, links=links)


@pytest.mark.parametrize("timed", [False, True], ids=["seeds", "links"])
@pytest.mark.parametrize("synchronous", [False, True], ids=["buffered", "synchronous"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_order_of_events(name, synchronous, timed):
    fuzz(PROGRAMS[name], range(FEW), synchronous, timed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("timed", [False, True], ids=["seeds", "links"])
@pytest.mark.parametrize("synchronous", [False, True], ids=["buffered", "synchronous"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_thousand_orders_of_events(name, synchronous, timed):
    fuzz(PROGRAMS[name], range(SEEDS), synchronous, timed)


# --- the fuzzing finds what a single order hides --------------------------------------------------


def first_come(comm):
    """A server that takes arrays as they come: its sum depends on the order of events."""
    x = np.array([[1e8, 1, -1e8, 1][comm.rank]], np.float32)
    if comm.rank:
        comm.send(x, 0)
    else:
        arriving = [np.empty(1, np.float32) for _ in range(3)]
        open_ = {comm.irecv(a, 1 + i): a for i, a in enumerate(arriving)}
        while open_:
            request = comm.wait_any(list(open_))
            x = x + open_.pop(request)
    return float(x[0])


def test_orders_differ_from_seed_to_seed():
    sums = {run(first_come, ranks=4, seed=seed)[0] for seed in range(40)}
    assert len(sums) > 1
    sums = {run(first_come, ranks=4, links=random_links(seed))[0] for seed in range(40)}
    assert len(sums) > 1


def test_a_ring_of_blocking_sends_is_found_by_synchronous_sends():
    def sends_first(comm, x):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        out = np.empty_like(x)
        comm.send(x, right)
        comm.recv(out, left)

    def program(comm):
        sends_first(comm, np.zeros(4))

    fuzz(program, range(FEW), synchronous=False, timed=False)
    with pytest.raises(MinidistError, match="no rank can go on"):
        fuzz(program, range(FEW), synchronous=True, timed=False)


@pytest.mark.parametrize("timed", [False, True])
def test_a_mutant_that_looks_too_early_is_rejected(timed):
    early = mutate(segmented.reduce_scatter, "step % 2", "0")
    check = partial(laws.reduce_scatter, segments=2)
    with pytest.raises(AssertionError):
        fuzz(lambda comm: check(comm, early, 11), range(FEW), False, timed)
