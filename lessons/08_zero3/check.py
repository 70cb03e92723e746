"""The laws of lesson 08, in the order of its blanks; a test is about the blank in its name.

The machine has one method of yours at a time, and in the end all of them. Chunks tell the rank they
come from, and fresh memory is filled with `nothing`: see minidist/testing/sharded.py.
"""

from functools import partial
from itertools import pairwise, product

import ml_dtypes
import numpy as np

from minidist.bounds import bounds
from minidist.comm import Link
from minidist.learn.laws import (
    LawBroken,
    World,
    coded,
    compare,
    counted,
    describe,
    plain,
    run_all,
    seconds,
    worlds,
)
from minidist.nn import Parameter
from minidist.parallel import flat
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.mesh import Mesh
from minidist.testing import sharded
from minidist.testing.mutants import rebind
from minidist.testing.sharded import Holder, machine

FEW = (1, 2, 3, 4)
HALF = ml_dtypes.bfloat16
SLOW = Link(1.0, 8.0)  # a second for each message and one for each element


def small(ranks=FEW, most=5):
    """Small worlds in one order of events."""
    return (world for world in worlds(ranks, most=most) if not world.synchronous)


# --- 08.1 -----------------------------------------------------------------------------------------


MODELS = [  # the names of each unit's parameters
    [["a"], ["b"]],
    [["a", "b"], ["c"]],
    [["table"], ["g"], ["table", "bias"]],
    [["q", "q", "k"], ["k"], [], ["q"]],
]


def made(model):
    """The units of a model, and its parameters by name."""
    named = {name: Parameter(name, (3,)) for names in model for name in names}
    return [Holder(None, *(named[name] for name in names)) for names in model], named


def agree(law, model, want, found):
    """Two dictionaries of names are the same, in the same order."""
    if list(want.items()) != list(found.items()):
        units = "  ".join(f"{i}: {', '.join(names) or '-'}" for i, names in enumerate(model))
        rows = (f"{label:10}{said}" for label, said in (("should be", want), ("is", found)))
        raise LawBroken(law, f"units  {units}", "\n".join(rows))


def test_users_of(exercise):
    """08.1  each parameter is there once, with the units that use it."""
    law = "each parameter is there once, in the order of the model, with all units that use it."
    for model in MODELS:
        units, named = made(model)
        want = {n: [i for i, names in enumerate(model) if n in names] for n in named}
        users = exercise.users_of(units)
        agree(law, model, want, {getattr(p, "name", type(p)): us for p, us in users.items()})


def test_users_of_gives_each_parameter_one_bucket(exercise):
    """08.1  ... so each lies in one bucket, and the buckets are as long as the model."""
    law = "each parameter lies in exactly one bucket: it has one owner for each element."
    grouped = rebind(flat.group, users_of=exercise.users_of)
    for model in MODELS:
        units, named = made(model)
        places = sorted(p.name for g in grouped(units) for p in g.parameters)
        want = dict.fromkeys(sorted(named), "in 1 bucket")
        agree(law, model, want, {n: f"in {counted(places.count(n), 'bucket')}" for n in places})


# --- 08.2 to 08.4: one bucket ---------------------------------------------------------------------


def one_bucket(comm, n, stage=3, **yours):
    """A bucket of one vector, whose chunks tell their owner."""
    units = [Holder(comm, Parameter("w", (n,)))]
    (b,) = machine(Mesh(comm), stage, units, bucket={"_room": sharded.room, **yours}).buckets
    sharded.tell_owners(b)
    return b


def all_owners(world, times=1):
    """What every rank reads when the buffer is whole."""
    return [sharded.owners(world.ranks, world.n, times)] * world.ranks


def fetched(comm, n, stage, fetch):
    """The buffer after three fetches and a hold, elements sent, and seconds waited in fetch."""
    b = one_bucket(comm, n, stage, fetch=fetch)
    start = comm.time
    for _ in range(3):
        b.fetch()
    waited = comm.time - start
    b.hold()
    b.fetch()
    sharded.drain(comm)
    return b.flat.copy(), comm.traffic.by[PARAMETERS].bytes // 8, waited


