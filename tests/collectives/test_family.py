"""Every other collective against one process, over sizes, ranks, roots and orders of events."""

from functools import partial
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.collectives import (
    all_to_all,
    doubling,
    halving,
    hierarchical,
    ring,
    rooted,
    segmented,
    server,
    simulate,
    tree,
)
from minidist.comm import Link, by_node, run
from minidist.errors import ArrayError, ConfigError, MismatchError, RankError
from minidist.testing import laws

RANKS = range(1, 9)
DTYPES = [np.float64, np.float32, np.int64, np.float16, ml_dtypes.bfloat16]

worlds = st.fixed_dictionaries(
    {"ranks": st.integers(1, 8), "seed": st.integers(0, 10**6), "synchronous": st.booleans()}
)
ops = st.sampled_from(list(laws.REFERENCE))


# --- the laws -------------------------------------------------------------------------------------


@given(worlds, st.integers(0, 30), st.integers(0, 7), ops, st.sampled_from(DTYPES))
def test_trees(world, n, root, op, dtype):
    run(laws.broadcast, tree.broadcast, n, root, dtype, **world)
    run(laws.reduce, tree.reduce, n, root, op, dtype, **world)


# An all-reduce that is right, in place and out of place, with the input left alone.
same_everywhere = partial(laws.all_reduce, sends=None)


@given(worlds, st.integers(0, 30), ops, st.sampled_from(DTYPES))
def test_all_reduces(world, n, op, dtype):
    run(same_everywhere, halving.all_reduce, n, op, dtype, **world)
    run(same_everywhere, doubling.all_reduce, n, op, dtype, **world)
    run(same_everywhere, server.all_reduce, n, op, dtype, **world)
    run(same_everywhere, tree.all_reduce, n, op, dtype, **world)


@given(worlds, st.integers(0, 40), st.integers(1, 100), ops, st.sampled_from(DTYPES))
def test_the_segmented_ring(world, n, segment, op, dtype):
    run(same_everywhere, partial(segmented.all_reduce, segment=segment), n, op, dtype, **world)


@given(worlds, st.data())
def test_the_pieces_of_a_segmented_ring_may_be_cut_anywhere(world, data):
    borders = world["ranks"] - 1
    inner = data.draw(st.lists(st.integers(0, 20), min_size=borders, max_size=borders))
    offsets = [0, *sorted(inner), 20]
    longest = max(b - a for a, b in pairwise(offsets))
    count = segmented.segments(8 * longest, 16)
    check = partial(laws.reduce_scatter, offsets=offsets, segments=count)
    run(check, partial(segmented.reduce_scatter, segment=16), 20, **world)


