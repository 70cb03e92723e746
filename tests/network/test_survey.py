"""Which pairs stand for which kind of link, and the times of each, exact on the virtual clock."""

import numpy as np
import pytest

from minidist.comm import Link, by_node, run
from minidist.errors import ConfigError
from minidist.network import level, place
from minidist.network.survey import Table, adding, between, in_process, pairs
from minidist.testing.mutants import mutate, rebind

SIZES = (1, 64, 1 << 12)
INSIDE, ACROSS = Link(2.0**-12, 2.0**24), Link(2.0**-8, 2.0**20)


def test_the_level_of_two_places():
    here = place()
    assert level(here, place()) == "process"
    assert level(here, (here[0], here[1] + 1)) == "node"
    assert level(here, (here[0] + "2", here[1])) == "network"


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("", {}),
        ("a", {}),
        ("aa", {"node": (0, 1)}),
        ("ab", {"network": (0, 1)}),
        ("abab", {"network": (0, 1), "node": (0, 2)}),
        ("aab", {"node": (0, 1), "network": (0, 2)}),
        ("abbc", {"network": (0, 1), "node": (1, 2)}),
    ],
)
def test_pairs(hosts, found):
    assert pairs([(host, rank) for rank, host in enumerate(hosts)]) == found


def test_ranks_of_one_process_are_a_kind_of_their_own():
    assert pairs([("a", 1), ("a", 1), ("a", 2)]) == {"process": (0, 1), "node": (0, 2)}


def check(between):
    """Every pair has the times of its own link, on all ranks."""
    links = by_node([2, 3], INSIDE, ACROSS)
    for pair in ((0, 1), (3, 1), (2, 4)):
        link = links(*pair)
        want = Table(SIZES, tuple(link.latency + n / link.bandwidth for n in SIZES))
        assert run(between, SIZES, 2, *pair, ranks=5, links=links) == [want] * 5


def test_between():
    check(between)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(best[i]", "max(best[i]"),
        ("x[:n]", "x"),
        ("TRIPS, a, b, clock", "TRIPS, a, b, time.perf_counter"),
        ("root=a", "root=0"),
    ],
)
def test_mutants(old, new):
    with pytest.raises((AssertionError, ConfigError)):
        check(mutate(between, old, new))


@pytest.mark.parametrize("link", [INSIDE, ACROSS, Link(1e-6, 1e10), Link(0.0, 1e6)])
def test_the_line_through_a_table_is_the_link(link):
    table = run(between, SIZES, ranks=2, links=link)[0]
    assert table.link[:2] == pytest.approx(link[:2], rel=1e-6, abs=1e-15)
    assert table.error < 1e-6


def test_a_clock_that_stands_still_is_said():
    with pytest.raises(ConfigError, match="does this clock stand still"):
        _ = run(between, SIZES, ranks=2)[0].link


def test_in_process_takes_real_time():
    table = in_process(SIZES)
    assert table.nbytes == SIZES
    assert all(0 < t < 60 for t in table.seconds)


class Clock:
    """Time that passes only while arrays are added: ``start`` + ``rate`` a byte of each.

    The first sum of each size is slow, by another factor for each, as with cold caches.
    """

    def __init__(self, start, rate):
        self.now, self.start, self.rate = 0.0, start, rate
        self.seen = set()

    def combine(self, op, a, b, out):
        assert op == "sum"
        assert a.dtype == b.dtype == out.dtype == np.float32
        warm = out.nbytes in self.seen
        self.seen.add(out.nbytes)
        self.now += (self.start + self.rate * out.nbytes) * (1 if warm else 3 + len(self.seen))

    def __call__(self):
        return self.now


def check_adding(change=("", "")):
    clock = Clock(start=1e-6, rate=2e-10)
    timed = rebind(adding, combine=clock.combine)
    if change[0]:
        timed = mutate(adding, *change, combine=clock.combine)
    assert timed(2, clock=clock) == pytest.approx(2e-10, rel=1e-6)


def test_adding_is_the_slope():
    check_adding()
    assert 0 < adding() < 1e-6


@pytest.mark.parametrize(
    "change", [("1 / fit(", "fit("), (".bandwidth", ".latency"), ("clock() - start)", "clock())"),
               ("1 + rounds * TRIPS", "1")],
)  # fmt: skip
def test_mutants_of_adding(change):
    with pytest.raises((AssertionError, ConfigError)):
        check_adding(change)
