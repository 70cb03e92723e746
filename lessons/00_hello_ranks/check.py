"""The laws of lesson 00. A test is about the blank in its name; tests go in order of the blanks.

Small cases come first, so that what fails first is the smallest one: 1, 2, 3, ... parts, and from
no element at all to more than twice as many as parts.
"""

import os
import platform
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from minidist.learn.laws import LARGER, LawBroken, compare, counted, larger_worlds, run, worlds
from minidist.roster import Row

ONE_OWNER = (
    "the pieces, one after the other, are the whole: every element has exactly one owner. They "
    "differ in length by one at most, the longer ones first. Borders are whole numbers (ints)."
)
SAME_TABLE = "every rank gets the rows of all ranks, in the order of the ranks."


def dealt(n, parts):
    """The right pieces, by another route: n cards dealt round to the parts, then counted."""
    lengths = [len(range(i, n, parts)) for i in range(parts)]
    return [(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(parts)]


def words(piece):
    """A piece for people: [2:4]; a list reads like it but is not equal, so it has its type."""
    if type(piece) is list:
        return f"the list {piece!r}, not a tuple"
    return "[{}:{}]".format(*piece) if type(piece) is tuple and len(piece) == 2 else repr(piece)


def compare_cut(world, want, got, what="hold"):
    """Compare pieces as they are written: 2.0 is equal to 2, but x[:2.0] is an error."""
    compare(ONE_OWNER, world, [*map(words, want)], [*map(words, got)], str, what)


def check_bounds(function, n, parts):
    """One cut, piece by piece."""
    world = f"{counted(parts, 'rank')}, n = {n}"
    offsets = function(n, parts)
    if type(offsets) is not list or len(offsets) != parts + 1:
        count = f"{parts + 1} offsets make {counted(parts, 'piece')}"
        raise LawBroken(f"{count}: where the first begins, and where each ends.",
                        f"{world}: bounds({n}, {parts}) should be a list of {parts + 1} offsets, "
                        f"is {offsets!r}")  # fmt: skip
    compare_cut(world, dealt(n, parts), pairwise(offsets))


def test_bounds(exercise):
    """00.1  every element has one owner."""
    for parts in range(1, 7):
        for n in range(2 * parts + 2):
            check_bounds(exercise.bounds, n, parts)


@LARGER
@given(n=st.integers(0, 10_000), parts=st.integers(1, 100))
def test_bounds_of_many(exercise, n, parts):
    """00.1  ... also of many, on many ranks."""
    check_bounds(exercise.bounds, n, parts)


def check_share(function, world):
    """Every rank asks for its own piece; together they are the whole."""
    pieces = world.run(lambda comm, n: function(comm, n))
    compare_cut(world.name, dealt(world.n, world.ranks), pieces, "return")


def test_share(exercise):
    """00.2  every rank finds its own piece, and the pieces are the whole."""
    for world in worlds():
        check_share(exercise.share, world)


@LARGER
@given(world=larger_worlds)
def test_share_of_many(exercise, world):
    """00.2  ... also of many."""
    check_share(exercise.share, world)


HOSTS = ["ant", "bee", "cow", "doe", "eel"]
me = ContextVar("the rank that runs", default=None)


@contextmanager
def machines():
    """Each rank that says who it is, by `me`, finds itself on a host and in a process of its own.

    In-process ranks share both. So a row that says another rank's host would be right.
    """
    node, pid = platform.node, os.getpid
    with (
        patch.object(platform, "node", lambda: node() if me.get() is None else HOSTS[me.get()]),
        patch.object(os, "getpid", lambda: pid() if me.get() is None else 71400 + me.get()),
    ):
        yield


def test_roster(exercise):
    """00.3  every rank has the table of all ranks."""

    def program(comm):
        me.set(comm.rank)
        return exercise.roster(comm, f"device {comm.rank}")

    for ranks in (1, 2, 3, 5):
        world = counted(ranks, "rank")
        with machines():
            tables = run(program, ranks=ranks)
        found = [len(t) if type(t) is list else t for t in tables]
        compare(SAME_TABLE, world, [ranks] * ranks, found, lambda v: counted(v, "row"), "get")
        want = [Row(rank, HOSTS[rank], 71400 + rank, f"device {rank}") for rank in range(ranks)]
        said = f"{world}, in the table of rank 0"
        law = "a row says the truth about its rank, and is a `Row`."
        want, *got = ([*map(str, table)] for table in (want, *tables))  # str tells Row from tuple
        compare(law, said, want, got[0], str, "say")
        same = [f"the table of rank {0 if t == want else rank}" for rank, t in enumerate(got)]
        compare(SAME_TABLE, world, ["the table of rank 0"] * ranks, same, str, "get")


SYMBOLIC = [test_bounds, test_share]
"""Who owns what, before any number is computed."""