def test_the_segmented_ring_has_the_bits_of_the_ring():
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(1001).astype(np.float32)
        return ring.all_reduce(comm, x.copy()), segmented.all_reduce(comm, x, segment=100)

    for plain, cut in run(program, ranks=5):
        laws.same(cut, plain, "segmented")


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
        x = [np.full(n, parts[comm.rank]) for _ in range(6)]
        halving.all_reduce(comm, x[0])
        server.all_reduce(comm, x[1])
        hierarchical.all_reduce(comm, x[2], nodes)
        doubling.all_reduce(comm, x[3])
        segmented.all_reduce(comm, x[4], segment=16)
        tree.all_reduce(comm, x[5])
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
        for collective in (halving.all_reduce, doubling.all_reduce, segmented.all_reduce):
            results, _ = simulate(collective, ranks, lambda r: (np.full(5, float(r)),))
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
        (lambda c: tree.all_reduce(c, np.zeros(2), np.zeros(3)), ArrayError, "make both equal"),
        (lambda c: segmented.all_reduce(c, np.zeros(2), segment=0), ConfigError, "from 1 up"),
        (lambda c: ring.shift(c, np.zeros(2), np.zeros(3)), ArrayError, "make both equal"),
        (lambda c: all_to_all(c, np.zeros(3), np.zeros(6)), ArrayError, "its own piece is"),
        (lambda c: all_to_all(c, *[np.zeros(6)] * 2), ArrayError, "share memory"),
        (lambda c: rooted.scatter(c, np.zeros(3), np.zeros(1), root=-1), RankError, "no rank -1"),
        (lambda c: server.all_reduce(c, np.zeros(3), root=3), RankError, "no rank 3"),
        (lambda c: rooted.gather(c, np.zeros(1), root=c.rank), ArrayError, "needs an array, got"),
        (
            lambda c: rooted.scatter(c, np.zeros(6), np.zeros(1), root=c.rank),
            ArrayError,
            "2 x float64 are to go into an array of 1 x float64",
        ),
        (
            lambda c: rooted.gather(c, np.zeros(2, "f4"), np.zeros(6), root=c.rank),
            ArrayError,
            "2 x float32 are to go into an array of 2 x float64",
        ),
        (lambda c: hierarchical.nodes(c, ["a"]), ConfigError, "1 hosts for 3 ranks"),
        (lambda c: tree.broadcast(c, np.float32(2)), ArrayError, "needs an array, got float32"),
        (lambda c: ring.all_reduce(c, np.zeros(2), [0.0, 0.0]), ArrayError, "got list"),
        (lambda c: ring.all_reduce(c, [1.0], np.zeros(1)), ArrayError, "got list"),
        (lambda c: server.all_reduce(c, np.zeros(2), op=["sum"]), ConfigError, "rank ., reduction"),
        (lambda c: ring.all_reduce(c, np.zeros(2, "M8[s]")), ConfigError, "no sum of datetime64"),
        (lambda c: tree.all_reduce(c, np.zeros(2, "S3"), op="max"), ConfigError, "no max of"),
        (lambda c: tree.all_reduce(c, np.zeros(2, "i4,f4")), ConfigError, "arrays of numbers"),
        (lambda c: ring.all_gather(c, np.zeros(3), offsets=[0, 1.5, 2, 3]), ConfigError, "integer"),
        (lambda c: ring.all_gather(c, np.zeros(3), offsets=3), ConfigError, "no list of integers"),
        (lambda c: ring.all_gather(c, np.zeros(3), offsets=[]), ConfigError, "need 4 rising"),
        (lambda c: segmented.all_reduce(c, np.zeros(2), segment="a"), ConfigError, "an integer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(call, error, words):
    def program(comm):
        with pytest.raises(error, match=words):
            call(comm)
        assert comm.traffic.messages == 0

    run(program, ranks=3)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, x, piece: ring.reduce_scatter(c, x, piece),
        lambda c, x, piece: segmented.reduce_scatter(c, x, piece),
        lambda c, x, piece: ring.all_gather(c, piece, x),
        lambda c, x, piece: rooted.gather(c, piece, x, root=c.rank),
        lambda c, x, piece: rooted.scatter(c, x, piece, root=c.rank),
    ],
)
@pytest.mark.parametrize("which", [0, 1], ids=["its own piece", "another piece"])
def test_a_result_over_any_piece_of_the_input_is_refused(call, which):
    """Another rank's piece would be overwritten before it has been sent."""

    def program(comm):
        x = np.arange(6.0)
        place = (comm.rank + which) % 3
        with pytest.raises(ArrayError, match="shares memory with the input"):
            call(comm, x, x[2 * place : 2 * place + 2])
        np.testing.assert_array_equal(x, np.arange(6.0))

    run(program, ranks=3)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("others", [tree.all_reduce, server.all_reduce, halving.all_reduce])
def test_another_algorithm_is_found(ranks, others):
    """A tree and a doubling on two ranks send messages of one size, and neither is the sum."""

    def program(comm):
        (doubling.all_reduce if comm.rank == 0 else others)(comm, np.ones(1))

    with pytest.raises(MismatchError, match=r"#1 \((doubling|tree|server|halving)\)"):
        run(program, ranks=ranks)


def test_another_root_is_found():
    """Rank 2 is the parent of rank 3 in the tree of either root, so every message is received."""

    def program(comm):
        tree.broadcast(comm, np.ones(1), root=2 if comm.rank == 3 else 0)

    with pytest.raises(MismatchError, match=r"#1 \(tree, root 2\)"):
        run(program, ranks=4)
