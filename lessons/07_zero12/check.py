"""The laws of lesson 07, in the order of its blanks; a test is about the blank in its name.

Gradients are coded numbers that tell their rank and their index, and the optimiser adds a gradient
to a weight that was 0: so what a rank holds says what was summed, and what was forgotten.
"""

from fractions import Fraction
from functools import partial
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from minidist.bounds import bounds
from minidist.learn.laws import (
    NOTHING,
    World,
    coded,
    compare,
    counted,
    describe,
    never_waits,
    plain,
    run_all,
    worlds,
)
from minidist.nn import Parameter
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.mesh import Mesh
from minidist.plan.memory import CUT_FROM, State
from minidist.testing.sharded import Holder, machine, reduce, trained, whole

STAGES = (0, 1, 2)
FEW = (1, 2, 3, 4)


def chunk(world, rank):
    """The borders of a rank's chunk."""
    cut = bounds(world.n, world.ranks)
    return cut[rank], cut[rank + 1]


def summed(world, start, stop, times=1):
    """Elements of the sum over all ranks, of so many gradients each."""
    total = sum(coded(r, world.n) for r in range(world.ranks))
    return times * total[start:stop]


# --- the machine, with some methods replaced: see minidist/testing/sharded.py ---------------------


def one_vector(comm, n, stage, **how):
    """A machine of one vector that starts at 0, with the coded gradient of this rank reduced."""
    zero = machine(Mesh(comm), stage, [Holder(comm, Parameter("w", (n,)))], **how)
    reduce(zero, lambda p: coded(comm.rank, n))
    return zero


def small(ranks=FEW):
    """Small worlds in one order of events."""
    return (world for world in worlds(ranks, most=5) if not world.synchronous)


# --- 07.1 and 07.2 --------------------------------------------------------------------------------

CUTS = (
    "masters and moments are cut from stage 1 on, gradients from stage 2, parameters from stage 3; "
    "what is not cut is kept whole, and chunks cover each element once."
)


def borders(part):
    """A slice for people; what is none by itself."""
    return f"[{part.start}:{part.stop}]" if isinstance(part, slice) else plain(part)


def test_kept_part(exercise):
    """07.1  each kind is whole or cut, as its stage says; no element is lost or kept twice."""
    cases = [*small(), World(4, 1001), World(7, 1001)]
    for world, stage, kind in product(cases, range(4), CUT_FROM):
        seats = [SimpleNamespace(rank=r, size=world.ranks) for r in range(world.ranks)]
        found = [exercise.kept_part(kind, stage, seat, world.n) for seat in seats]
        whole = stage < {"parameters": 3, "gradients": 2}.get(kind, 1)
        want = [slice(*((0, world.n) if whole else chunk(world, r))) for r in range(world.ranks)]
        compare(CUTS, f"{world.name}, {kind} at stage {stage}", want, found, borders, "keep")


BY_HAND = {
    State("float16", "float16"): {(0, 7): 16, (1, 3): 8, (2, 4): 5.5, (3, 4): 4, (2, 7): 4},
    State("float32", "float32"): {(0, 4): 16, (1, 4): 10, (2, 4): 7, (3, 4): 4},
    State("bfloat16", "float32"): {(0, 2): 18, (1, 2): 12, (2, 2): 10, (3, 2): 9},
    State("float16", "float16", "sgd"): {(0, 4): 8, (1, 4): 5, (2, 3): 4, (3, 8): 1},
}


def test_ideal(exercise):
    """07.2  bytes a parameter: cut kinds divided by the ranks, the others not."""
    law = "a kind that is cut costs its bytes divided by the ranks; one that is not, its bytes."
    for state, cases in BY_HAND.items():
        for (stage, ranks), want in cases.items():
            found = exercise.ideal(state, stage, ranks)
            name = f"{state.dtype}, {state.optimizer}, stage {stage}, {counted(ranks, 'rank')}"
            told = [number(found)] * ranks
            compare(law, name, [number(want)] * ranks, told, str, "keep")