def test_fetch(exercise):
    """08.2  a buffer that is not here or stale is gathered once, uneven and empty chunks too."""
    law = "what is not here, or out of date, is gathered from its owners before it is used."
    start = "fetch only starts: the messages travel while something else is computed."
    once = "what is here, or on its way, is not gathered again: each fetch after the first is free."
    for stage, world in product((3, 1), small((*FEW, 5))):
        found = run_all(world, fetched, stage, exercise.fetch, links=lambda a, b: SLOW)
        name = f"{world.name}, stage {stage}, fetch three times"
        flats, sent, waited = zip(*found, strict=True)
        compare(law, name, all_owners(world), flats, describe)
        compare(once, name, sharded.gather_sends(world.ranks, world.n), sent, elements, "send")
        compare(start, name, [0.0] * world.ranks, waited, seconds, "wait")


def elements(count):
    return counted(count, "element")


def held(comm, n, stage, hold):
    """What layers read: after hold; with a second holder gone; after an update and hold."""
    b = one_bucket(comm, n, stage, hold=hold)
    b.fetch()
    b.hold()
    first = sharded.seen(b)
    b.hold()
    b.release()
    second = sharded.seen(b)
    b.release()
    sharded.drain(comm)
    sharded.tell_owners(b, 2)
    b.hold()
    third = sharded.seen(b)
    sharded.drain(comm)
    return first, second, third, comm.traffic.by[PARAMETERS].bytes // 8


def test_hold(exercise):
    """08.3  after hold the parameters are whole, for every holder, and after every update."""
    told = {
        "after fetch and hold": "hold waits for what has not arrived: then parameters are whole.",
        "held twice, released once": "parameters stay whole until the last holder has released.",
        "after an update, held again": "an update changes chunks: a hold after it reads new ones.",
    }
    for stage, world in product((3, 1), small()):
        found = run_all(world, held, stage, exercise.hold, links=lambda a, b: SLOW)
        for i, (case, law) in enumerate(told.items()):
            want = all_owners(world, 2 if i == 2 else 1)
            name = f"{world.name}, stage {stage}, {case}"
            compare(law, name, want, [one[i] for one in found], describe)
        twice = [2 * sent for sent in sharded.gather_sends(world.ranks, world.n)]
        law, name = "one gather after each update.", f"{world.name}, stage {stage}, in all"
        compare(law, name, twice, [one[3] for one in found], elements, "send")


def released(comm, n, stage, release):
    """Bytes that are booked and what a layer reads: while held twice, once, and no more."""
    b = one_bucket(comm, n, stage, release=release)
    found = []
    b.hold()
    b.hold()
    for _ in range(2):
        if b.flat is not None:
            b.release()
        there = "no buffer" if b.flat is None else "a buffer"
        read = "parameters" if sharded.seen(b) is not None else "no parameters"
        found.append(f"{there}, {read}, {b.how.ledger.held['buffers'] // 8} elements booked")
    return found


def test_release(exercise):
    """08.4  the last holder frees the buffer, in memory and in the books; at stage 3 only."""
    law = (
        "a gathered buffer is there until its last holder has released, and then nothing of it is: "
        "no reference, no bytes in the ledger. Below stage 3, and on one rank, it is what stays."
    )
    for stage in (3, 2):
        for world in small(most=3):
            found = run_all(world, released, stage, exercise.release)
            booked = world.n if stage == 3 and world.ranks > 1 else 0
            during = f"a buffer, parameters, {booked} elements booked"
            after = "no buffer, no parameters, 0 elements booked" if stage == 3 else during
            for i, (case, want) in enumerate([("once of twice", during), ("twice", after)]):
                name = f"{world.name}, stage {stage}, held twice, released {case}"
                compare(law, name, [want] * world.ranks, [one[i] for one in found], str, "keep")


# --- 08.5 -----------------------------------------------------------------------------------------

UNITS = 5


def through(comm, n, using, order):
    """Use all units in an order: what layers saw, most elements booked, the time, what is left."""
    units = [Holder(comm, Parameter(f"w{i}", (n,))) for i in range(UNITS)]
    made = machine(Mesh(comm), 3, units, zero={"using": using}, bucket={"_room": sharded.room})
    for b in made.buckets:
        sharded.tell_owners(b)
    saw = []
    for here, ahead in pairwise([*order, -1]):
        with made.using(here, ahead):
            saw.append(sharded.seen(made.buckets[here]))
            comm.compute(100.0)
    time, ledger = comm.time, made.ledger
    sharded.drain(comm)
    return saw, ledger.peak["buffers"] // 8, time, ledger.held["buffers"] // 8


