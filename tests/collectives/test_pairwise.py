"""Pairwise reduce-scatter: exact sums, the bytes of a ring, and half types rounded once."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.collectives import pairwise, ring
from minidist.comm import run
from minidist.ops.half import named
from minidist.testing.mutants import mutate


def check_sum(ranks, size, seed=0, synchronous=False, kind=pairwise.reduce_scatter):
    def program(comm, apart):
        x = (1000.0 * (comm.rank + 1)) + np.arange(size)
        cut = bounds(size, comm.size)
        out = np.empty(cut[comm.rank + 1] - cut[comm.rank]) if apart else None
        piece = kind(comm, x, out)
        want = 1000.0 * sum(range(1, ranks + 1)) + ranks * np.arange(size)
        assert np.array_equal(piece, want[cut[comm.rank] : cut[comm.rank + 1]])
        return comm.traffic.bytes

    for apart in (False, True):
        sent = run(program, apart, ranks=ranks, seed=seed, synchronous=synchronous)
        assert sum(sent) == (ranks - 1) * size * 8


@example(3, 7, 0, True)
@example(5, 2, 1, False)
@given(st.integers(1, 8), st.integers(0, 25), st.integers(0, 99), st.booleans())
def test_every_rank_has_the_sum_of_its_piece(ranks, size, seed, synchronous):
    check_sum(ranks, size, seed, synchronous)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("piece(r + s), (r + s) % n", "piece(r + s + 1), (r + s) % n"),
        ("range(1, n)", "range(2, n)"),
    ],
)
def test_a_wrong_sum_is_seen(old, new):
    broken = mutate(pairwise.reduce_scatter, old, new)
    with pytest.raises(AssertionError):
        check_sum(3, 9, kind=broken)


def half_sum(comm, dtype, small, kind):
    x = np.full(comm.size, 1.0 if comm.rank == 0 else small).astype(named(dtype))
    return float(kind(comm, x)[0].astype(np.float64))


@pytest.mark.parametrize(
    ("dtype", "small", "unit"), [("bfloat16", 2.0**-9, 2.0**-8), ("float16", 2.0**-12, 2.0**-11)]
)
def test_small_terms_are_not_lost_among_many_ranks(dtype, small, unit):
    """pytorch#106395: 1 + 63 small terms on 64 ranks; a ring that rounds at each hop keeps 1."""
    want = 1 + 63 * small
    found = run(half_sum, dtype, small, pairwise.reduce_scatter, ranks=64)
    assert all(abs(x / want - 1) < unit for x in found)
    rounded = run(half_sum, dtype, small, ring.reduce_scatter, ranks=64)
    assert max(abs(x / want - 1) for x in rounded) > 10 * unit


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_no_bit_depends_on_the_order_of_arrival(dtype):
    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=23).astype(named(dtype))
        return pairwise.reduce_scatter(comm, x).tobytes()

    runs = [run(program, ranks=5, seed=s, synchronous=s == 3) for s in range(4)]
    assert all(found == runs[0] for found in runs)