def number(value):
    """Bytes for people, the same for 8, 8.0 and Fraction(8)."""
    return f"{float(value):.9g} bytes" if isinstance(value, int | float | Fraction) else str(value)


# --- 07.3 -----------------------------------------------------------------------------------------


PLACES = {"in place": 1, "one micro-batch": 1, "three micro-batches": 3}


def reduced(comm, n, reduce_chunk, place, micro_batches):
    """The chunk, kept in one of three ways, and the elements that were sent for one gradient."""
    cut = bounds(n, comm.size)
    kept = np.full(cut[comm.rank + 1] - cut[comm.rank], NOTHING, float)
    for number in range(micro_batches):
        flat = coded(comm.rank, n)
        before = comm.traffic.bytes
        if place == "in place":
            kept = reduce_chunk(comm, flat)
        elif number == 0:
            reduce_chunk(comm, flat, kept)
        else:
            reduce_chunk(comm, flat, None, kept)
    return kept, (comm.traffic.bytes - before) // 8


def test_reduce_chunk(exercise):
    """07.3  a rank gets the sum of its chunk over ranks and micro-batches, for N - 1 chunks."""
    law = "rank r ends with chunk r of the sum over all ranks and all micro-batches of the step."
    for world, (place, count) in product(worlds((1, 2, 3, 5)), PLACES.items()):
        found = run_all(world, reduced, exercise.reduce_chunk, place, count)
        cut = [chunk(world, r) for r in range(world.ranks)]
        want = [summed(world, a, b, count) for a, b in cut]
        name = f"{world.name}, {place}"
        compare(law, name, want, [kept for kept, _ in found], describe)
        sends = [world.n - (b - a) if world.ranks > 1 else 0 for a, b in cut]
        bytes_law = "a rank sends each chunk but its own, once."
        compare(bytes_law, name, sends, [sent for _, sent in found], elements, "send")
    never_waits(exercise.reduce_chunk, lambda rank, ranks: (np.ones(2 * ranks + 1),))


def elements(count):
    return counted(count, "element")


def test_reduce_chunk_of_half_types(exercise):
    """07.3  ... and half types are rounded once, however many ranks there are."""

    def program(comm, n):
        x = np.full(n, 1.0 if comm.rank == 0 else 2.0**-9).astype(ml_dtypes.bfloat16)
        return exercise.reduce_chunk(comm, x).astype(float)

    world = World(5, 5)
    law = "1 + 4 * 2**-9 is 1.0078125; rounded to bfloat16 after each addition it stays 1."
    found = run_all(world, program)
    compare(law, f"{world.name}, bfloat16", [np.full(1, 1.0078125)] * 5, found, plain)


# --- 07.4 -----------------------------------------------------------------------------------------

ONCE = (
    "the squared norm is the sum of the ranks' shares, so each element counts on one rank: the one "
    "that has its sum. Elsewhere there is a sum that is not complete, or a copy."
)


def shares(comm, n, stage, squares, tp):
    """Each rank's share, with tp ranks that hold copies of every chunk."""
    mesh = Mesh(comm, tp=tp)
    p = Parameter("w", (n,), copies=("tp",) if tp > 1 else ())
    zero = machine(mesh, stage, [Holder(comm, p)], zero={"squares": squares})
    reduce(zero, lambda p: np.arange(1.0, n + 1) * 10 ** mesh.index["dp"])
    return zero.squares()


