"""The laws of lesson 03, in the order of its blanks; a test is about the blank in its name.

Each begins with small worlds in rising order, so that what fails first is the smallest case: 1, 2,
3, 4, 5 and 8 ranks, no elements to twice as many as ranks, sends that wait for their receive and
sends that do not. Then hypothesis draws larger ones, with other operations and dtypes.
"""

from functools import partial

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import Link
from minidist.learn.laws import LARGER, World, compare, hold_everywhere, larger_worlds
from minidist.testing import laws

ops = st.sampled_from(["sum", "max", "min"])
dtypes = st.sampled_from([np.float64, np.float32, np.int64, np.float16, ml_dtypes.bfloat16])

served = partial(laws.all_reduce, sends=laws.server_sends)
halved = partial(laws.all_reduce, sends=laws.halving_sends)


def check_all_reduce(law, collective):
    """The law in small worlds, and the same bits on all ranks."""
    hold_everywhere(law, collective)
    hold_everywhere(laws.same_bits, collective, most=1)


def test_server_all_reduce(exercise):
    """03.1  the server's all-reduce is right, at N - 1 arrays in and out of one rank."""
    check_all_reduce(served, exercise.server_all_reduce)


@LARGER
@given(world=larger_worlds, op=ops, dtype=dtypes)
def test_server_all_reduce_of_anything(exercise, world, op, dtype):
    """03.1  ... for any operation, dtype and size."""
    world.run(lambda comm, n: served(comm, exercise.server_all_reduce, n, op, dtype))


def test_broadcast(exercise):
    """03.2  the tree reaches every rank from every root, with N - 1 messages."""

    def law(comm, collective, n):
        for root in range(comm.size):
            laws.broadcast(comm, collective, n, root)

    hold_everywhere(law, exercise.broadcast, most=2)


def test_broadcast_in_few_rounds(exercise):
    """03.2  ... in log2 N rounds."""

    def program(comm, n):
        exercise.broadcast(comm, np.zeros(n, np.uint8))
        return comm.time

    for ranks in range(1, 9):
        world = World(ranks, 8)
        times = world.run(program, links=lambda a, b: Link(0.0, 8.0, f"wire out of {a}"))
        rounds = (ranks - 1).bit_length()
        law = "the holders double in each round: after log2 N of them, rounded up, all have it."
        last = [max(times)] * ranks
        name = f"{ranks} ranks, one message a second"
        compare(law, name, [float(rounds)] * ranks, last, lambda t: f"{t:g} s", "need")


def test_reduce_scatter(exercise):
    """03.3  reduce-scatter leaves piece r of the sum on rank r; sends (N - 1) / N of the array."""
    hold_everywhere(laws.reduce_scatter, exercise.reduce_scatter)


@LARGER
@given(world=larger_worlds, op=ops, dtype=dtypes, data=st.data())
def test_reduce_scatter_of_anything(exercise, world, op, dtype, data):
    """03.3  ... for any operation, dtype and size, cut anywhere."""
    cut = data.draw(cuts(world))

    def program(comm, n):
        laws.reduce_scatter(comm, exercise.reduce_scatter, n, op, dtype, cut)

    world.run(program)


def test_all_gather(exercise):
    """03.4  all-gather puts every piece in its place; sends (N - 1) / N of the array."""
    hold_everywhere(laws.all_gather, exercise.all_gather)


@LARGER
@given(world=larger_worlds, dtype=dtypes, data=st.data())
def test_all_gather_of_anything(exercise, world, dtype, data):
    """03.4  ... for any dtype and size, cut anywhere."""
    cut = data.draw(cuts(world))
    world.run(lambda comm, n: laws.all_gather(comm, exercise.all_gather, n, dtype, cut))


def test_all_reduce(exercise):
    """03.5  the ring all-reduce is right, at 2 (N - 1) / N of the array, with equal bits."""
    check_all_reduce(laws.all_reduce, exercise.all_reduce)


@LARGER
@given(world=larger_worlds, op=ops, dtype=dtypes)
def test_all_reduce_of_anything(exercise, world, op, dtype):
    """03.5  ... for any operation, dtype and size."""
    world.run(lambda comm, n: laws.all_reduce(comm, exercise.all_reduce, n, op, dtype))


def test_halve_and_double(exercise):
    """03.6  halving and doubling is right for any number of ranks, in log2 N rounds each way."""
    check_all_reduce(halved, exercise.halving_all_reduce)


@LARGER
@given(world=larger_worlds, op=ops, dtype=dtypes)
def test_halve_and_double_of_anything(exercise, world, op, dtype):
    """03.6  ... for any operation, dtype and size."""
    world.run(lambda comm, n: halved(comm, exercise.halving_all_reduce, n, op, dtype))


@st.composite
def cuts(draw, world):
    """Draw offsets that cut the array of a world into pieces, some of them empty; or None."""
    if draw(st.booleans()):
        return None
    borders = st.lists(st.integers(0, world.n), min_size=world.ranks - 1, max_size=world.ranks - 1)
    return [0, *sorted(draw(borders)), world.n]
