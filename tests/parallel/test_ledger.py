"""The ledger of bytes: sums, peaks, and a limit that says what was held."""

import pytest

from minidist.errors import MemoryLimitError
from minidist.parallel.ledger import KINDS, Ledger
from minidist.testing.mutants import mutate


def check_ledger(kind=Ledger):
    ledger = kind(3)
    ledger.take("parameters", 10)
    ledger.take("buffers", 7)
    ledger.give("buffers", 6)
    ledger.take("buffers", 1)
    ledger.take("activations", 4)
    assert (ledger.total, ledger.peak_total) == (16, 17)
    assert ledger.held == {
        **dict.fromkeys(KINDS, 0),
        "parameters": 10,
        "buffers": 2,
        "activations": 4,
    }
    assert (ledger.peak["buffers"], ledger.peak["activations"]) == (7, 4)
    assert ledger.at_peak["activations"] == 0


def test_it_adds_up_and_remembers_the_worst():
    check_ledger()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max(self.peak[kind], self.held[kind])", "self.held[kind]"),
        ("if self.total > self.peak_total:", "if True:"),
        ("self.held[kind] -= nbytes", "pass"),
    ],
)
def test_a_wrong_ledger_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_ledger(mutate(Ledger, old, new))


def test_a_limit_stops_the_rank_with_the_table_and_books_nothing():
    ledger = Ledger(3, limit=100)
    ledger.take("moments", 60)
    ledger.take("gradients", 40)
    with pytest.raises(
        MemoryLimitError, match=r"(?s)rank 3: 1 bytes of buffers .*moments +60.*--zero"
    ):
        ledger.take("buffers", 1)
    assert ledger.total == 100


def test_more_given_back_than_held_is_a_bug():
    with pytest.raises(ValueError, match="rank 0: 5 bytes of buffers given back, 0 held"):
        Ledger().give("buffers", 5)
