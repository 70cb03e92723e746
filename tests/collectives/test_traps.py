"""Faults that other projects really had, asked of every collective of the family.

Those of the ring alone are in `test_ring`, of messages and hangs in `tests/comm`.
"""

from functools import partial
from itertools import permutations

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
from minidist.comm import run
from minidist.errors import DeadlockError, MismatchError
from minidist.testing.mutants import mutate, rebind


def on_nodes(comm, x, out=None, op="sum"):
    """The hierarchical all-reduce on two nodes, uneven if the ranks are."""
    hosts = [2 * r >= comm.size for r in range(comm.size)]
    return hierarchical.all_reduce(comm, x, hierarchical.nodes(comm, hosts), out, op)


ALL_REDUCES = {
    "ring": ring.all_reduce,
    "segmented": partial(segmented.all_reduce, segment=16),
    "halving": halving.all_reduce,
    "doubling": doubling.all_reduce,
    "tree": tree.all_reduce,
    "server": server.all_reduce,
    "hierarchical": on_nodes,
}
every = pytest.mark.parametrize("name", ALL_REDUCES)


def in_place_as_out_of_place(collective):
    """In place and out of place agree exactly, with fewer elements than ranks too."""
    for ranks in range(2, 9):
        for n in (0, 1, 2, ranks - 1, ranks, ranks + 1, 2 * ranks + 3, None):

            def program(comm, n=n):
                x = np.resize([comm.rank, 2.0**-comm.rank], n or 0)
                x = np.array(float(comm.rank)) if n is None else x
                return collective(comm, x.copy(), np.empty_like(x)), collective(comm, x)

            want = np.resize([sum(range(ranks)), sum(2.0**-r for r in range(ranks))], n or 0)
            want = np.array(sum(range(ranks))) if n is None else want
            for apart, in_place in run(program, ranks=ranks):
                np.testing.assert_array_equal(apart, want)
                np.testing.assert_array_equal(in_place, want)


@every
def test_in_place_with_fewer_elements_than_ranks(name):
    # open-mpi/ompi#9385: wrong sums where the send buffer is the receive buffer.
    in_place_as_out_of_place(ALL_REDUCES[name])


def test_in_place_finds_a_mutant():
    with pytest.raises((AssertionError, MismatchError)):
        in_place_as_out_of_place(mutate(server.all_reduce, "result, arriving,", "x, arriving,"))


@every
def test_a_view_changes_in_the_array_of_the_caller_and_nothing_around_it(name):
    # avik-pal/FluxMPI.jl#33: the result was in a new array, and the caller's did not change.
    def program(comm):
        room = np.full((4, 6), -1.0)
        room[1:3] = np.arange(12).reshape(2, 6) + comm.rank
        ALL_REDUCES[name](comm, room[1:3])
        return room

    for room in run(program, ranks=5):
        np.testing.assert_array_equal(room[1:3], 5 * np.arange(12).reshape(2, 6) + 10)
        assert (room[[0, 3]] == -1).all()


@every
@pytest.mark.parametrize("first", [10, 0])
def test_sizes_that_differ_are_never_summed(name, first):
    # NVIDIA/nccl#1417: sometimes a hang, sometimes silently wrong.
    def program(comm):
        ALL_REDUCES[name](comm, np.ones(first if comm.rank == 0 else 8))

    with pytest.raises(MismatchError, match=r"rank \d waits for \d+ x float64 .* rank \d has sent"):
        run(program, ranks=3)


@every
def test_dtypes_that_differ_are_never_summed(name):
    def program(comm):
        ALL_REDUCES[name](comm, np.ones(8, "f4" if comm.rank == 0 else "f8"))

    with pytest.raises(MismatchError, match=r"8|float32"):
        run(program, ranks=3)


@every
def test_a_rank_that_stays_away_is_named(name):
    # horovod/horovod#1361: training stalls without a clue.
    def program(comm):
        if comm.rank != 1:
            ALL_REDUCES[name](comm, np.ones(8))

    with pytest.raises(DeadlockError, match=r"rank 1 has finished") as failure:
        run(program, ranks=3)
    assert "waits" in str(failure.value)


