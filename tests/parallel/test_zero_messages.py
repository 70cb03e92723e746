"""ZeRO's messages: as many as the formulas say, few at once, and behind the computation."""

from itertools import product

import numpy as np
import pytest

from minidist.comm import Link, run
from minidist.ops.half import named
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan import memory
from minidist.testing.mutants import mutate, rebind
from minidist.train.optimizer import SGD
from tests.parallel.stubs import Stub, steps, vector, with_bucket
from tests.parallel.test_zero import check_stages_agree
from tests.train.plain import Case

EXACT, MIXED, HALF = ("float64", None), ("bfloat16", None), ("bfloat16", "bfloat16")
STEPS, M = 2, 3


def sent(stage, ranks, types, kind=Zero, tied=False):
    """Bytes of gradients and of parameters that each rank has sent in some steps."""

    def program(comm):
        own = [vector(f"w{i}", n) for i, n in enumerate((12, 48, 24))]
        units = [Stub(comm, p) for p in own]
        if tied:
            units.append(Stub(comm, own[0]))
        grads = types[1] and named(types[1])
        sync = kind(units, SGD(), Mesh(comm), stage, dtype=named(types[0]), grad_dtype=grads)
        steps(comm, sync, STEPS, M)
        if stage in (1, 2):
            list(sync.gathered())  # what the next forward would gather
        return comm.traffic.by[GRADIENTS].bytes, comm.traffic.by[PARAMETERS].bytes

    return run(program, ranks=ranks)


def check_bytes(stage, ranks, types, kind=Zero, formula=memory.sent):
    """2, 2, M + 1 and 3M times (N - 1) / N of all 84 elements; 12 divides each bucket."""
    told = {0: (2, 0), 1: (1, 1), 2: (M, 1), 3: (M, 2 * M)}[stage]  # by hand
    size = (2 if types[1] else 8 if types[0] == "float64" else 4), (8 if types is EXACT else 2)
    each = 84 * (ranks - 1) // ranks * STEPS
    want = tuple(n * each * nbytes for n, nbytes in zip(told, size, strict=True))
    assert sent(stage, ranks, types, kind) == [want] * ranks
    planned = formula(stage, ranks, M)
    assert tuple(84 * STEPS * x * n for x, n in zip(planned, size, strict=True)) == want


@pytest.mark.parametrize(("stage", "ranks"), list(product(range(4), [1, 2, 3, 4])))
@pytest.mark.parametrize("types", [EXACT, MIXED, HALF], ids=lambda types: types[0])
def test_each_rank_sends_what_the_formula_says(stage, ranks, types):
    check_bytes(stage, ranks, types)


BYTES_MUTANTS = {
    "stage 1 gathers gradients": (1, with_bucket("if self.stage == 0:\n", "if self.stage < 2:\n")),
    "stage 3 keeps what it gathered": (
        3,
        with_bucket("if self.stage < 3 or self.held:", "if True:"),
    ),
    "nothing is gathered after an update": (
        1,
        with_bucket("self.stale = self.stage in (1, 2) and self.comm.size > 1", "pass"),
    ),
}


@pytest.mark.parametrize("name", BYTES_MUTANTS)
def test_other_bytes_are_seen(name):
    stage, kind = BYTES_MUTANTS[name]
    with pytest.raises(AssertionError):
        check_bytes(stage, 3, EXACT, kind)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2: (m, 1)", "2: (1, 1)"),
        ("3: (m, 2 * m)", "3: (m, m)"),
        ("Fraction(ranks - 1, ranks)", "Fraction(1)"),
    ],
)
def test_a_wrong_formula_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_formula(mutate(memory.sent, old, new))


def check_formula(formula):
    for stage in range(4):
        check_bytes(stage, 3, EXACT, formula=formula)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_tied_table_is_gathered_for_each_of_its_users(ranks):
    """At stage 3: 2M gathers more of its 12 elements, though its gradient is reduced once."""
    plain, tied = sent(3, ranks, EXACT), sent(3, ranks, EXACT, tied=True)
    more = 2 * M * STEPS * 12 * 8 * (ranks - 1) // ranks
    assert [(a, b + more) for a, b in plain] == tied


