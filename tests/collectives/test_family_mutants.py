"""Wrong versions of the collectives of `test_family`, and the laws that reject them."""

import numpy as np
import pytest

from minidist.collectives import (
    all_to_all,
    buffers,
    halving,
    hierarchical,
    ring,
    rooted,
    server,
    tree,
)
from minidist.comm import run
from minidist.errors import MinidistError
from minidist.testing import laws
from minidist.testing.mutants import mutate, rebind
from tests.collectives.test_family import by_hosts, same_everywhere

FOUND = (AssertionError, MinidistError, ValueError, IndexError)


def all_of(check, *arguments):
    """The check over ranks, sizes and roots."""
    for ranks in (1, 2, 3, 5, 6, 8):
        for n in (0, 1, 4, 11):
            run(check, *arguments, n, ranks=ranks, seed=n, synchronous=bool(n % 2))


def check_tree(broadcast=tree.broadcast, reduce=tree.reduce):
    def check(comm, n):
        for root in (0, 2):
            laws.broadcast(comm, broadcast, n, root)
            laws.reduce(comm, reduce, n, root, "max")
            laws.reduce(comm, reduce, n, root)

    all_of(check)


def check_halving(collective):
    all_of(lambda comm, n: same_everywhere(comm, collective, n, "sum", np.float64))


def check_hierarchical(collective):
    for hosts in ("a", "aab", "abab", "abbab", "abbb"):
        for n in (0, 1, 7):
            run(by_hosts, collective, list(hosts), n, "sum", ranks=len(hosts))


def check_exchange(collective):
    for ranks in (1, 2, 3, 5):
        counts = [[(3 * s + 2 * r + 1) % 4 for r in range(ranks)] for s in range(ranks)]
        run(laws.all_to_all, collective, counts, ranks=ranks)


def check_rooted(gather=rooted.gather, scatter=rooted.scatter):
    def check(comm, n):
        for root in (0, 2):
            laws.gather_scatter(comm, gather, scatter, n, root, None)

    all_of(check)


def test_the_checks_accept_the_package():
    check_tree()
    check_halving(halving.all_reduce)
    check_halving(server.all_reduce)
    check_hierarchical(hierarchical.all_reduce)
    check_exchange(all_to_all)
    check_rooted()


def check_broadcast(collective):
    check_tree(broadcast=collective)


def check_reduce(collective):
    check_tree(reduce=collective)


def check_gather(collective):
    check_rooted(gather=collective)


def check_scatter(collective):
    check_rooted(scatter=collective)


MUTANTS = {
    # what is wrong: the check that finds it, the collective, old text, new text
    "a child is forgotten": (check_broadcast, tree.broadcast, "reversed(children)", "children[1:]"),
    "heard from oneself": (check_broadcast, tree.broadcast, "v & (v - 1)", "v"),
    "own part left out": (check_reduce, tree.reduce, "op, so_far,", "op, arriving,"),
    "input overwritten": (check_reduce, tree.reduce, "place if v == 0 else rooms[room:]", "place"),
    "always a sum": (check_reduce, tree.reduce, "combine(op,", 'combine("sum",'),
    "the pair is not added": (
        check_halving,
        halving.all_reduce,
        "combine(op, room, result, out=result)",
        "pass",
    ),
    "the pair hears nothing new": (
        check_halving,
        halving.all_reduce,
        "recv=result, source=comm.rank + 1",
        "recv=result.copy(), source=comm.rank + 1",
    ),
    "the server adds itself": (
        check_halving,
        server.all_reduce,
        "result, arriving,",
        "result, result,",
    ),
    "no sum across nodes": (
        check_hierarchical,
        hierarchical.all_reduce,
        "if across is not None:",
        "if across is not None and comm.size < 0:",
    ),
    "large nodes are cut finer": (
        check_hierarchical,
        hierarchical.all_reduce,
        "cut = bounds(whole.size, nodes.smallest)",
        "cut = bounds(whole.size, local.size)",
    ),
    "pieces go to the wrong rank": (
        check_exchange,
        all_to_all,
        "comm, to(r + s)",
        "comm, to(r - s)",
    ),
    "its own piece is left": (check_exchange, all_to_all, "came(r)[...] = to(r)", "pass"),
    "gathered elsewhere": (
        check_gather,
        rooted.gather,
        "recv=piece(source)",
        "recv=piece(source + 1)",
    ),
    "the root keeps nothing": (check_scatter, rooted.scatter, "mine[...] = piece(root)", "pass"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_rejected(name):
    check, collective, old, new = MUTANTS[name]
    with pytest.raises(FOUND):
        check(mutate(collective, old, new))


@pytest.mark.parametrize("collective", [halving.all_reduce, server.all_reduce])
def test_a_result_that_is_not_filled_is_rejected(collective):
    broken = mutate(buffers.working_array, "result[...] = mine", "pass")
    with pytest.raises(FOUND):
        check_halving(rebind(collective, working_array=broken))


WORKERS = [
    (
        "the wrong half is kept",
        "part(me, width), part(partner, width)\n",
        "part(partner, width), part(me, width)\n",
    ),
    ("sums are not doubled back", "while width < power:", "while width < power // 2:"),
    ("half is not added", "combine(op, lower, upper, out=keep)", "pass"),
]


@pytest.mark.parametrize(("name", "old", "new"), WORKERS)
def test_mutants_of_the_working_ranks_are_rejected(name, old, new):
    broken = mutate(halving._among_workers, old, new)
    with pytest.raises(FOUND):
        check_halving(rebind(halving.all_reduce, _among_workers=broken))


def test_the_ring_is_one_of_the_family():
    check_halving(ring.all_reduce)
