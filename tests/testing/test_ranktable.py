"""Numbers that say where they come from, and what a broken law looks like."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.learn.laws import World, worlds
from minidist.testing import laws
from minidist.testing.coded import NOTHING, RANKS, coded, contrast, decode, describe
from minidist.testing.ranktable import LawBroken, compare, plain


@given(st.lists(st.integers(0, RANKS - 1), min_size=1, max_size=7), st.integers(0, 2**25))
def test_a_sum_tells_its_ranks_and_its_index(ranks, index):
    total = sum(coded(r, 1, start=index)[0] for r in ranks)
    assert decode(total) == (tuple(sorted(ranks)), index)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, np.nan, np.inf, float(3 * 2**24)])
def test_other_numbers_are_none(value):
    assert decode(value) is None


def test_a_rank_without_a_code_is_refused():
    with pytest.raises(ValueError, match="rank 8 has no code"):
        coded(8, 1)


ABC = [coded(r, 4) for r in range(3)]


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (sum(ABC), "[0:4] of ranks 0+1+2"),
        (ABC[1][2:], "[2:4] of rank 1"),
        (np.concatenate([ABC[0][:2], ABC[2][3:]]), "[0:2] of rank 0, [3:4] of rank 2"),
        (ABC[0] + ABC[0], "[0:4] of ranks 0+0"),
        (np.full(3, float(NOTHING)), "3 times nothing"),
        (ABC[0][:1] + ABC[1][1:2], "a mixture of indices of ranks 0+1"),
        (np.array([0.5]), "0.5"),
        (np.zeros(0), "no elements"),
    ],
)
def test_what_is_held_in_words(x, words):
    assert describe(x) == words


@pytest.mark.parametrize(
    ("want", "got", "words"),
    [
        (ABC[0][3:], ABC[0][2:], ("[3:4]", "[2:4]", "")),
        (
            sum(ABC),
            ABC[0] + ABC[2],
            ("[0:4] of ranks 0+1+2", "[0:4] of ranks 0+2", "rank 1 is missing"),
        ),
        (
            ABC[0] + ABC[1],
            ABC[0] + ABC[0] + ABC[1],
            ("[0:4] of ranks 0+1", "[0:4] of ranks 0+0+1", "rank 0 is there twice"),
        ),
        (
            ABC[0],
            ABC[0] + ABC[1],
            ("[0:4] of rank 0", "[0:4] of ranks 0+1", "rank 1 does not belong there"),
        ),
        (ABC[0][:1], np.full(1, -1.0), ("[0:1] of rank 0", "nothing", "")),
        (ABC[0][:1], np.zeros(0), ("[0:1] of rank 0", "no elements", "")),
    ],
)
def test_two_holdings_as_short_as_can_be(want, got, words):
    assert contrast(want, got) == words


def test_a_broken_law_in_full():
    whole = sum(ABC)
    should = [whole[:2], whole[2:3], whole[3:]]
    with pytest.raises(LawBroken) as caught:
        compare("the law.", "3 ranks, n = 4", should, [*should[:2], whole[2:]], describe)
    assert str(caught.value).splitlines() == [
        "3 ranks, n = 4: rank 2 should hold [3:4], holds [2:4]",
        "",
        "  rank  should hold           holds",
        "     0  [0:2] of ranks 0+1+2  the same",
        "     1  [2:3] of ranks 0+1+2  the same",
        "  -> 2  [3:4] of ranks 0+1+2  [2:4] of ranks 0+1+2",
        "",
        "the law: the law.",
    ]
    compare("the law.", "3 ranks", should, should, describe)


@pytest.mark.parametrize(
    ("want", "got", "words"),
    [
        (np.zeros(1), np.zeros(1, np.float32), "of shape (1,) and float32 instead of (1,) and f"),
        (np.zeros(1), -np.zeros(1), "rank 0 should hold [0], holds [-0]"),
        (np.arange(10.0), np.arange(10.0)[::-1] * 1, "[0 1 2 3 4 5 6 7 ... (10 in all)], holds [9"),
        (np.arange(9.0), np.append(np.arange(8.0), 9.0), "elements that are not shown"),
        ("1", 1, "int instead of str"),
        (np.zeros(2), None, "holds None"),
    ],
)
def test_other_things_are_compared_too(want, got, words):
    with pytest.raises(LawBroken) as caught:
        compare("law", "1 rank", [want], [got], plain)
    assert words in str(caught.value)


@pytest.mark.parametrize("got", [None, list(range(10**5)), "two\nlines", np.arange(10.0) * 1.5])
@pytest.mark.parametrize("words", [plain, describe])
def test_whatever_is_held_has_a_short_line(got, words):
    with pytest.raises(LawBroken) as caught:
        compare("law", "1 rank", [ABC[0]], [got], words)
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) < 400


# --- laws that the package's own mutants hardly reach --------------------------------------------


def by_gathering(comm, x, start):
    """An all-reduce that adds in the order of the ranks, from rank ``start``."""
    everybody = comm.gather_objects(x.copy())
    x[...] = everybody[start]
    for r in range(1, comm.size):
        x += everybody[(start + r) % comm.size]
    return x


def test_sums_that_begin_elsewhere_on_each_rank_are_rejected():
    # All ranks got slightly different results, an application diverged (open-mpi/ompi#12258).
    run(laws.same_bits, lambda comm, x: by_gathering(comm, x, 0), 3, ranks=4)
    with pytest.raises(LawBroken, match="all ranks have the same bits"):
        run(laws.same_bits, lambda comm, x: by_gathering(comm, x, comm.rank), 3, ranks=4)


def careless(comm, x, out=None, op="sum"):
    """An all-reduce of the right values, which touches what is not its own."""
    result = x if out is None else out
    result[...] = np.sum(comm.gather_objects(x.copy()), axis=0)
    if x.base is not None and out is None:
        x.base[0] = 7
    return result


def test_memory_outside_a_view_and_copies_are_seen():
    def law(comm, collective):
        laws.all_reduce(comm, collective, 3, sends=None)

    with pytest.raises(LawBroken, match="nothing outside the array"):
        run(law, careless, ranks=2)
    with pytest.raises(LawBroken, match="returns the array that its result is in"):
        run(law, lambda *args, **options: careless(*args, **options).copy(), ranks=2)


def test_small_worlds_rise():
    every = [(w.ranks, w.n) for w in worlds(ranks=(1, 3), most=2)]
    assert every == sorted(every)
    assert set(every) == {(ranks, n) for ranks in (1, 3) for n in range(3)}
    assert {w.synchronous for w in worlds()} == {True, False}


def test_a_world_is_named_where_something_fails():
    def program(comm, n):
        raise KeyError(n)

    with pytest.raises(KeyError) as caught:
        World(3, 4, synchronous=True).run(program)
    assert caught.value.__notes__[-1] == "3 ranks, n = 4, sends that wait for their receive"