# --- few at once ------------------------------------------------------------------------------


def check_in_flight(kind=Zero):
    """On a slow network too: two lent gradients that travel and one that is filled.

    At stage 3 no more parameters than those of a unit and of the next one.
    """

    def program(comm, stage):
        units = [Stub(comm, vector(f"w{i}", 100), seconds=1e-6) for i in range(8)]
        sync = kind(units, SGD(), Mesh(comm), stage, dtype=np.float64)
        steps(comm, sync, 2, 2)
        assert sync.ledger.held["buffers"] == 0
        return sync.ledger.peak["buffers"]

    slow = Link(1.0, 1e3)
    assert max(run(program, 2, ranks=3, links=slow)) <= 3 * 800
    assert max(run(program, 3, ranks=3, links=slow)) <= 3 * 800 + 2 * 800
    assert run(program, 1, ranks=3, links=slow) == [0] * 3


def test_at_most_two_lent_gradients_travel_and_one_is_filled():
    check_in_flight()


IN_FLIGHT_MUTANTS = {
    "no limit": rebind(Zero, LENT=99),
    "a reduced gradient is not given back": with_bucket(
        'self.how.ledger.give("buffers", flat.nbytes)', "pass"
    ),
    "a gathered unit is not freed": with_bucket("if self.stage < 3 or self.held:", "if True:"),
    "all units are gathered at once": mutate(
        Zero, "self.fetch(ahead)", "[b.fetch() for b in self.buckets]"
    ),
}


@pytest.mark.parametrize("name", IN_FLIGHT_MUTANTS)
def test_more_in_flight_is_seen(name):
    with pytest.raises(AssertionError):
        check_in_flight(IN_FLIGHT_MUTANTS[name])


# --- overlap ---------------------------------------------------------------------------------


def second_step(comm, stage, kind, seconds):
    units = [Stub(comm, vector(f"w{i}", 1200), seconds=seconds) for i in range(8)]
    sync = kind(units, SGD(), Mesh(comm), stage, dtype=np.float64)
    steps(comm, sync, 1)
    comm.barrier()
    start = comm.time
    steps(comm, sync, 1)
    return comm.time - start


def hidden(stage, kind=Zero):
    """The share of a step's communication that costs no time: a ring takes half a backward."""
    wire = Link(0.0, 1200 * 8 * 0.75)
    busy = max(run(second_step, stage, kind, 1.0, ranks=4, links=wire))
    alone = max(run(second_step, stage, kind, 0.0, ranks=4, links=wire))
    return 1 - (busy - 24.0) / alone


class Sequential(Zero):
    """Right numbers, nothing hidden: every message is waited for at once."""

    def _launch(self, bucket, final):
        ring = super()._launch(bucket, final)
        ring.wait()
        return ring

    def fetch(self, unit):
        pass


@pytest.mark.parametrize("stage", range(4))
def test_messages_hide_behind_computation(stage):
    assert hidden(stage) > 0.6


@pytest.mark.parametrize("stage", range(4))
def test_sequential_code_hides_nothing(stage):
    check_stages_agree(Case(), 3, 2, (Sequential,) * 4)
    assert hidden(stage, Sequential) < 0.05


class Late(Zero):
    """Parameters are gathered when they are wanted, and not ahead."""

    def fetch(self, unit):
        pass


class AtUpdate(Zero):
    """Parameters are gathered at the end of a step, as the paper has it, and waited for."""

    def update(self, rate, step, factor=1.0):
        super().update(rate, step, factor)
        if self.stage < 3:
            list(self.gathered())


@pytest.mark.parametrize(
    ("stage", "kind"), [(1, Late), (2, Late), (3, Late), (1, AtUpdate), (2, AtUpdate)]
)
def test_parameters_that_are_not_fetched_ahead_are_seen(stage, kind):
    assert hidden(stage, kind) < hidden(stage) - 0.2
