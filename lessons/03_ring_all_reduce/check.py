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

from minidist.collectives import costs
from minidist.comm import Link
from minidist.learn.laws import (
    LARGER,
    LawBroken,
    World,
    compare,
    counted,
    hold_everywhere,
    larger_worlds,
    never_waits,
    run,
    run_all,
    seconds,
    worlds,
)
from minidist.testing import laws

ops = st.sampled_from(["sum", "max", "min"])
dtypes = st.sampled_from([np.float64, np.float32, np.int64, np.float16, ml_dtypes.bfloat16])

served = partial(laws.all_reduce, sends=laws.server_sends)
halved = partial(laws.all_reduce, sends=laws.halving_sends)
LINK = Link(0.5, 8.0)  # exact in binary, so that times can be compared with ==
BYTES = 840  # a multiple of 1, 2, ... 8, so that pieces are equal


def whole(rank, ranks):
    """The arguments of a call in place: one array of 2 elements a rank, and 1."""
    return (np.ones(2 * ranks + 1),)


def check_all_reduce(law, collective):
    """The law in small worlds, the same bits on all ranks, and a body that never waits."""
    hold_everywhere(law, collective)
    hold_everywhere(laws.same_bits, collective, most=1)
    never_waits(collective, whole)
    never_waits(collective, lambda rank, ranks: (*whole(rank, ranks), *whole(rank, ranks)))


def check_time(collective, cost, ranks=range(1, 9)):
    """The last rank is ready when the formula says, on links that nobody shares."""

    def program(comm, n):
        collective(comm, np.zeros(n, np.uint8))
        return comm.time

    law = (
        "what is sent and what is received travel at the same time, in one Exchange: "
        "{} one after the other, {:g} bytes."
    )
    for size in ranks:
        for synchronous in (True, False):
            last = max(run_all(World(size, BYTES, 0, synchronous), program, links=LINK))
            need = cost(size, BYTES)
            name = f"{counted(size, 'rank')}, {BYTES} bytes, latency 0.5 s, 8 bytes/s"
            told = law.format(counted(need.messages, "message"), need.nbytes)
            times = [need.seconds(LINK)] * size, [last] * size
            compare(told, name, *times, seconds, "need")


def check_other_roots(collective):
    """The server may be another rank than 0."""

    def program(comm, n, root):
        def at_root(comm, *args, **how):
            return collective(comm, *args, root=root, **how)

        def sends(comm, n):
            messages = comm.size - 1 if comm.rank == root else 1
            return messages, messages * n

        laws.all_reduce(comm, at_root, n, sends=sends)

    law = "the server is rank `root`: it hears from all others and sends to all others."
    for world in worlds((2, 3, 5), most=1):
        for root in range(1, world.ranks):
            try:
                run_all(world, program, root, law=law)
            except LawBroken as error:
                raise LawBroken(error.law, f"root {root}, {error.world}", error.table) from None


def test_server_all_reduce(exercise):
    """03.1  the server's all-reduce is right, at N - 1 arrays in and out of one rank."""
    check_all_reduce(served, exercise.server_all_reduce)
    check_other_roots(exercise.server_all_reduce)


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
    never_waits(exercise.broadcast, whole)


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
        compare(law, name, [float(rounds)] * ranks, last, seconds, "need")


def test_reduce_scatter(exercise):
    """03.3  reduce-scatter leaves piece r of the sum on rank r; sends (N - 1) / N of the array."""
    hold_everywhere(laws.reduce_scatter, exercise.reduce_scatter)
    never_waits(exercise.reduce_scatter, whole)
    check_time(exercise.reduce_scatter, costs.reduce_scatter)


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
    never_waits(exercise.all_gather, whole)
    check_time(exercise.all_gather, costs.all_gather)


@LARGER
@given(world=larger_worlds, dtype=dtypes, data=st.data())
def test_all_gather_of_anything(exercise, world, dtype, data):
    """03.4  ... for any dtype and size, cut anywhere."""
    cut = data.draw(cuts(world))
    world.run(lambda comm, n: laws.all_gather(comm, exercise.all_gather, n, dtype, cut))


def test_all_reduce(exercise):
    """03.5  the ring all-reduce is right, at 2 (N - 1) / N of the array, with equal bits."""
    check_all_reduce(laws.all_reduce, exercise.all_reduce)
    check_time(exercise.all_reduce, costs.ring_all_reduce)


@LARGER
@given(world=larger_worlds, op=ops, dtype=dtypes)
def test_all_reduce_of_anything(exercise, world, op, dtype):
    """03.5  ... for any operation, dtype and size."""
    world.run(lambda comm, n: laws.all_reduce(comm, exercise.all_reduce, n, op, dtype))


def test_halve_and_double(exercise):
    """03.6  halving and doubling is right for any number of ranks, in log2 N rounds each way."""
    check_all_reduce(halved, exercise.halving_all_reduce)
    check_time(exercise.halving_all_reduce, costs.halving_all_reduce, (1, 2, 4, 8))


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


def score(exercise):
    """What the busiest of 4 ranks sends and borrows for an all-reduce of 840 bytes."""

    def program(comm, collective):
        collective(comm, np.zeros(BYTES, np.uint8))
        return comm.traffic.messages, comm.traffic.bytes, comm.state.scratch.nbytes

    ranks = 4
    piece = BYTES // ranks
    ring = [max(x) for x in zip(*run(program, exercise.all_reduce, ranks=ranks), strict=True)]
    halving = [
        max(x) for x in zip(*run(program, exercise.halving_all_reduce, ranks=ranks), strict=True)
    ]
    return [
        ("ring, messages of a rank", ring[0], 2 * (ranks - 1)),
        ("ring, bytes of a rank", ring[1], 2 * (ranks - 1) * piece),
        ("ring, work memory in bytes", ring[2], 2 * piece),
        ("halving, messages of a rank", halving[0], 4),
        ("halving, bytes of a rank", halving[1], 2 * (ranks - 1) * piece),
        ("halving, work memory in bytes", halving[2], BYTES),
    ]
