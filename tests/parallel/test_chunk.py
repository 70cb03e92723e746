"""What a rank keeps of a flat buffer, and the sum of its chunk."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from minidist.bounds import bounds
from minidist.comm import run
from minidist.parallel.chunk import kept_part, reduce_chunk
from minidist.plan.memory import CUT_FROM, State
from minidist.testing.coded import coded
from minidist.testing.mutants import mutate


def check_parts(part=kept_part):
    """From its stage on a kind is cut, each element once; below, everybody keeps all. 10 on 4."""
    for (kind, first), stage in product(CUT_FROM.items(), range(4)):
        seats = [SimpleNamespace(rank=r, size=4) for r in range(4)]
        found = [list(range(10))[part(kind, stage, seat, 10)] for seat in seats]
        if stage < first:
            assert found == [list(range(10))] * 4
        else:
            assert [len(x) for x in found] == [3, 3, 2, 2]
            assert [i for x in found for i in x] == list(range(10))


def test_a_kind_is_whole_or_cut_as_its_stage_says():
    check_parts()


@pytest.mark.parametrize(
    ("old", "new"),
    [("stage < CUT_FROM", "stage <= CUT_FROM"), ("CUT_FROM[kind]", "2"), ("comm, n)", "comm, 9)")],
)
def test_a_wrong_part_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_parts(mutate(kept_part, old, new))


@pytest.mark.parametrize("stage", range(4))
def test_parts_are_what_the_formula_of_memory_counts(stage):
    state, ranks = State("float32"), 3
    for rank in range(ranks):
        held = state.held(stage, ranks, rank, [10, 2])
        for kind, each in state.bytes().items():
            seat = SimpleNamespace(rank=rank, size=ranks)
            parts = [kept_part(kind, stage, seat, n) for n in (10, 2)]
            assert held[kind] == each * sum(p.stop - p.start for p in parts), kind


def check_sums(collective=reduce_chunk, n=7):
    """In place; into `out`, which leaves the buffer alone elsewhere; and onto what is there."""

    def program(comm):
        cut = bounds(n, comm.size)
        mine = slice(cut[comm.rank], cut[comm.rank + 1])
        total = sum(coded(r, n) for r in range(comm.size))[mine]
        flat = coded(comm.rank, n)
        assert np.array_equal(collective(comm, flat), total)
        assert np.array_equal(flat[mine], total), "in place"
        out = np.zeros(mine.stop - mine.start)
        collective(comm, coded(comm.rank, n), out)
        assert np.array_equal(out, total)
        collective(comm, coded(comm.rank, n), None, out)
        assert np.array_equal(out, 2 * total)

    for ranks in (1, 2, 3, 8):
        run(program, ranks=ranks)


def test_a_chunk_of_the_sum_goes_where_it_is_wanted():
    check_sums()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps(comm, flat, out)", "steps(comm, flat)"),
        ("out=onto)", "out=chunk)"),
        ("if onto is not None:", "if False:"),
    ],
)
def test_a_wrong_sum_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_sums(mutate(reduce_chunk, old, new))
