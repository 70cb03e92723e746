"""The only split there is."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.bounds import bounds, share
from minidist.errors import ConfigError
from minidist.testing.mutants import mutate


def check(split, n, parts):
    cut = split(n, parts)
    sizes = [b - a for a, b in pairwise(cut)]
    dealt = [len(range(i, n, parts)) for i in range(parts)]  # n cards dealt round to the parts
    assert cut[0] == 0
    assert cut[-1] == n
    assert sizes == dealt


def check_many(split):
    for n in range(20):
        for parts in range(1, 6):
            check(split, n, parts)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_pieces_are_consecutive_and_sizes_are_those_of_dealing_cards(n, parts):
    check(bounds, n, parts)


def test_known_cuts():
    # Two rules in one code base gave 3,3,3,1 here and 3,3,2,2 there (ByteDance-Seed/VeOmni#794).
    assert bounds(10, 4) == [0, 3, 6, 8, 10]
    assert bounds(2, 4) == [0, 1, 2, 2, 2]
    assert bounds(0, 3) == [0, 0, 0, 0]
    assert bounds(2**40, 1) == [0, 2**40]


@pytest.mark.parametrize(
    ("old", "new"),
    [("min(i, extra)", "0"), ("min(i, extra)", "i * extra"), ("range(parts + 1)", "range(parts)")],
)
def test_mutants_are_rejected(old, new):
    broken = mutate(bounds, old, new)
    with pytest.raises(AssertionError):
        check_many(broken)


@pytest.mark.parametrize(("n", "parts"), [(-1, 2), (3, 0), (3, -1)])
def test_impossible_cuts_are_refused(n, parts):
    with pytest.raises(ConfigError, match=f"cut {n} things into {parts} parts"):
        bounds(n, parts)


class Seat:
    """Which of how many, without any communication."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def check_share(function):
    """The pieces of all ranks, one after the other, are the whole, and follow `bounds`."""
    for n in range(20):
        for size in range(1, 6):
            pieces = [function(Seat(rank, size), n) for rank in range(size)]
            assert [i for start, stop in pieces for i in range(start, stop)] == list(range(n))
            assert pieces == list(pairwise(bounds(n, size)))


def test_shares_of_all_ranks_are_the_whole():
    check_share(share)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cut[comm.rank],", "cut[0],"),
        ("cut[comm.rank + 1]", "cut[comm.rank] + n // comm.size"),
        ("bounds(n, comm.size)", "bounds(n, comm.size + 1)"),
    ],
)
def test_wrong_shares_are_rejected(old, new):
    with pytest.raises(AssertionError):
        check_share(mutate(share, old, new))