def test_using(exercise):
    """08.5  a unit has its parameters, two units are gathered at most, and messages hide."""
    whole_law = "while a unit runs its parameters are whole, all of them."
    peak_law = "what is gathered at once is the unit that runs and the next one, and no more."
    left_law = "after the last unit nothing is gathered any more."
    for world in small(most=4):
        for order in (range(UNITS), range(UNITS)[::-1]):
            name = f"{world.name}, {UNITS} units, {'back' if order[0] else 'for'}ward"
            found = run_all(world, through, exercise.using, list(order))
            for unit, saw in enumerate(zip(*(one[0] for one in found), strict=True)):
                place = f"{name}, number {unit} of the order"
                compare(whole_law, place, all_owners(world), saw, describe)
            most = [2 * world.n if world.ranks > 1 else 0] * world.ranks
            compare(peak_law, name, most, [one[1] for one in found], elements, "gather")
            compare(left_law, name, [0] * world.ranks, [one[3] for one in found], elements, "keep")
            check_hidden(name, world, exercise.using, list(order))


def check_hidden(name, world, using, order):
    """On two ranks a gather is one exchange, which a unit that computes hides, to the last bit."""
    if world.ranks == 2:
        law = "while a unit computes the next one is gathered: only the first gather takes time."
        found = run_all(world, through, using, order, links=lambda a, b: SLOW)
        longest = -(-world.n // 2)
        want = [UNITS * 100.0 + 1 + n for n in (world.n - longest, longest)]
        name = f"{name}, 100 s each, slow links"
        compare(law, name, want, [one[2] for one in found], seconds, "take")


# --- 08.6 -----------------------------------------------------------------------------------------


def reduced(comm, n, count, reduce_bucket):
    """The chunk of the sum after each of two steps; elements sent and booked in the end."""
    b = {"_reduce": reduce_bucket}
    made = machine(Mesh(comm), 3, [Holder(comm, Parameter("w", (n,)))], bucket=b)
    sums = []
    for _ in range(2):
        sharded.reduce(made, lambda p: coded(comm.rank, n), count)
        sums.append(made.buckets[0].sum.copy())
    return sums, comm.traffic.by[GRADIENTS].bytes // 8, made.ledger.held["buffers"] // 8


def test_reduce(exercise):
    """08.6  the owner has the sum of all ranks and micro-batches, and the gradient is freed."""
    law = "after a step rank r has chunk r of the sum over all ranks and all its micro-batches."
    freed = "a gradient that has been reduced is freed: lent memory and gathered units are booked."
    once = "each micro-batch sends all chunks of the gradient but the own one."
    for world, count in product(small(most=4), (1, 3)):
        found = run_all(world, reduced, count, exercise.reduce)
        cut = list(pairwise(bounds(world.n, world.ranks)))
        total = count * sum(coded(r, world.n) for r in range(world.ranks))
        name = f"{world.name}, micro-batches: {count}"
        for step in range(2):
            sums = [one[0][step] for one in found]
            compare(law, f"{name}, step {step}", [total[a:b] for a, b in cut], sums, describe)
        sends = [2 * count * (world.n - (b - a)) for a, b in cut]
        compare(once, f"{name}, 2 steps", sends, [one[1] for one in found], elements, "send")
        compare(freed, name, [0] * world.ranks, [one[2] for one in found], elements, "keep")


def test_reduce_equals_data_parallel(exercise):
    """08.6  ... and with everything of yours stage 3 is data parallelism, bit for bit."""
    law = "stage 3 is the same training: where parameters are kept changes no bit of them."
    bucket = {name: getattr(exercise, name) for name in ("fetch", "hold", "release")}
    bucket["_reduce"] = exercise.reduce
    yours = {"bucket": bucket, "zero": {"using": exercise.using}}
    for ranks, (dtype, count) in product(FEW, ((np.float32, 1), (np.float32, 2), (HALF, 1))):
        world = World(ranks, 3)
        want = run_all(world, sharded.trained, 0, dtype, count)
        found = run_all(world, partial(sharded.trained, **yours), 3, dtype, count)
        name = f"{world.name}, {np.dtype(dtype).name}, micro-batches: {count}, 3 steps"
        compare(law, name, want, found, plain)


SYMBOLIC = [test_users_of, test_users_of_gives_each_parameter_one_bucket]
"""Who owns what, before any number is computed."""
