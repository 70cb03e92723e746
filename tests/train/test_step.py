"""A training step on any number of ranks is the step of one process on the whole batch."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.arrays import to_host
from minidist.bounds import share
from minidist.comm import run
from minidist.errors import DivergedError, MinidistError
from minidist.nn import DecoderConfig, Parameter, build_decoder
from minidist.parallel.data import DataParallel, micro_batches
from minidist.parallel.mesh import Mesh
from minidist.parallel.watch import UNSEEN
from minidist.parallel.zero import Zero
from minidist.testing import fake_device
from minidist.testing.mutants import mutate, rebind
from minidist.train.corpus import Corpus, Text
from minidist.train.optimizer import SGD, AdamW
from minidist.train.step import Step, evaluate
from tests.train import plain
from tests.train.plain import Case, ToyCorpus

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def train(comm, case, step_kind=Step, sync_kind=Zero, stage=0, micro_batches=1):
    """The same as `plain.train`, by the code under test, on this rank."""
    corpus = ToyCorpus(case.length, case.ignored)
    units = case.units(corpus.labels)
    rule = SGD(0.1) if case.optimizer == "sgd" else AdamW(eps=plain.EPS, weight_decay=0.1)
    sync = sync_kind(units, rule, Mesh(comm), stage, dtype=np.float64)
    how = {"batch": case.batch, "learning_rate": lambda step: case.lr}
    step = step_kind(sync, corpus, clip=case.clip, micro_batches=micro_batches, **how)
    outcomes = [step(number) for number in range(case.steps)]
    grads = whole_gradients(comm, sync)
    weights = {p.name: p.data.copy() for b in sync.gathered() for p in b.layout.parameters}
    losses, norms = [o.loss for o in outcomes], [o.norm for o in outcomes]
    return losses, norms, grads, weights, corpus.seen


def whole_gradients(comm, sync):
    """The gradients, put together from the ranks' pieces."""
    mine = [(s.parameter.name, s.start, s.stop, g.copy()) for s, g in sync.gradients()]
    grads = {p.name: np.full(p.size, np.nan) for p in sync.parameters() if p.trainable}
    for name, start, stop, values in chain(*comm.gather_objects(mine)):
        grads[name][start:stop] = values
    return {p.name: grads[p.name].reshape(p.local) for p in sync.parameters() if p.trainable}


def check_equal_to_plain(case, ranks, *kinds, **world):
    """Losses, norms, gradients and parameters of every rank, after several steps."""
    losses, norms, grads, weights = plain.train(case)
    results = run(train, case, *kinds, ranks=ranks, **world)
    for rank, (loss, n, g, w, _) in enumerate(results):
        assert np.allclose(loss, losses, **CLOSE), f"rank {rank}: {loss}, should be {losses}"
        assert np.allclose(n, norms, **CLOSE), f"norm on rank {rank}: {n}, should be {norms}"
        assert w.keys() == weights.keys()
        for name, want in weights.items():
            assert np.allclose(w[name], want, **CLOSE), f"{name} on rank {rank}"
            assert w[name].tobytes() == results[0][3][name].tobytes(), f"{name} differs by rank"
        for name, want in grads.items():
            scale = min(1.0, case.clip / norms[-1]) if case.clip and norms[-1] else 1.0
            assert np.allclose(g[name], want * scale, **CLOSE), f"gradient of {name}, rank {rank}"


cases = st.builds(
    Case,
    batch=st.integers(1, 7),
    optimizer=st.sampled_from(["sgd", "adamw"]),
    clip=st.sampled_from([0.0, 0.3, 5.0]),
    tied=st.booleans(),
    bias=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3]),
    ignored=st.sampled_from([0.0, 0.3, 0.9]),
    frozen=st.sampled_from([(), ("norm", "blocks.0.mlp.up"), ("embed",)]),
    layers=st.integers(1, 2),
    length=st.integers(1, 4),
    seed=st.integers(0, 99),
)

WITNESSES = [
    (Case(optimizer="sgd", clip=0.3, ignored=0.9, batch=4), 3),
    (Case(optimizer="sgd", batch=2), 5),
    (Case(optimizer="sgd", clip=50.0, steps=2), 2),
    (Case(clip=0.3), 2),
]


@example(*WITNESSES[0], 0, 1, False, 0)
@example(*WITNESSES[1], 1, 3, True, 1)
@example(*WITNESSES[3], 2, 2, True, 2)
@example(*WITNESSES[3], 3, 3, True, 3)
@example(Case(ignored=1.0), 3, 0, 1, False, 0)
@given(
    cases,
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 1000),
)
def test_any_stage_on_any_number_of_ranks_trains_as_one_process_does(
    case, ranks, stage, micro_batches, synchronous, seed
):
    check_equal_to_plain(
        case, ranks, Step, Zero, stage, micro_batches, synchronous=synchronous, seed=seed
    )


