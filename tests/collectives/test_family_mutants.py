"""Wrong versions of the collectives of `test_family`, and the laws that reject them."""

from functools import partial

import numpy as np
import pytest

from minidist.collectives import (
    all_to_all,
    buffers,
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
    "heard from oneself": (check_broadcast, tree.broadcast, "source=parent", "source=comm.rank"),
    "own part left out": (check_reduce, tree.reduce, "op, so_far,", "op, arriving,"),
    "input overwritten": (
        check_reduce,
        tree.reduce,
        "place if parent is None else rooms[room:]",
        "place",
    ),
    "always a sum": (check_reduce, tree.reduce, "combine(op,", 'combine("sum",'),
    "nothing comes back down": (
        check_halving,
        tree.all_reduce,
        "return (yield from broadcast.steps(comm, result))",
        "return result",
    ),
    "only in place": (check_halving, tree.all_reduce, "comm, x, out, op", "comm, x, None, op"),
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


FOLDING = [
    ("the pair is not added", "combine(op, room, result, out=result)", "pass"),
    (
        "the pair hears nothing new",
        "recv=result, source=comm.rank + 1",
        "recv=result.copy(), source=comm.rank + 1",
    ),
]


@pytest.mark.parametrize("family", [halving, doubling])
@pytest.mark.parametrize(("name", "old", "new"), FOLDING)
def test_mutants_of_the_folding_are_rejected(family, name, old, new):
    broken = mutate(folding.folded, old, new)
    with pytest.raises(FOUND):
        check_halving(rebind(family.all_reduce, folded=broken))


WORKERS = [
    (
        "the wrong half is kept",
        halving.halve_and_double,
        "part(me, width), part(partner, width)\n",
        "part(partner, width), part(me, width)\n",
    ),
    (
        "sums are not doubled back",
        halving.halve_and_double,
        "while width < power:",
        "while width < power // 2:",
    ),
    (
        "half is not added",
        halving.halve_and_double,
        "combine(op, lower, upper, out=keep)",
        "pass",
    ),
    ("a round is left out", doubling.double, "width = 1", "width = 2"),
    (
        "only its own part",
        doubling.double,
        "combine(op, lower, upper,",
        "combine(op, lower, lower,",
    ),
    ("a partner of another round", doubling.double, "me ^ width", "me ^ 1"),
]


def check_workers(body):
    family = doubling if body.__name__ == "double" else halving
    check_halving(rebind(family.all_reduce, **{body.__name__: body}))
    check_bits(rebind(family.all_reduce, **{body.__name__: body}))


def check_bits(collective):
    """All ranks have the same bits, whatever the order (open-mpi/ompi#12258)."""
    parts = np.array([1e8, 1, -1e8, 1, 3e-5], np.float32)
    for ranks in (2, 3, 4, 5):
        results = run(lambda comm: collective(comm, parts[[comm.rank]]).tobytes(), ranks=ranks)
        assert len(set(results)) == 1


@pytest.mark.parametrize(("name", "body", "old", "new"), WORKERS)
def test_mutants_of_the_working_ranks_are_rejected(name, body, old, new):
    with pytest.raises(FOUND):
        check_workers(mutate(body, old, new))


# --- the segmented ring ---------------------------------------------------------------------------


def check_segmented(reduce_scatter=segmented.reduce_scatter):
    whole = rebind(segmented.all_reduce, reduce_scatter=reduce_scatter)
    for segment in (8, 24, 1 << 20):
        check_halving(partial(whole, segment=segment))
        for ranks in (1, 2, 3, 5):
            for n in (0, 1, 4, 31):
                options = {"ranks": ranks, "seed": n, "synchronous": bool(n % 2)}
                count = segmented.segments(8 * -(-n // ranks), segment)
                cut = partial(reduce_scatter, segment=segment)
                check = partial(laws.reduce_scatter, segments=count)
                run(check, cut, n, "max" if n == 4 else "sum", **options)


SEGMENTED = [
    ("one landing place", "part(landing, step % 2)", "part(landing, 0)"),
    ("landing places by segment", "part(landing, step % 2)", "part(landing, g % 2)"),
    ("the last sum is forgotten", "add()", "pass"),
    ("sums are never passed on", "if s == 0 else sums[", "if s >= 0 else sums["),
    ("one segment too few", "range((n - 1) * count)", "range((n - 1) * count - 1)"),
    ("the next piece too early", "own if s == n - 2 else sums", "own"),
    ("other pieces touched", "own if s == n - 2 else sums", "piece(r - 2 - s)"),
    ("always a sum", "partial(combine, op,", 'partial(combine, "sum",'),
]


@pytest.mark.parametrize(("name", "old", "new"), SEGMENTED)
def test_mutants_of_the_segmented_ring_are_rejected(name, old, new):
    with pytest.raises(FOUND):
        check_segmented(mutate(segmented.reduce_scatter, old, new))


def test_a_single_segment_is_rejected():
    # Its sum would be made while it is already being sent on.
    alone = mutate(segmented.segments, "max(2,", "max(1,")
    with pytest.raises(FOUND):
        check_segmented(rebind(segmented.reduce_scatter, segments=alone))


def test_the_checks_accept_the_rings():
    check_halving(ring.all_reduce)
    check_halving(doubling.all_reduce)
    check_halving(tree.all_reduce)
    check_bits(doubling.all_reduce)
    check_segmented()
