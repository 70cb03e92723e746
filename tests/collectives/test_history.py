"""Who has summed what, from the messages of the real bodies."""

import numpy as np
import pytest

from minidist.collectives import Collective, halving, ring
from minidist.collectives import history as module
from minidist.collectives.history import MOST, history, states
from minidist.errors import ConfigError
from minidist.testing.mutants import mutate


def check_ring(ranks, find=history, follow=states):
    """Rank r sends piece r-1 first, then what it has just completed by one rank more."""
    steps = find(ring.all_reduce, ranks)
    assert len(steps) == 2 * (ranks - 1)
    for number, sent in enumerate(steps):
        assert [one.source for one in sent] == list(range(ranks))
        for one in sent:
            assert one.to == (one.source + 1) % ranks
            assert one.piece == (one.source - 1 - number) % ranks
            first = one.source - min(number, ranks - 1)
            assert one.ranks == {n % ranks for n in range(first, one.source + 1)}
    found = follow(steps, ranks)
    everyone = frozenset(range(ranks))
    assert found[0] == [[{rank}] * ranks for rank in range(ranks)]
    for rank in range(ranks):
        assert [who == everyone for who in found[ranks - 1][rank]] == [
            piece == rank for piece in range(ranks)
        ]
    assert all(who == everyone for row in found[-1] for who in row)
    assert found[1][1] != found[0][1], "the start is not changed afterwards"


@pytest.mark.parametrize("ranks", range(2, MOST + 1))
def test_a_ring_step_by_step(ranks):
    check_ring(ranks)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (states, "| sent.ranks", "- sent.ranks"),
        (states, "[[list(row) for row in now]]", "[now]"),
        (history, "for p in range(ranks)])", "for p in reversed(range(ranks))])"),
    ],
)
def test_a_wrong_history_is_seen(function, old, new):
    broken = {function.__name__: mutate(function, old, new)}
    with pytest.raises((AssertionError, ConfigError)):
        check_ring(4, broken.get("history", history), broken.get("states", states))


def test_one_rank_sends_nothing():
    assert history(ring.all_reduce, 1) == []
    assert states([], 1) == [[[{0}]]]


@pytest.mark.parametrize("ranks", [0, MOST + 1])
def test_ranks_that_cannot_be_told_apart(ranks):
    with pytest.raises(ConfigError, match=f"{ranks} ranks; 1 to {MOST}"):
        history(ring.all_reduce, ranks)


def test_what_is_sent_in_more_than_one_piece_is_refused():
    with pytest.raises(ConfigError, match="a message of 2 elements"):
        history(halving.all_reduce, 4)


def test_a_value_that_is_added_twice_is_found():
    @Collective
    def twice(comm, x):
        x[0] += x[0]
        yield from ring.all_reduce.steps(comm, x)

    with pytest.raises(ConfigError, match="the sum of one piece, each rank once"):
        history(twice, 3)


def test_the_input_names_piece_and_rank():
    assert module._read(np.array([1 << (3 * 2 + 1) | 1 << (3 * 2)]), 3) == (2, {0, 1})