def test_squares(exercise):
    """07.4  each element counts once in the norm, at every stage, beside copies too."""
    for world, stage, tp in product(small((1, 2, 3, 4, 6)), (1, 2, 0), (1, 2)):
        if world.ranks % tp == 0:
            dp = world.ranks // tp
            total = np.arange(1.0, world.n + 1) * int("1" * dp)
            cut = bounds(world.n, dp)
            want = [
                float((total[cut[r // tp] : cut[r // tp + 1]] ** 2).sum()) if r % tp == 0 else 0.0
                for r in range(world.ranks)
            ]
            found = run_all(world, shares, stage, exercise.squares, tp)
            copies = f", {tp} copies of each chunk" if tp > 1 else ""
            name = f"{world.name}, stage {stage}{copies}, gradients 1 2 .., 10 20 .., 100 200 .."
            compare(ONCE, name, want, found, str, "count")


# --- 07.5 and 07.6 --------------------------------------------------------------------------------


def updated(comm, n, stage, update):
    """What a rank keeps after one update with twice the gradient."""
    zero = one_vector(comm, n, stage, zero={"update": update})
    zero.update(1.0, 1, 2.0)
    return zero.buckets[0].weights.copy()


def test_update(exercise):
    """07.5  a rank updates its own part with its own part of the gradient, and nothing else."""
    law = "at stage 0 each rank updates everything, from stage 1 on only its chunk."
    for world, stage in product(small(), STAGES):
        found = run_all(world, updated, stage, exercise.update)
        cut = [(0, world.n) if stage == 0 else chunk(world, r) for r in range(world.ranks)]
        want = [summed(world, a, b, 2) for a, b in cut]
        compare(law, f"{world.name}, stage {stage}, factor 2", want, found, describe)


SAME = "all stages are the same training: what is kept differs, and not one bit of the result."


def check_same(**yours):
    """Every stage with these methods is stage 0 of the package, bit for bit."""
    for ranks, n, dtype in product(FEW, (1, 3), (np.float32, ml_dtypes.bfloat16)):
        world = World(ranks, n)
        want = run_all(world, trained, 0, dtype)
        for stage in STAGES:
            found = run_all(world, partial(trained, **yours), stage, dtype)
            name = f"{world.name}, {np.dtype(dtype).name}, stage {stage}, after 3 steps"
            compare(SAME, name, want, found, plain)


def test_update_equals_data_parallel(exercise):
    """07.5  ... so stages 1 and 2 equal data parallelism, bit for bit, masters included."""
    check_same(zero={"update": exercise.update})


def gathered(comm, n, stage, refresh):
    """The parameters that layers read after an update, and elements sent for both kinds."""
    zero = one_vector(comm, n, stage, bucket={"refresh": refresh})
    zero.update(1.0, 1)
    (flat,) = whole(zero)
    return flat, tuple(comm.traffic.by[kind].bytes // 8 for kind in (GRADIENTS, PARAMETERS))


def test_refresh(exercise):
    """07.6  after an update every rank reads every chunk as its owner has left it."""
    law = "before a layer reads parameters, what other ranks have updated has to come from them."
    for world, stage in product(small(), STAGES):
        found = run_all(world, gathered, stage, exercise.refresh)
        want = [summed(world, 0, world.n)] * world.ranks
        name = f"{world.name}, stage {stage}, one update"
        compare(law, name, want, [flat for flat, _ in found], describe)
        after_each_other(world, stage, [sent for _, sent in found], name)


def after_each_other(world, stage, sent, name):
    """Bytes: a reduce-scatter of gradients, and then one gather, of one kind or the other."""
    law = (
        "a step sends 2 Psi (N - 1) / N at stages 0, 1 and 2: the sum of gradients is scattered, "
        "and then gradients (stage 0) or parameters (stages 1 and 2) are gathered, once."
    )
    want = []
    for r in range(world.ranks):
        scatter = world.n - chunk(world, r)[1] + chunk(world, r)[0]
        behind = chunk(world, (r + 1) % world.ranks)  # the one that the ring need not send on
        gather = world.n - behind[1] + behind[0]
        want.append((scatter + gather, 0) if stage == 0 else (scatter, gather))
    if world.ranks == 1:
        want = [(0, 0)]

    def words(pair):
        return f"{elements(pair[0])} of gradients and {pair[1]} of parameters"

    compare(law, name, want, sent, words, "send")


def test_refresh_equals_data_parallel(exercise):
    """07.6  ... masters are rounded into parameters, and everything of yours works together."""
    check_same(zero={"update": exercise.update}, bucket={"refresh": exercise.refresh})


SYMBOLIC = [test_kept_part]
"""Who owns what, before any number is computed."""
