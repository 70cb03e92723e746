"""Every other collective against one process, over sizes, ranks, roots and orders of events."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.collectives import (
    all_to_all,
    buffers,
    halving,
    hierarchical,
    ring,
    rooted,
    server,
    simulate,
    tree,
)
from minidist.comm import Link, by_node, run
from minidist.errors import ArrayError, ConfigError, MinidistError, RankError
from minidist.testing import laws
from minidist.testing.mutants import mutate, rebind

RANKS = range(1, 9)
DTYPES = [np.float64, np.float32, np.int64, np.float16, ml_dtypes.bfloat16]
FOUND = (AssertionError, MinidistError, ValueError, IndexError)

worlds = st.fixed_dictionaries(
    {"ranks": st.integers(1, 8), "seed": st.integers(0, 10**6), "synchronous": st.booleans()}
)
ops = st.sampled_from(list(laws.REFERENCE))


# --- the laws -------------------------------------------------------------------------------------


@given(worlds, st.integers(0, 30), st.integers(0, 7), ops, st.sampled_from(DTYPES))
def test_trees(world, n, root, op, dtype):
    run(laws.broadcast, tree.broadcast, n, root, dtype, **world)
    run(laws.reduce, tree.reduce, n, root, op, dtype, **world)


def same_everywhere(comm, collective, n, op, dtype):
    """An all-reduce that is right, in place and out of place, with the input left alone."""
    who = f"rank {comm.rank} of {comm.size}"
    want = laws.combined(comm.size, n, op, dtype)
    x, out = laws.values(comm.rank, n, dtype), np.full(n, -1, dtype)
    assert collective(comm, x, out, op=op) is out
    laws.same(out, want, who)
    laws.same(x, laws.values(comm.rank, n, dtype), f"{who}: the input")
    assert collective(comm, x, op=op) is x
    laws.same(x, want, f"{who} in place")


@given(worlds, st.integers(0, 30), ops, st.sampled_from(DTYPES))
def test_all_reduces(world, n, op, dtype):
    run(same_everywhere, halving.all_reduce, n, op, dtype, **world)
    run(same_everywhere, server.all_reduce, n, op, dtype, **world)


@given(worlds, st.data())
def test_all_to_all_with_any_counts(world, data):
    ranks = world["ranks"]
    row = st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks)
    counts = data.draw(st.lists(row, min_size=ranks, max_size=ranks))
    run(laws.all_to_all, all_to_all, counts, **world)


def test_all_to_all_with_equal_counts_is_a_transpose():
    def program(comm):
        x = np.arange(6.0) + 10 * comm.rank
        return all_to_all(comm, x, np.empty(6)).tolist()

    assert run(program, ranks=3) == [
        [0, 1, 10, 11, 20, 21],
        [2, 3, 12, 13, 22, 23],
        [4, 5, 14, 15, 24, 25],
    ]


@given(worlds, st.integers(0, 20), st.integers(0, 7), st.booleans(), st.data())
def test_gather_and_scatter(world, n, root, uneven, data):
    offsets = None
    if uneven:
        borders = world["ranks"] - 1
        inner = st.lists(st.integers(0, n), min_size=borders, max_size=borders)
        offsets = [0, *sorted(data.draw(inner)), n]
    run(laws.gather_scatter, rooted.gather, rooted.scatter, n, root, offsets, **world)


def by_hosts(comm, collective, hosts, n, op, dtype=np.float64):
    nodes = hierarchical.nodes(comm, hosts)
    same_everywhere(comm, partial(_with_nodes, collective, nodes), n, op, dtype)


def _with_nodes(collective, nodes, comm, x, out=None, op="sum"):
    return collective(comm, x, nodes, out, op=op)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.integers(0, 20), ops)
def test_hierarchical_on_any_placement(hosts, n, op):
    run(by_hosts, hierarchical.all_reduce, hosts, n, op, ranks=len(hosts))


def test_uneven_nodes_are_summed_and_not_averaged_twice():
    # 5 ranks as nodes of 3 and 2: a mean of node means gives 3.5 (ROCm/rocm-systems#3856).
    def program(comm):
        nodes = hierarchical.nodes(comm, ["a", "a", "a", "b", "b"])
        x = np.array([[1, 1, 1, 6, 6][comm.rank]], float)
        return hierarchical.all_reduce(comm, x, nodes)[0] / comm.size

    assert run(program, ranks=5) == [3.0] * 5


@pytest.mark.parametrize("n", [1, 1001])
def test_all_ranks_get_the_same_bits(n):
    # Adding in another order on each rank gives 0 here and 1 there (open-mpi/ompi#12258).
    parts = np.array([1e8, 1, -1e8, 1, 3e-5], np.float32)

    def program(comm):
        nodes = hierarchical.nodes(comm, [0, 0, 1, 1, 1])
        x = [np.full(n, parts[comm.rank]) for _ in range(3)]
        halving.all_reduce(comm, x[0])
        server.all_reduce(comm, x[1])
        hierarchical.all_reduce(comm, x[2], nodes)
        return [a.tobytes() for a in x]

    for seed in range(3):
        results = run(program, ranks=5, seed=seed)
        assert all(r == results[0] for r in results)


# --- what they cost -------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", RANKS)
def test_traffic_is_the_formula(ranks):
    power = 1 << (ranks.bit_length() - 1)
    extra, size = ranks - power, 8 * 8 * power

    def program(comm):
        before = []
        for collective in (halving.all_reduce, server.all_reduce):
            sent = comm.traffic.messages, comm.traffic.bytes
            collective(comm, np.zeros(8 * power))
            before.append((comm.traffic.messages - sent[0], comm.traffic.bytes - sent[1]))
        return before

    rounds = 2 * (power.bit_length() - 1)
    work = (rounds, 2 * (power - 1) * size // power)
    for rank, (halved, served) in enumerate(run(program, ranks=ranks)):
        paired = rank < 2 * extra
        works = (work[0] + paired, work[1] + paired * size)
        assert halved == ((1, size) if paired and rank % 2 == 0 else works)
        assert served == ((ranks - 1, (ranks - 1) * size) if rank == 0 else (1, size))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_halving_takes_the_alpha_beta_time(ranks):
    alpha, beta, nbytes = 0.25, 64.0, 512

    def program(comm):
        halving.all_reduce(comm, np.zeros(nbytes, np.uint8))
        return comm.time

    rounds = ranks.bit_length() - 1
    want = 2 * rounds * alpha + 2 * (ranks - 1) / ranks * nbytes / beta
    assert run(program, ranks=ranks, links=(alpha, beta)) == [want] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_a_tree_takes_log_n_messages_one_after_the_other(ranks):
    def program(comm):
        tree.broadcast(comm, np.zeros(64, np.uint8))
        return comm.time

    # A rank has one wire out, on which a message takes a second.
    times = run(program, ranks=ranks, links=lambda a, b: Link(0, 64.0, f"out of {a}"))
    assert max(times) == (ranks - 1).bit_length()


def test_a_hierarchy_sends_less_across_nodes():
    links = by_node([4, 4], Link(0, 1e12), Link(0, 1.0), shared_card=True)

    def program(comm, two_levels):
        x = np.zeros(64, np.uint8)
        if two_levels:
            nodes = hierarchical.nodes(comm, [0, 0, 0, 0, 1, 1, 1, 1])
            hierarchical.all_reduce(comm, x, nodes)
        else:
            halving.all_reduce(comm, x)
        return comm.time

    flat, deep = (max(run(program, flag, ranks=8, links=links)) for flag in (False, True))
    assert deep < flat / 2


def test_many_ranks_without_ranks():
    for ranks in (100, 128):
        results, _ = simulate(halving.all_reduce, ranks, lambda r: (np.full(5, float(r)),))
        for result in results:
            np.testing.assert_array_equal(result, np.full(5, ranks * (ranks - 1) / 2))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: tree.broadcast(c, np.zeros(2), root=3), RankError, "no rank 3"),
        (lambda c: tree.reduce(c, np.zeros(2), op="mean"), ConfigError, "unknown reduction"),
        (lambda c: server.all_reduce(c, np.zeros(2), np.zeros(3)), ArrayError, "make both equal"),
        (lambda c: halving.all_reduce(c, np.zeros((2, 2)).T[:1]), ArrayError, "not C-contiguous"),
        (lambda c: all_to_all(c, np.zeros(3), np.zeros(6)), ArrayError, "its own piece is"),
        (lambda c: all_to_all(c, *[np.zeros(6)] * 2), ArrayError, "share memory"),
        (lambda c: rooted.scatter(c, np.zeros(3), np.zeros(1), root=-1), RankError, "no rank -1"),
        (lambda c: hierarchical.nodes(c, ["a"]), ConfigError, "1 hosts for 3 ranks"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(call, error, words):
    def program(comm):
        with pytest.raises(error, match=words):
            call(comm)
        assert comm.traffic.messages == 0

    run(program, ranks=3)


# --- mutants --------------------------------------------------------------------------------------


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
