"""ZeRO: the stages are the same training, send what the formulas say, and hide their messages."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.comm import Link, run
from minidist.errors import ConfigError, MemoryLimitError
from minidist.nn import At, Parameter
from minidist.ops.half import named
from minidist.parallel import zero as module
from minidist.parallel.bucket import GRADIENTS, PARAMETERS, Bucket
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train.optimizer import SGD, AdamW
from minidist.train.step import Step
from tests.train import plain
from tests.train.plain import Case, ToyCorpus


def trained(comm, case, stage, micro_batches, dtype=np.float64, kind=Zero, **how):
    """Losses, norms and weights after some steps, as bits; and what is left in the ledger."""
    corpus = ToyCorpus(case.length, case.ignored)
    rule = SGD(0.1) if case.optimizer == "sgd" else AdamW(eps=plain.EPS, weight_decay=0.1)
    units = case.units(corpus.labels)
    sync = kind(units, rule, Mesh(comm), stage, dtype=dtype, **how)
    step = Step(
        sync,
        corpus,
        batch=case.batch,
        learning_rate=lambda step: case.lr,
        clip=case.clip,
        micro_batches=micro_batches,
    )
    outcomes = [step(number) for number in range(case.steps)]
    weights = {p.name: p.data.tobytes() for b in sync.gathered() for p in b.layout.parameters}
    assert sync.ledger.held["buffers"] == sync.ledger.held["activations"] == 0
    return outcomes, weights


cases = st.builds(
    Case,
    batch=st.integers(1, 7),
    optimizer=st.sampled_from(["sgd", "adamw"]),
    clip=st.sampled_from([0.0, 0.3]),
    tied=st.booleans(),
    frozen=st.sampled_from([(), ("norm", "blocks.0.mlp.up"), ("embed",)]),
)


def check_stages_agree(case, ranks, micro_batches, kinds=(Zero, Zero, Zero, Zero)):
    """Stages 0 and 1 bit for bit, 2 and 3 bit for bit, and all four with one micro-batch."""
    found = [
        run(trained, case, stage, micro_batches, np.float64, kind, ranks=ranks)
        for stage, kind in enumerate(kinds)
    ]
    alike = [(0, 1), (2, 3), *([(1, 2)] if micro_batches == 1 else [])]
    for one, two in alike:
        same = found[one] == found[two]  # no diff of all the bits
        assert same, f"stages {one} and {two} differ"


@example(Case(), 3, 1)
@example(Case(), 2, 3)
@given(cases, st.integers(1, 5), st.integers(1, 3))
def test_stages_agree_bit_for_bit(case, ranks, micro_batches):
    check_stages_agree(case, ranks, micro_batches)


def with_bucket(old, new):
    """A Zero whose buckets have one changed line."""
    broken = mutate(Bucket, old, new)

    class Broken(Zero):
        def __init__(self, *args, **options):
            real = module.DataParallel.__init__.__globals__
            real["Bucket"] = broken
            try:
                super().__init__(*args, **options)
            finally:
                real["Bucket"] = Bucket

    return Broken


BUCKET_MUTANTS = {
    "parameters are not gathered after an update": (
        "self.stale = self.stage in (1, 2) and self.comm.size > 1",
        "self.stale = False",
    ),
    "a micro-batch replaces the sum": (
        "out = self.sum if self.stage >= 2 and not self.begun else None",
        "out = self.sum if self.stage >= 2 else None",
    ),
    "the gradient of the step before stays": (
        "self.ring, self.begun = None, False",
        "self.ring = None",
    ),
    "a lent gradient is lent again": (
        "p.grad = None",
        "pass",
    ),
    "the chunk is not in its place": ("flat[self.chunk] = self.stored", "pass"),
}


@pytest.mark.parametrize("name", BUCKET_MUTANTS)
def test_a_wrong_bucket_is_seen(name):
    broken = with_bucket(*BUCKET_MUTANTS[name])
    with pytest.raises((AssertionError, ValueError, RuntimeError, RuntimeWarning)):
        check_all_stages(broken)


def check_all_stages(kind):
    check_stages_agree(Case(layers=2), 3, 2, (Zero, kind, Zero, kind))
    check_stages_agree(Case(layers=2), 3, 1, (Zero, Zero, kind, Zero))


# --- odd models ------------------------------------------------------------------------------


class Stub:
    """A unit that owns parameters, adds gradients that tell rank and index, and may compute."""

    def __init__(self, comm, *own, seconds=0.0, polls=8):
        self.comm, self.own, self.seconds, self.polls = comm, own, seconds, polls

    def parameters(self):
        return list(self.own)

    def work(self, seconds, at):
        for _ in range(self.polls):
            self.comm.compute(seconds / self.polls)
            at.progress()

    def forward(self, x, at):
        assert all(p.data is not None and p.data.shape == p.local for p in self.own)
        self.work(self.seconds, at)
        return x, at

    def backward(self, ctx, dy, later=None):
        for p in self.own:
            scale = 1.0 + (self.comm.rank if "tp" in p.partial or not p.copies else 0)
            p.accumulate(scale * np.arange(1.0, p.size + 1).reshape(p.local))
        self.work(2 * self.seconds, ctx)
        return dy


def steps(comm, sync, count=2, micro_batches=1):
    """Take some steps of stub units."""
    at = At(0, True, np.arange(1), np.arange(1), sync.poll)
    for number in range(count):
        sync.begin()
        sync.fetch(0)
        for left in reversed(range(micro_batches)):
            contexts = [unit.forward(1.0, at)[1] for unit in sync.units]
            for index in reversed(range(len(sync.units))):
                sync.units[index].backward(contexts[index], 1.0)
                sync.ready(index, left == 0)
        sync.finish()
        sync.update(0.01, number + 1)


def vector(name, size, **how):
    return Parameter(name, (size,), init=1.0, **how)


def odd_model(comm):
    """Tied, frozen, empty, of one element, without dimensions."""
    tied, last = vector("tied", 7), Parameter("matrix", (3, 5), init=1.0)
    return [
        Stub(comm, tied, Parameter("scalar", (), init="ones")),
        Stub(comm, vector("empty", 0), Parameter("wide", (8, 0), init=1.0)),
        Stub(comm, vector("one", 1), vector("frozen", 4, trainable=False)),
        Stub(comm, last, tied),
    ]


@pytest.mark.parametrize(("stage", "ranks"), list(product(range(4), [1, 3, 5])))
def test_empty_tied_frozen_and_single_elements_train(stage, ranks):
    """DeepSpeed#8375 and llm.c: more ranks than elements, and never another stage than asked."""

    def program(comm, stage):
        sync = Zero(odd_model(comm), SGD(), Mesh(comm), stage, dtype=np.float64)
        first = {p.name: p.data.copy() for b in sync.gathered() for p in b.layout.parameters}
        assert first["wide"].shape == (8, 0)
        steps(comm, sync, micro_batches=2)
        assert all(b.stage == stage for b in sync.buckets)
        last = {p.name: p.data.copy() for b in sync.gathered() for p in b.layout.parameters}
        return {name: last[name] - first[name] for name in first}

    total = sum(range(1, ranks + 1)) * 2 * 2 * -0.01  # ranks, micro-batches, steps, rate
    for moved in run(program, stage, ranks=ranks):
        assert np.allclose(moved["tied"], 2 * total * np.arange(1, 8), rtol=1e-12)
        assert np.allclose(moved["matrix"].ravel(), total * np.arange(1, 16), rtol=1e-12)
        assert np.allclose(moved["one"], total, rtol=1e-12)
        assert np.allclose(moved["scalar"], total, rtol=1e-12)
        assert not moved["frozen"].any()


