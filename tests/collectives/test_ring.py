"""The ring against one process, over all sizes, ranks, orders of events, and its mutants."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.collectives import buffers, ring, simulate, wait_all
from minidist.comm import run
from minidist.errors import ArrayError, ConfigError, MinidistError, MismatchError
from minidist.testing import laws
from minidist.testing.mutants import mutate, rebind

RANKS = range(1, 9)
DTYPES = [np.float64, np.float32, np.int64, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("ranks", RANKS)
def test_every_size_up_to_three_elements_a_rank(ranks):
    def program(comm):
        for n in range(3 * ranks + 2):
            laws.all_reduce(comm, ring.all_reduce, n)
            laws.reduce_scatter(comm, ring.reduce_scatter, n)
            laws.all_gather(comm, ring.all_gather, n)

    run(program, ranks=ranks)


worlds = st.fixed_dictionaries(
    {"ranks": st.integers(1, 8), "seed": st.integers(0, 10**6), "synchronous": st.booleans()}
)


@given(worlds, st.integers(0, 40), st.sampled_from(list(laws.REFERENCE)), st.sampled_from(DTYPES))
def test_any_operation_dtype_and_order_of_events(world, n, op, dtype):
    run(laws.all_reduce, ring.all_reduce, n, op, dtype, **world)
    run(laws.reduce_scatter, ring.reduce_scatter, n, op, dtype, **world)
    run(laws.all_gather, ring.all_gather, n, dtype, **world)


@given(worlds, st.data())
def test_pieces_may_be_cut_anywhere(world, data):
    borders = world["ranks"] - 1
    inner = data.draw(st.lists(st.integers(0, 20), min_size=borders, max_size=borders))
    offsets = [0, *sorted(inner), 20]
    run(partial(laws.reduce_scatter, offsets=offsets), ring.reduce_scatter, 20, **world)
    run(partial(laws.all_gather, offsets=offsets), ring.all_gather, 20, **world)


SCATTER_MUTANTS = [
    ("wrong piece first", "passing = piece(r - 1)", "passing = piece(r)"),
    (
        "wrong direction",
        "Exchange(comm, passing, (r + 1) % n",
        "Exchange(comm, passing, (r - 1) % n",
    ),
    ("one step too few", "for s in range(n - 1)", "for s in range(n - 2)"),
    ("own part left out", "combine(op, arriving, mine,", "combine(op, arriving, arriving,"),
    ("sum not passed on", "mine, out=passing)", "mine, out=own)"),
    ("other pieces touched", "else arriving", "else mine"),
    ("always a sum", "combine(op,", 'combine("sum",'),
    ("one work buffer", "s % 2 * longest", "0 * longest"),
]
GATHER_MUTANTS = [
    ("sends the same piece again", "piece(r - s), (r + 1)", "piece(r), (r + 1)"),
    ("receives into the wrong piece", "piece(r - 1 - s), (r - 1)", "piece(r - 2 - s), (r - 1)"),
    ("own piece forgotten", "piece(r)[...] = mine", "pass"),
    ("one step too few", "for s in range(n - 1)", "for s in range(n - 2)"),
]


def laws_of(broken_scatter=ring.reduce_scatter, broken_gather=ring.all_gather):
    whole = rebind(ring.all_reduce, reduce_scatter=broken_scatter, all_gather=broken_gather)
    for ranks in (1, 2, 3, 5):
        for n in (0, 1, 4, 10, 11):
            for synchronous in (True, False):
                for op in ("sum", "max"):
                    options = {"ranks": ranks, "synchronous": synchronous, "seed": n}
                    run(laws.reduce_scatter, broken_scatter, n, op, **options)
                    run(laws.all_gather, broken_gather, n, **options)
                    run(laws.all_reduce, whole, n, op, **options)


def test_the_laws_accept_the_ring():
    laws_of()


@pytest.mark.parametrize(("name", "old", "new"), SCATTER_MUTANTS)
def test_mutants_of_reduce_scatter_are_rejected(name, old, new):
    with pytest.raises((AssertionError, MinidistError, ValueError)):
        laws_of(broken_scatter=mutate(ring.reduce_scatter, old, new))


@pytest.mark.parametrize(("name", "old", "new"), GATHER_MUTANTS)
def test_mutants_of_all_gather_are_rejected(name, old, new):
    with pytest.raises((AssertionError, MinidistError)):
        laws_of(broken_gather=mutate(ring.all_gather, old, new))


def test_one_rank_that_is_forgotten_is_rejected():
    broken = mutate(buffers.own_piece, "own[...] = flat", "pass")
    with pytest.raises(AssertionError):
        laws_of(broken_scatter=rebind(ring.reduce_scatter, own_piece=broken))


def test_a_ring_that_drops_the_tail_is_rejected():
    # The remainder of n // N was never sent (hw-native-sys/pypto#1942).
    pieces = mutate(buffers.pieces, "cut[i % n + 1]", "cut[i % n] + size // n")
    scatter = rebind(ring.reduce_scatter, pieces=pieces)
    with pytest.raises((AssertionError, MinidistError)):
        laws_of(broken_scatter=scatter)


def test_the_tail_arrives():
    want = 6 + 4 * np.arange(10)

    def program(comm):
        return ring.all_reduce(comm, comm.rank + np.arange(10))

    for result in run(program, ranks=4):
        np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("ranks", RANKS)
def test_traffic_is_the_formula(ranks):
    n = 12 * ranks  # N divides it: exactly 2 (N - 1) / N of the buffer

    def program(comm):
        ring.all_reduce(comm, np.zeros(n))
        ring.reduce_scatter(comm, np.zeros(n))
        ring.all_gather(comm, np.zeros(n, np.float32))
        return comm.traffic

    for traffic in run(program, ranks=ranks):
        by = {op: (count.messages, count.bytes) for op, count in traffic.by.items()}
        rounds, share = ranks - 1, (ranks - 1) * n // ranks
        if ranks == 1:
            assert by == {}
            continue
        assert by == {
            "all_reduce": (2 * rounds, 2 * share * 8),
            "reduce_scatter": (rounds, share * 8),
            "all_gather": (rounds, share * 4),
        }
        assert traffic.messages == 4 * rounds
        assert traffic.bytes == (3 * 8 + 4) * share


@pytest.mark.parametrize("n", [1, 1001])
def test_all_ranks_get_the_same_bits(n):
    # Adding in another order on each rank gives 0 here and 1 there (open-mpi/ompi#12258).
    parts = np.array([1e8, 1, -1e8, 1], np.float32)

    def program(comm):
        return ring.all_reduce(comm, np.full(n, parts[comm.rank])).tobytes()

    for seed in range(5):
        assert len(set(run(program, ranks=4, seed=seed))) == 1


def test_exact_sums_in_place_with_fewer_elements_than_ranks():
    # A ring that does not allow its buffers to be one gave wrong sums (open-mpi/ompi#9385).
    for ranks in range(2, 9):
        for n in (0, 1, 2, ranks - 1, ranks, ranks + 1, 2 * ranks + 3):

            def program(comm, n=n):
                x = np.resize([comm.rank, 2.0**-comm.rank], n)
                return ring.all_reduce(comm, x.copy(), np.empty(n)), ring.all_reduce(comm, x)

            want = np.resize([sum(range(ranks)), sum(2.0**-r for r in range(ranks))], n)
            for apart, in_place in run(program, ranks=ranks):
                np.testing.assert_array_equal(apart, want)
                np.testing.assert_array_equal(in_place, want)


def test_shapes_are_kept():
    def program(comm):
        scalar = ring.all_reduce(comm, np.array(comm.rank + 1.0))
        matrix = ring.all_reduce(comm, np.full((2, 3), comm.rank + 1.0))
        empty = ring.all_reduce(comm, np.zeros((0, 5)))
        return scalar, matrix, empty

    for scalar, matrix, empty in run(program, ranks=3):
        assert scalar.shape == ()
        assert scalar == 6
        np.testing.assert_array_equal(matrix, np.full((2, 3), 6))
        assert empty.shape == (0, 5)


@pytest.mark.parametrize(("dtype", "u"), [(np.float16, 2.0**-11), (ml_dtypes.bfloat16, 2.0**-8)])
@given(st.integers(2, 8), st.integers(0, 10**6))
def test_half_types_are_rounded_once_a_hop(dtype, u, ranks, seed):
    inputs = np.random.default_rng(seed).standard_normal((ranks, 37)).astype(dtype)
    exact = inputs.astype(np.float64).sum(0)
    bound = (ranks - 1) * u * (1 + u) ** (ranks - 2) * np.abs(inputs.astype(np.float64)).sum(0)
    bound += ranks * 2.0**-24  # float32 additions, and subnormal results of float16

    def program(comm):
        return ring.all_reduce(comm, inputs[comm.rank].copy())

    for result in run(program, ranks=ranks):
        assert result.dtype == dtype
        assert (np.abs(result.astype(np.float64) - exact) <= bound).all()


def test_large_groups_should_reduce_in_float32():
    # 1 and 63 times 2**-9: each small part is lost when a bfloat16 chain begins with the 1
    # (pytorch/pytorch#106395), but not in float32.
    def program(comm, dtype):
        return ring.all_reduce(comm, np.full(64, 2.0**-9 if comm.rank else 1, dtype))

    exact = 1 + 63 * 2.0**-9
    worst = run(program, np.dtype(np.float32), ranks=64)[0]
    np.testing.assert_array_equal(worst, np.float32(exact))
    rough = run(program, np.dtype(ml_dtypes.bfloat16), ranks=64)[0].astype(float)
    assert rough.min() == 1.0


@pytest.mark.parametrize("ranks", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_ranks_without_ranks(ranks):
    n = 7
    results, sent = simulate(ring.all_reduce, ranks, lambda r: (np.full(n, float(r)),))
    assert sent == [2 * (ranks - 1)] * ranks
    for result in (results[0], results[1], results[ranks - 1]):
        np.testing.assert_array_equal(result, np.full(n, ranks * (ranks - 1) / 2))


@given(worlds, st.permutations(range(4)))
def test_started_collectives_may_be_waited_for_in_any_order(world, order):
    def program(comm):
        turn = order[comm.rank % 4 :] + order[: comm.rank % 4]
        arrays = [laws.values(comm.rank, n) for n in (0, 3, 10, 17)]
        started = [ring.all_reduce.start(comm, x) for x in arrays]
        for i in turn:
            assert started[i].wait() is arrays[i]
        for x in arrays:
            laws.same(x, laws.combined(comm.size, x.size, "sum"), f"rank {comm.rank}")
        assert not comm.state.started

    run(program, **world)


def test_a_poll_never_blocks_and_ends():
    def program(comm):
        x = laws.values(comm.rank, 10)
        started = ring.all_reduce.start(comm, x)
        polls = 1
        while not started.poll():
            polls += 1
        wait_all([started])
        laws.same(x, laws.combined(comm.size, 10, "sum"), f"rank {comm.rank}")
        return polls

    assert max(run(program, ranks=5)) > 1


def test_two_groups_at_once():
    # Two groups shared one key (pytorch/pytorch#14529); here each has its own messages.
    def program(comm):
        pairs = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
        started = [
            ring.all_reduce.start(pairs[i % 2], np.array([10.0**comm.rank])) for i in range(20)
        ]
        return [float(s.wait()[0]) for s in started[::-1]][::-1]

    want = [[11, 101], [11, 1010], [1100, 101], [1100, 1010]]
    assert run(program, ranks=4) == [w * 10 for w in want]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (lambda: (np.zeros((3, 2)).T,), ArrayError, "not C-contiguous"),
        (lambda: (np.zeros(6)[::2],), ArrayError, "not C-contiguous"),
        (lambda: ([1.0, 2.0],), ArrayError, "needs an array, got list"),
        (lambda: (np.array([None]),), ArrayError, "dtype object cannot travel"),
        (lambda: (np.zeros(3, ">f8"),), ArrayError, "native byte order"),
        (lambda: (np.zeros(3), np.zeros(4)), ArrayError, "make both equal"),
        (lambda: (np.zeros(3), np.zeros(3, np.float32)), ArrayError, "make both equal"),
        (lambda: (np.zeros(3), None, "mean"), ConfigError, "unknown reduction 'mean'"),
        (lambda: (np.zeros(3, bool),), ConfigError, "sum of bool is no number"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(arguments, error, message):
    def program(comm):
        with pytest.raises(error, match=message):
            ring.all_reduce(comm, *arguments())
        assert comm.traffic.messages == 0

    run(program, ranks=3)


def test_overlapping_and_read_only_results_are_refused():
    def program(comm, shared):
        mine = np.arange(8.0)
        with pytest.raises(ArrayError, match="shares memory with the input"):
            ring.all_reduce(comm, mine[:4], mine[2:6])
        with pytest.raises(ArrayError, match="read-only"):
            ring.all_reduce(comm, shared)
        with pytest.raises(ConfigError, match="do not cut 8 elements into 3 pieces"):
            ring.reduce_scatter(comm, mine, offsets=[0, 4, 8])

    run(program, np.arange(8.0), ranks=3)


def test_sizes_that_differ_are_an_error_that_names_ranks_and_sizes():
    def program(comm):
        ring.all_reduce(comm, np.zeros(8 if comm.rank else 10))

    with pytest.raises(
        MismatchError, match=r"rank \d waits for \d x float64 in all_reduce #1.*rank \d"
    ):
        run(program, ranks=3)


def test_bounds_are_the_pieces():
    assert bounds(7, 3) == [0, 3, 5, 7]

    def program(comm):
        return ring.reduce_scatter(comm, np.arange(7.0)).tolist()

    assert run(program, ranks=3) == [[0, 3, 6], [9, 12], [15, 18]]