@every
def test_an_exception_on_one_rank_is_what_all_end_with(name):
    # Pyomo/mpi-sppy#852: the others wait in the next collective, and no traceback is seen.
    def program(comm):
        ALL_REDUCES[name](comm, np.ones(8))
        if comm.rank == 1:
            raise ValueError("between two all-reduces")
        ALL_REDUCES[name](comm, np.ones(8))

    with pytest.raises(ValueError, match="between two"):
        run(program, ranks=3)


def test_a_group_cuts_by_its_own_size():
    # facebookresearch/fairscale#907: padded to the size of the world instead of the group.
    def program(comm):
        group = comm.split(None if comm.rank == 3 else 0)
        x = np.arange(7, dtype=np.float32) + 10 * comm.rank
        return None if group is None else ring.reduce_scatter(group, x)

    shards = run(program, ranks=4)[:3]
    np.testing.assert_array_equal(np.concatenate(shards), 3 * np.arange(7) + 30)
    assert [s.size for s in shards] == [3, 2, 2]


@pytest.mark.parametrize("rows", [1, 3, 5, 6])
def test_scatter_and_gather_give_back_as_many_rows(rows):
    # pytorch/pytorch#103306: 5 rows over 4 ranks came back as 8.
    whole = np.arange(rows * 3.0).reshape(rows, 3)

    def program(comm):
        cut = [3 * min(r * -(-rows // 4), rows) for r in range(5)]  # the last ranks may be empty
        mine = np.full(cut[comm.rank + 1] - cut[comm.rank], -1.0)
        rooted.scatter(comm, whole.copy() if comm.rank == 0 else None, mine, cut)
        back = np.full_like(whole, -1) if comm.rank == 0 else None
        return rooted.gather(comm, mine, back, cut)

    np.testing.assert_array_equal(run(program, ranks=4)[0], whole)


def test_ranks_without_anything_take_part():
    # NVIDIA-NeMo/Automodel#935: a rank whose experts get no token skips the exchange.
    counts = [[3, 0], [0, 0]]

    def program(comm):
        send = np.cumsum([0, *counts[comm.rank]]).tolist()
        recv = np.cumsum([0, *[row[comm.rank] for row in counts]]).tolist()
        return all_to_all(comm, np.arange(float(send[-1])), np.empty(recv[-1]), send, recv).tolist()

    assert run(program, ranks=2, synchronous=True) == [[0, 1, 2], []]


def test_rounding_in_another_order_on_each_rank_is_found():
    # open-mpi/ompi#12258: every rank adds what passes by to its own.
    parts = np.array([1e8, 1, -1e8, 1], np.float32)

    def own_first(comm, x):
        passing, total = x.copy(), x.copy()
        for _ in range(comm.size - 1):
            passing = ring.shift(comm, passing, np.empty_like(passing))
            total += passing
        return total

    def bits(collective):
        return set(run(lambda c: collective(c, parts[[c.rank]]).tobytes(), ranks=4))

    assert len(bits(own_first)) > 1
    for collective in ALL_REDUCES.values():
        assert len(bits(collective)) == 1


ODD = [np.array(bits, np.uint32).view(np.float32) for bits in (0, 1 << 31, 0x7FC00001, 0x7FC00002)]
"""Zero, minus zero, and two NaN: which of two comes out depends on which of them comes first."""


def same_bits(collective, op, ranks):
    for values in permutations(ODD, 3):
        parts = [values[r % 3] for r in range(ranks)]

        def program(comm, parts=parts):
            return collective(comm, np.full(5, parts[comm.rank]), op=op).tobytes()

        assert len(set(run(program, ranks=ranks))) == 1, parts


@every
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_zeros_of_two_signs_and_nans_come_out_alike_on_all_ranks(name, op):
    for ranks in (2, 4, 5):
        same_bits(ALL_REDUCES[name], op, ranks)


def test_partners_that_put_their_own_first_are_found():
    work = mutate(
        doubling.double,
        "(room, result) if me & width else (result, room)",
        "(result, room)",
    )
    with pytest.raises(AssertionError):
        same_bits(rebind(doubling.all_reduce, double=work), "max", 4)
