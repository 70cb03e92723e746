"""ZeRO on odd models: tied, frozen, unused, empty, split, partial and copied parameters."""

from itertools import product

import numpy as np
import pytest

from minidist.comm import run
from minidist.errors import ConfigError, MemoryLimitError
from minidist.nn import Parameter
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train.optimizer import SGD, AdamW
from tests.parallel.stubs import Stub, odd_model, steps, vector, weights, with_bucket

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def check_odd_models(kind, stage, ranks, micro_batches=2):
    """DeepSpeed#8375 and llm.c: more ranks than elements, and never another stage than asked."""

    def program(comm):
        sync = kind(odd_model(comm), SGD(), Mesh(comm), stage, dtype=np.float64)
        first = weights(sync)
        assert first["wide"].shape == (8, 0)
        steps(comm, sync, micro_batches=micro_batches)
        assert all(b.stage == stage for b in sync.buckets)
        last = weights(sync)
        return {name: last[name] - first[name] for name in first}

    total = sum(range(1, ranks + 1)) * micro_batches * 2 * -0.01  # of 2 steps at rate 0.01
    for moved in run(program, ranks=ranks):
        assert np.allclose(moved["tied"], 2 * total * np.arange(1, 8), **EXACT)
        assert np.allclose(moved["matrix"].ravel(), total * np.arange(1, 16), **EXACT)
        assert np.allclose([moved["one"][0], moved["scalar"]], total, **EXACT)
        assert not moved["frozen"].any()
        assert not moved["unused"].any()


@pytest.mark.parametrize(("stage", "ranks"), list(product(range(4), [1, 3, 5])))
def test_empty_tied_frozen_unused_and_single_elements_train(stage, ranks):
    check_odd_models(Zero, stage, ranks)


def check_decay(kind, stage, micro_batches):
    """AdamW on constant gradients, by hand: the step is lr g / (|g| + eps), the same each time."""

    def program(comm):
        rule = AdamW(weight_decay=0.1)
        sync = kind(odd_model(comm), rule, Mesh(comm), stage, dtype=np.float64)
        first = weights(sync)
        steps(comm, sync, 3, micro_batches)
        return first, weights(sync)

    for first, last in run(program, ranks=3):
        g = 2 * (1 + 2 + 3) * micro_batches * np.arange(1.0, 8)
        assert np.allclose(last["tied"], first["tied"] - 3 * 0.01 * g / (g + 1e-8), **EXACT)
        assert np.allclose(last["unused"], (1 - 0.01 * 0.1) ** 3, **EXACT)
        assert np.array_equal(last["frozen"], np.ones((2, 2)))


@pytest.mark.parametrize(("stage", "micro_batches"), list(product(range(4), [1, 3])))
def test_decay_acts_on_what_no_sample_reaches_and_not_on_what_is_frozen(stage, micro_batches):
    check_decay(Zero, stage, micro_batches)


DECAY_MUTANTS = {
    "a bucket that nobody added to is no bucket": (
        "self.lend()  # no user added to it, and zero is a gradient like any other",
        "return self.sum",
    ),
    "frozen parameters are updated": ("self.trainable = first.trainable", "self.trainable = True"),
    "a gradient is lent for one micro-batch only": (
        "flat, self.grad = self.grad, None",
        "flat = self.grad",
    ),
}


@pytest.mark.parametrize("name", DECAY_MUTANTS)
def test_a_bucket_that_is_wrong_on_odd_models_is_seen(name):
    kind = with_bucket(*DECAY_MUTANTS[name])
    with pytest.raises((AssertionError, ValueError)):
        check_decay(kind, 2, 3)


# --- with a tensor-parallel axis --------------------------------------------------------------


def mixed_model(comm, mesh):
    """A split weight, one with a partial gradient along tp, and one that is a copy."""
    tp = mesh.size["tp"]
    mine = (4 * mesh.index["tp"], 4 * mesh.index["tp"] + 4)
    split = Parameter("split", (4 * tp,), (mine,), init=1.0)
    partial = vector("partial", 5, partial=("dp", "cp", "ep", "tp"))
    return [Stub(comm, split), Stub(comm, partial, vector("copy", 3, copies=("tp",)))]