MUTANTS = {
    "the divisor is the rank's own count": (
        Step,
        "total = self._valid(self._at(step, 0, self.batch))",
        "total = self._valid(self._at(step, *share(self.data, self.batch)))",
    ),
    "mean over ranks": (Step, "/ total if total", "/ total / self.comm.size if total"),
    "mean over micro-batches": (
        Step,
        "/ total if total",
        "/ total / self.micro_batches if total",
    ),
    "only the last micro-batch counts": (
        Step,
        "loss += self._forward_backward",
        "self.sync.begin(watch); loss += self._forward_backward",
    ),
    "an incomplete last micro-batch is dropped": (
        micro_batches,
        "bounds(stop - start, parts)",
        "[i * ((stop - start) // parts) for i in range(parts + 1)]",
    ),
    "an empty micro-batch is not run": (
        micro_batches,
        "in pairwise(bounds(stop - start, parts))]",
        "in pairwise(bounds(stop - start, parts)) if a < b]",
    ),
    "every rank takes the whole batch": (
        micro_batches,
        "share(comm, batch)",
        "0, batch",
    ),
    "every rank takes the first samples": (
        micro_batches,
        "share(comm, batch)",
        "0, batch // comm.size",
    ),
    "every step takes the same samples": (
        Step,
        "xp.arange(step * self.batch + start, step * self.batch + stop)",
        "xp.arange(start, stop)",
    ),
    "the norm of the rank's own piece": (Step, "sqrt(squares)", "sqrt(self.sync.squares())"),
    "clipping raises small gradients": (Step, "norm > self.clip", "norm"),
    "no clipping": (Step, "if self.clip and", "if not self.clip and"),
    "update before the rings are done": (Step, "self.sync.finish()", "pass"),
    "the step of the optimiser stands still": (Step, "number, factor", "1, factor"),
    "dropout by the place in the slice": (
        Step,
        "return At(step, True, samples,",
        "return At(step, True, samples - start - step * self.batch,",
    ),
}