def mixed_mesh(comm, stage):
    """dp x tp: a split weight, one with a partial gradient along tp, and one that is a copy."""
    mesh = Mesh(comm, tp=2)
    half = (4 * mesh.index["tp"], 4 * mesh.index["tp"] + 4)
    split = Parameter("split", (8,), (half,), init=1.0)
    partial = vector("partial", 5, partial=("dp", "cp", "ep", "tp"))
    copy = vector("copy", 3, copies=("tp",))
    return Zero([Stub(comm, split, partial, copy)], SGD(), mesh, stage, dtype=np.float64)


@pytest.mark.parametrize("stage", range(4))
def test_split_partial_and_copied_parameters_count_once(stage):
    """The norm, and who writes what: each element of the whole on one rank of four."""

    def program(comm):
        sync = mixed_mesh(comm, stage)
        steps(comm, sync, count=1)
        mine = [(s, p.parameter.name, p.start, p.stop) for s, p, _ in sync.answers()]
        boxes = {name: comm.rank % 2 for _, name, _, _ in mine if name == "split"}
        return sync.squares(), mine, boxes

    found = run(program, ranks=4)
    places = [
        (name, boxes.get(name, 0), i)
        for _, mine, boxes in found
        for _, name, start, stop in mine
        for i in range(start, stop)
    ]
    assert len(places) == len(set(places)) == 8 + 5 + 3
    # partial: ranks 0..3 add 1 + 2 + 3 + 4; split: ranks with one tp; copy: 1 on each dp rank
    want = 100 * sum(i * i for i in range(1, 6)) + 4 * sum(i * i for i in range(1, 4))
    want += (4**2 + 6**2) * sum(i * i for i in range(1, 5))
    assert np.isclose(sum(squares for squares, _, _ in found), want, rtol=1e-12)