def check_mixed(kind, stage, dp, tp):
    """The norm, what is answered for with a gather on its way, and copies that stay copies."""

    def program(comm):
        mesh = Mesh(comm, tp=tp)
        sync = kind(mixed_model(comm, mesh), SGD(), mesh, stage, dtype=np.float64)
        first = weights(sync)
        steps(comm, sync, 1, factor=0.5)  # as if clipped to half
        sync.fetch(1)
        t = mesh.index["tp"]
        mine = [(s.parameter.name, s.start, v.copy()) for _, s, v in sync.answers()]
        return t, sync.squares(), mine, first, weights(sync)

    found = run(program, ranks=dp * tp)
    # a gradient on rank r is (r + 1) (1, 2, ...), of a copy (1, 2, ...); each is summed over dp
    of = [sum(1 + d * tp + t for d in range(dp)) for t in range(tp)]  # of a tp rank's split weight
    squares = [sum(i * i for i in range(1, n + 1)) for n in range(6)]
    norm = sum(of) ** 2 * squares[5] + sum(x * x for x in of) * squares[4] + dp**2 * squares[3]
    clipped = sum(squares for _, squares, *_ in found)  # the update scales gradients in place
    assert np.isclose(clipped, 0.5**2 * norm, rtol=1e-12)
    places = [
        (name, t if name == "split" else 0, i)
        for t, _, mine, _, _ in found
        for name, start, values in mine
        for i in range(start, start + len(values))
    ]
    assert len(places) == len(set(places)) == 4 * tp + 5 + 3, "each element on one rank"
    for t, _, mine, first, last in found:
        for name, factor in (("split", of[t]), ("partial", sum(of)), ("copy", dp)):
            step = 0.5 * 0.01 * factor * np.arange(1.0, first[name].size + 1)
            assert np.allclose(last[name], first[name] - step, **EXACT), name
        for name, start, values in mine:
            assert np.array_equal(values, last[name][start : start + len(values)]), name
    assert len({last["copy"].tobytes() for *_, last in found}) == 1


@pytest.mark.parametrize(("stage", "dp", "tp"), list(product(range(4), [1, 2, 3], [1, 2])))
def test_split_partial_and_copied_parameters_count_once(stage, dp, tp):
    check_mixed(Zero, stage, dp, tp)


MIXED_MUTANTS = {
    "copies count on every rank": with_bucket(
        "self.counted = all(mesh.index[a] == 0 for a in (*others, *first.copies))",
        "self.counted = True",
    ),
    "nothing is summed along tp": with_bucket(
        "yield from ring.all_reduce.steps(axis, self.sum)", "yield from ()"
    ),
    "everybody answers for copies": mutate(
        Zero, "counted = [b for b in self.buckets if b.counted]", "counted = self.buckets"
    ),
    "a rank answers for all that it keeps": mutate(
        Zero, "b.layout.shards(b.chunk)}", "b.layout.shards(b.own)}"
    ),
    "clipping is forgotten": mutate(Zero, "b.gradient[place], factor,", "b.gradient[place], 1.0,"),
}


@pytest.mark.parametrize("name", MIXED_MUTANTS)
def test_wrong_sums_along_tp_are_seen(name):
    with pytest.raises(AssertionError):
        check_mixed_stages(MIXED_MUTANTS[name])


def check_mixed_stages(kind):
    for stage in (0, 1, 3):
        check_mixed(kind, stage, 2, 2)


# --- what is saved ----------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_what_is_saved_before_the_gather_is_the_update(stage):
    """axolotl#2763: `kept` after an update, while the parameters of others are out of date."""

    def program(comm):
        sync = Zero(odd_model(comm), SGD(), Mesh(comm), stage, dtype=np.float64)
        steps(comm, sync)
        early = {(s.parameter.name, s.start): v.copy() for _, s, v in sync.answers()}
        sync.fetch(0)  # on its way while it is saved
        again = {(s.parameter.name, s.start): v.copy() for _, s, v in sync.answers()}
        whole = weights(sync)
        for (name, start), values in early.items():
            assert np.array_equal(values, again[name, start])
            assert np.array_equal(values, whole[name].ravel()[start : start + values.size])
        return sum(v.size for v in early.values())

    assert sum(run(program, ranks=3)) == 7 + 1 + 1 + 4 + 15 + 6


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