DATA_MUTANTS = {
    "gradients are kept": ("b.begin()", "b.ring = None"),
    "the norm of all on all": ("sum_of_squares(b.sum)", "sum_of_squares(b.grad)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_step_is_seen(name):
    target, old, new = MUTANTS[name]
    broken = mutate(target, old, new, share=share)
    if target is micro_batches:
        broken = rebind(Step, micro_batches=broken)
    with pytest.raises((AssertionError, MinidistError, ValueError)):
        check_witnesses(broken)


@pytest.mark.parametrize("name", DATA_MUTANTS)
def test_a_wrong_sum_of_gradients_is_seen(name):
    broken = mutate(DataParallel, *DATA_MUTANTS[name])
    methods = {n: vars(broken)[n] for n in ("begin", "squares")}
    target = type(
        "Broken", (Zero,), {"begin": begin_by(methods["begin"]), **{"squares": methods["squares"]}}
    )
    with pytest.raises((AssertionError, MinidistError, ValueError)):
        check_witnesses(Step, target)


def begin_by(method):
    """`Zero.begin` over another `DataParallel.begin`."""

    def begin(self, watch=UNSEEN):
        method(self, watch)
        self._lent = []

    return begin


def check_witnesses(*kinds):
    for case, ranks in WITNESSES:
        check_equal_to_plain(case, ranks, *kinds)
        if len(kinds) == 1:
            check_equal_to_plain(case, ranks, *kinds, Zero, 2, 2)


def test_a_token_weighs_the_same_wherever_it_lands():
    """torchtitan#1842: rank 0 has three valid tokens of loss 1, rank 1 one of loss 9: 3, not 5."""

    class Losses:
        """A model of one unit whose losses are given, and one parameter that scales them."""

        def __init__(self, parameter):
            self.parameter = parameter

        def parameters(self):
            return [self.parameter]

        def forward(self, x, at):
            return (x * self.parameter.data).sum(), x

        def backward(self, x, scale, later=None):
            self.parameter.accumulate(np.array([x.sum() * scale]))

    class Table:
        length = 3
        losses = np.array([[1.0, 1.0, 1.0], [9.0, 0.0, 0.0]])

        def tokens(self, at):
            return self.losses[at.samples % 2]

        def labels(self, at):
            return np.where(self.losses[at.samples % 2] > 0, 0, -1)

    def program(comm):
        parameter = Parameter("scale", (1,), init="ones")
        unit = Losses(parameter)
        sync = Zero([unit], SGD(), Mesh(comm), dtype=np.float64)
        how = {"batch": 2, "learning_rate": lambda step: 0.0}
        outcome = Step(sync, Table(), **how)(0)
        return outcome.loss, outcome.tokens, parameter.grad.tolist()

    for ranks in (1, 2, 3):
        assert run(program, ranks=ranks) == [(3.0, 4, [3.0])] * ranks


def test_no_valid_token_at_all_is_loss_zero_and_gradient_zero():
    losses, norms, grads, _, _ = run(train, Case(ignored=1.0, optimizer="sgd"), ranks=3)[1]
    assert losses == norms == [0.0] * 3
    assert all(not g.any() for g in grads.values())


def test_every_trainable_parameter_moves_and_no_frozen_one():
    """OpenRLHF#1258: weights that stay bit-exactly at their first values, on some ranks."""
    case = Case(ignored=0.0, steps=1)
    before = plain.train(replace(case, steps=0))[3]
    for _, _, _, weights, _ in run(train, case, ranks=4):
        stayed = {name for name, w in weights.items() if np.array_equal(w, before[name])}
        assert stayed == set(case.frozen)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_ranks_share_out_the_same_samples(ranks):
    """The samples of steps 0..9, rank after rank, are 0, 1, 2, ... on any number of ranks."""
    seen = [r[-1] for r in run(train, Case(batch=3, steps=10), ranks=ranks)]
    flat = [
        s for step in range(10) for rank in seen for k, _, own in rank if k == step for s in own
    ]
    assert flat == list(range(30))


def test_a_wish_to_stop_reaches_all_ranks_in_the_same_step():
    def program(comm):
        corpus = ToyCorpus(4, 0.0)
        units = Case().units(corpus.labels)
        sync = Zero(units, SGD(), Mesh(comm), dtype=np.float64)
        step = Step(sync, corpus, batch=4, learning_rate=lambda k: 0.1)
        return [step(k, stop=(comm.rank, k) == (2, 1)).stop for k in range(3)]

    assert run(program, ranks=4) == [[False, True, False]] * 4


def test_divergence_stops_every_rank_before_the_update():
    def program(comm):
        corpus = ToyCorpus(4, 0.0)
        units = Case(optimizer="sgd").units(corpus.labels)
        sync = Zero(units, SGD(), Mesh(comm), dtype=np.float64)
        step = Step(sync, corpus, batch=4, learning_rate=lambda k: 0.1)
        if comm.rank == 1:
            next(iter(sync.parameters())).data[...] = np.inf
        with (
            np.errstate(all="ignore"),
            pytest.raises(DivergedError, match=r"step 5: loss nan.*--lr"),
        ):
            step(5)
        return "refused"

    assert run(program, ranks=3) == ["refused"] * 3


@pytest.mark.parametrize("stage", range(4))
def test_a_step_and_an_evaluation_run_on_a_device_that_refuses_host_functions(stage):
    text = Text("numbers", bytes(i * i % 251 for i in range(900)))

    def program(comm, xp):
        corpus = Corpus(text, 6, 1)
        config = DecoderConfig(1, 8, 2, 1, hidden=6, dropout=0.1)
        units = build_decoder(config, corpus.labels)
        sync = Zero(units, AdamW(), Mesh(comm), stage, dtype=np.float32, xp=xp)
        how = {"batch": 3, "learning_rate": lambda k: 0.01, "clip": 0.1, "micro_batches": 2}
        step = Step(sync, corpus, **how)
        losses = [step(k).loss for k in range(2)]
        losses.append(evaluate(sync.units, corpus, comm, xp, 4))
        return losses, [to_host(b.flat).tobytes() for b in sync.gathered()]

    assert run(program, fake_device.xp, ranks=2) == run(program, np, ranks=2)


def check_validation_after_a_step(ranks, batch, validate=evaluate):
    """With pieces of the parameters on each rank, all ranks must run as many forwards."""
    text = Text("numbers", bytes(i * i % 251 for i in range(250)))

    def program(comm, stage):
        corpus = Corpus(text, 6, 1)
        units = build_decoder(DecoderConfig(1, 8, 2, 1, hidden=6), corpus.labels)
        sync = Zero(units, SGD(), Mesh(comm), stage, dtype=np.float64)
        Step(sync, corpus, batch=3, learning_rate=lambda k: 0.1)(0)
        return validate(sync.units, corpus, comm, np, batch)

    want = run(program, 0, ranks=1)[0]
    for stage in range(4):
        assert np.allclose(run(program, stage, ranks=ranks), want, **CLOSE), stage


@pytest.mark.parametrize(("ranks", "batch"), [(3, 1), (5, 2), (2, 1), (3, 2)])
def test_validation_with_uneven_and_empty_shares_at_every_stage(ranks, batch):
    check_validation_after_a_step(ranks, batch)


@pytest.mark.parametrize(("ranks", "batch"), [(3, 1), (5, 2)])
def test_a_rank_that_stops_validating_early_is_seen(ranks, batch):
    early = mutate(evaluate, "start + rounds * batch", "stop")
    with pytest.raises(MinidistError):
        check_validation_after_a_step(ranks, batch, early)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 4])
def test_validation_does_not_depend_on_ranks_or_batches(ranks, batch):
    """pytorch#25162: no window twice, none left out, more ranks than windows included."""
    text = Text("numbers", bytes(i * i % 251 for i in range(250)))

    def program(comm, batch):
        corpus = Corpus(text, 6, 1)
        units = build_decoder(DecoderConfig(1, 8, 2, 1, hidden=6), corpus.labels)
        DataParallel(units, Mesh(comm), np.float64)
        return evaluate(units, corpus, comm, np, batch), corpus.validation_windows

    ((want, windows),) = run(program, 100, ranks=1)
    assert windows == 4
    assert np.allclose([loss for loss, _ in run(program, batch, ranks=ranks)], want, **CLOSE)