@pytest.mark.parametrize("stage", [1, 2])
def test_what_is_saved_before_the_gather_is_the_update(stage):
    """axolotl#2763: `kept` after an update, while the parameters of others are out of date."""

    def program(comm):
        sync = Zero(odd_model(comm), SGD(), Mesh(comm), stage, dtype=np.float64)
        steps(comm, sync)
        early = {(s.parameter.name, s.start): v.copy() for _, s, v in sync.answers()}
        sync.fetch(0)  # on its way while it is saved
        again = {(s.parameter.name, s.start): v.copy() for _, s, v in sync.answers()}
        whole = {p.name: p.data.copy() for b in sync.gathered() for p in b.layout.parameters}
        for (name, start), values in early.items():
            assert np.array_equal(values, again[name, start])
            assert np.array_equal(values, whole[name].ravel()[start : start + values.size])
        return sum(v.size for v in early.values())

    assert sum(run(program, ranks=3)) == 7 + 1 + 1 + 4 + 15


# --- messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "ranks"), list(product(range(4), [1, 2, 3, 4])))
@pytest.mark.parametrize("types", [("float64", None), ("bfloat16", "bfloat16"), ("bfloat16", None)])
def test_each_rank_sends_what_the_formula_says(stage, ranks, types):
    """2, 2, M + 1 and 3M times (N - 1) / N of all elements; 12 divides each bucket."""
    m, count = 3, 2

    def program(comm):
        units = [Stub(comm, vector(f"w{i}", n)) for i, n in enumerate((12, 48, 24))]
        grads = types[1] and named(types[1])
        sync = Zero(units, SGD(), Mesh(comm), stage, dtype=named(types[0]), grad_dtype=grads)
        steps(comm, sync, count, m)
        if stage in (1, 2):
            list(sync.gathered())  # what the next forward would gather
        return comm.traffic.by[GRADIENTS].bytes, comm.traffic.by[PARAMETERS].bytes

    each = 84 * (ranks - 1) // ranks * count
    gradients = (2, 1, m, m)[stage] * each * {None: 4, "bfloat16": 2}[types[1]]
    parameters = (0, 1, 1, 2 * m)[stage] * each * (2 if types[0] == "bfloat16" else 8)
    if types[0] == "float64":
        gradients *= 2
    assert run(program, ranks=ranks) == [(gradients, parameters)] * ranks


def test_at_most_two_lent_gradients_travel_and_one_is_filled():
    """On a slow network too; at stage 3 no more parameters than a unit and the next."""

    def program(comm, stage):
        units = [Stub(comm, vector(f"w{i}", 100), seconds=1e-6) for i in range(8)]
        sync = Zero(units, SGD(), Mesh(comm), stage, dtype=np.float64)
        steps(comm, sync, 2, 2)
        assert sync.ledger.held["buffers"] == 0
        return sync.ledger.peak["buffers"]

    slow = Link(1.0, 1e3)
    assert max(run(program, 2, ranks=3, links=slow)) <= 3 * 800
    assert max(run(program, 3, ranks=3, links=slow)) <= 3 * 800 + 2 * 800
    assert run(program, 1, ranks=3, links=slow) == [0] * 3


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


def test_parameters_that_are_not_fetched_ahead_are_seen():
    class Late(Zero):
        def fetch(self, unit):
            pass

    assert hidden(1, Late) < hidden(1) - 0.2
    assert hidden(3, Late) < hidden(3) - 0.2


# --- wrong use ---------------------------------------------------------------------------------


def test_another_stage_is_refused():
    with pytest.raises(ConfigError, match="rank 0: there is no ZeRO stage 4"):
        run(lambda comm: Zero([], SGD(), Mesh(comm), 4, dtype=np.float64), ranks=1)


def test_a_rank_above_its_limit_stops_with_the_table_of_what_it_held():
    def program(comm, limit):
        ledger = Ledger(comm.rank, limit)
        return Zero(odd_model(comm), AdamW(), Mesh(comm), 0, dtype=np.float64, ledger=ledger)

    with pytest.raises(MemoryLimitError, match=r"(?s)rank \d: .*moments.*parameters +\d+.*--zero"):
        run(program, 700, ranks=2)
    run(program, 2000, ranks=2)
