"""Masters, types by name, and the loss scale, alone and in a training step on several ranks."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.errors import CheckpointError, ConfigError, DivergedError
from minidist.nn import Chain, Layer, Parameter
from minidist.ops.half import named
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train import precision
from minidist.train.optimizer import SGD, AdamW
from minidist.train.precision import LossScale, Precision, stalled
from minidist.train.step import Step
from tests.train.plain import Case, ToyCorpus

F16, BF16 = named("float16"), named("bfloat16")


def check_stalled(stalled):
    """1 + 1000 x 0.001 in bfloat16 stays 1; a float32 master makes it 2."""
    assert stalled(BF16) == (1.0, 2.0)


def test_a_thousand_small_updates_of_a_bfloat16():
    check_stalled(stalled)
    assert stalled(F16)[0] < 1.98, "float16 moves, by steps of another size"
    assert abs(stalled(np.float32)[0] - 2) < 1e-4


@pytest.mark.parametrize(
    ("old", "new"),
    [("master = np.ones(1, dtype), np.ones(1, np.float32)", "master = np.ones((2, 1), np.float32)"),
     ("np.ones(1, np.float32)", "np.ones(1, dtype)")],
)  # fmt: skip
def test_stalled_mutants(old, new):
    with pytest.raises((AssertionError, TypeError)):
        check_stalled(mutate(stalled, old, new))


@pytest.mark.parametrize(
    ("names", "types", "scale"),
    [
        (("float64",), ("float64", "float64", "float64"), 1),
        (("float32",), ("float32", "float32", "float32"), 1),
        (("float32", "bfloat16"), ("float32", "bfloat16", "float32"), 1),
        (("bfloat16",), ("bfloat16", "float32", "float32"), 1),
        (("bfloat16", "bfloat16"), ("bfloat16", "bfloat16", "float32"), 1),
        (("float16", None), ("float16", "float32", "float32"), 65536),
        (("float16", "bfloat16"), ("float16", "bfloat16", "float32"), 65536),
    ],
)
def test_types_of_a_run(names, types, scale):
    p = Precision(*names)
    assert (p.dtype.name, p.grad_dtype.name, p.master.name) == types
    assert p.loss_scale().scale == scale
    assert p.loss_scale().dynamic == (scale > 1)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("float64", "float32"), "float64 is for exact comparison: leave out --grad-dtype"),
        (("bfloat16", "float16"), "--grad-dtype float16: choose one of float32, bfloat16"),
        (("float32", "float64"), "--grad-dtype float64: choose one of"),
        (("half",), "'half': choose one of float64, float32, bfloat16, float16"),
    ],
)
def test_types_that_are_refused(names, words):
    with pytest.raises(ConfigError, match=words):
        Precision(*names)


# --- the scale alone ------------------------------------------------------------------------------


def by_the_rule(verdicts, every, scale):
    """The scales before each step and after the last, from the history; None: diverged."""
    scales = [scale]
    since = 0  # the verdict after the last change of the scale
    for i, good in enumerate(verdicts):
        if not good:
            scale, since = scale / 2, i + 1
        elif i + 1 - since == every:
            scale, since = min(2 * scale, 2.0**24), i + 1
        if scale < 1:
            return [*scales, None]
        scales.append(scale)
    return scales


def check_scale(kind, verdicts, every, start, cut):
    """Step by step, saved and restored before step number `cut`."""
    wanted, scale = by_the_rule(verdicts, every, start), kind(start, every)
    for i, good in enumerate(verdicts):
        if i == cut:
            state = scale.state()
            assert all(type(v) in (int, float) for v in state.values())
            scale = kind(every=every)
            scale.restore(state)
        assert scale.scale == wanted[i]
        if wanted[i + 1] is None:
            with pytest.raises(DivergedError, match="overflows float16 even with a loss scale of"):
                scale.update(good)
            return
        scale.update(good)
    assert scale.scale == wanted[-1]


TURNS = [True, True, False, True, True, True, False, False, False, True], 3, 4.0
GROWS = [True] * 6, 2, 2.0**22


@given(
    st.lists(st.booleans(), max_size=25),
    st.integers(1, 4),
    st.sampled_from([1.0, 2.0, 2.0**16, 2.0**23]),
    st.integers(0, 25),
)
@example(*TURNS, 2)
@example(*TURNS, 5)
@example(*GROWS, 3)
@example([False] * 3, 2, 2.0, 9)
def test_the_scale_follows_the_verdicts(verdicts, every, start, cut):
    check_scale(LossScale, verdicts, every, start, cut)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.good + 1 if finite else 0", "self.good + finite"),
        ("self.scale /= 2", "self.scale = max(self.scale / 2, 2.0)"),
        ("self.scale / 2 < LEAST", "self.scale < LEAST"),
        ("min(self.scale * 2, MOST), 0", "self.scale * 2, 0"),
        ("min(self.scale * 2, MOST), 0", "min(self.scale * 2, MOST), self.good"),
        ("self.scale, self.good, self.skipped = scale, good, skipped", "self.scale = scale"),
        ("self.scale, self.good, self.skipped = scale, good, skipped", "self.good = good"),
    ],
)
def test_scale_mutants(old, new):
    wrong, found = mutate(LossScale, old, new), 0
    for witness in ((*TURNS, 2), (*TURNS, 5), (*GROWS, 3), ([False] * 3, 2, 2.0, 9)):
        try:
            check_scale(wrong, *witness)
        except (AssertionError, DivergedError, pytest.fail.Exception):
            found += 1
    assert found


def test_the_constant_scale():
    scale = LossScale.constant()
    for good in [True] * 500 + [False] * 3:
        scale.update(good)
    assert (scale.scale, scale.dynamic) == (1.0, False)


def test_the_start():
    """Above float16's largest number, and yet the first gradient of 2 tokens fits."""
    assert LossScale().scale == 2**16 > float(np.finfo(F16).max) > 2**16 / 2
    assert LossScale().every == precision.EVERY == 200


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"scale": 2.0, "skipped": 0},
        {"scale": 0.5, "good": 1, "skipped": 0},
        {"scale": np.inf, "good": 1, "skipped": 0},
        {"scale": 2.0, "good": 1},
    ],
)
def test_a_damaged_state_is_refused(state):
    with pytest.raises(CheckpointError, match="no state of a loss scale"):
        LossScale().restore(state)


# --- the scale in a step --------------------------------------------------------------------------


class Spoiler(Layer):
    """Has one infinite gradient element at one step, on the rank with the step's first sample.

    After the sum over ranks it is in one rank's chunk; the other ranks' chunks are finite.
    """

    def __init__(self, step, batch):
        self.step, self.batch, self.weight = step, batch, Parameter("spoiled", (5,), init="ones")

    def forward(self, x, at):
        return x, at

    def backward(self, ctx, dy, later=None):
        here = ctx.step == self.step and (ctx.samples == self.step * self.batch).any()
        self.weight.accumulate(np.array([np.inf if here else 0, 0, 0, 0, 0], np.float32))
        return dy


class OneText(ToyCorpus):
    """Every sample is the same text, so that without updates the gradient stays the same."""

    def token(self, samples, positions):
        return ToyCorpus.token(0 * samples, positions)


CASE = Case(batch=6, dropout=0.0, ignored=0.0, tied=True, frozen=("norm",))


def train(comm, kind=Step, steps=5, stage=0, spoil=-1, corpus=ToyCorpus, lr=0.05, **how):
    """Return what each step left: (norm, scale before it, skipped, bytes of all that is kept)."""
    corpus = corpus(CASE.length, CASE.ignored)
    first, *others = CASE.units(corpus.labels)
    units = [Chain(first, Spoiler(spoil, CASE.batch)), *others]
    rule = how.pop("rule", AdamW)()
    sync = Zero(units, rule, Mesh(comm), stage, dtype=F16)
    scale = LossScale(how.pop("start", 2.0**10), how.pop("every", 200))
    step = kind(sync, corpus, batch=CASE.batch, learning_rate=lambda step: lr, loss_scale=scale)
    found = []
    for number in range(steps):
        before = scale.scale
        outcome = step(number)
        kept = b"".join(values.tobytes() for _, _, values in sync.kept())
        weights = {s.parameter.name: v.copy() for k, s, v in sync.kept() if k == "weights"}
        found.append((outcome.norm, before, outcome.skipped, kept, weights))
    return found


def on(ranks, kind=Step, **how):
    """What `train` returns on each rank."""
    return run(partial(train, kind=kind, **how), ranks=ranks)


def check_norms(kind):
    """Trap 40: the norm does not change with the scale, which doubles every second step."""
    found = on(2, kind, steps=6, corpus=OneText, lr=0.0, every=2, start=2.0**4)[0]
    assert [f[1] for f in found] == [16, 16, 32, 32, 64, 64]
    norms = np.array([f[0] for f in found])
    assert np.allclose(norms, norms[0], rtol=1e-3), norms


def test_the_norm_is_that_of_the_scale_in_use():
    check_norms(Step)


def test_unscaling_by_the_next_scale_is_found():
    agree = "outcome = self._agree("
    wrong = mutate(Step, agree, "self.loss_scale.update(True)\n            " + agree)
    with pytest.raises(AssertionError):
        check_norms(wrong)


def check_updates(kind):
    """The scale is taken out again: SGD, which hides no factor, ends at the same weights."""
    ends = [on(1, kind, steps=3, rule=SGD, start=2.0**i)[0][-1][4] for i in (6, 9)]
    start = on(1, kind, steps=1, rule=SGD, lr=0.0)[0][-1][4]
    for name, want in ends[0].items():
        moved = abs(want - start[name]).max()
        assert moved > 0 or name in ("norm", "spoiled")
        assert np.allclose(ends[1][name], want, rtol=0, atol=0.01 * moved), name


def test_the_update_takes_the_scale_out():
    check_updates(Step)


def test_an_update_with_the_scale_in_is_found():
    with pytest.raises((AssertionError, DivergedError)):
        check_updates(mutate(Step, "factor / self.loss_scale.scale", "factor"))


def check_overflow(kind, ranks):
    """Trap 41: all ranks skip step 3 and keep one scale; then they train as one rank does."""
    results = on(ranks, kind, steps=7, spoil=3, every=2)
    for found in results:
        assert [f[2] for f in found] == [False] * 3 + [True] + [False] * 3
        assert [f[1] for f in found] == [2.0**i for i in (10, 10, 11, 11, 10, 10, 11)]
    alone = on(1, steps=7, spoil=3, every=2)[0]
    for found in results:
        for name, want in alone[-1][4].items():
            assert np.allclose(found[-1][4][name], want, atol=1e-3), name


def test_a_scale_too_high_comes_down():
    """Real overflows in float16, in every layer: some steps are skipped, and no warning."""
    results = on(3, steps=7, start=2.0**22)
    skipped = [f[2] for f in results[0]]
    assert skipped[:2] == [True, True]
    assert not all(skipped)
    assert len({repr([f[:3] for f in found]) for found in results}) == 1, "ranks agree"


def test_overflow_warnings_without_quiet():
    noisy = mutate(Step, ", self.loss_scale.quiet()", "")
    with pytest.raises(RuntimeWarning, match=r"invalid|overflow"):
        on(1, noisy, steps=1, start=2.0**24)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_skip_together(ranks):
    check_overflow(Step, ranks)


def test_a_verdict_of_each_rank_is_found():
    wrong = mutate(Step, "not isfinite(norm)\n", "not isfinite(self.sync.squares())\n")
    with pytest.raises((AssertionError, DivergedError)):
        check_overflow(wrong, 3)


def check_nothing_moves(kind, ranks, stage):
    """Trap 42: parameters, masters and moments, cut or whole, frozen or not, are as before."""
    for found in on(ranks, kind, steps=3, stage=stage, spoil=1):
        assert found[1][2], "skipped"
        assert found[1][3] == found[0][3]
        assert found[2][3] != found[1][3]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_skipped_step_leaves_no_trace(ranks, stage):
    check_nothing_moves(Step, ranks, stage)


@pytest.mark.parametrize("stage", [0, 3])
def test_an_update_in_spite_of_the_verdict_is_found(stage):
    wrong = mutate(Step, "if not outcome.skipped:", "if True:")
    with pytest.raises((AssertionError, DivergedError)):
        check_nothing_moves(wrong, 3, stage)


def test_a_scale_that_cannot_help_ends_the_run():
    """Every step overflows: halved down to 1, and then all ranks say so alike."""

    with pytest.raises(DivergedError, match="even with a loss scale of 1"):
        on(2, AlwaysInfinite, start=4.0)


AlwaysInfinite = mutate(Step, "sqrt(squares)", "(0 * squares + float('inf'))")


class Lone(Layer):
    """A layer of one parameter, whose gradient is what it is told."""

    def __init__(self):
        self.weight = Parameter("w", (5,))

    def forward(self, x, at):
        return x, None

    def backward(self, ctx, dy, later=None):
        self.weight.accumulate(dy)
        return dy


@pytest.mark.parametrize(("value", "kept"), [(10_000, 80_000), (6e-8, 8 * 2.0**-24)])
def test_gradients_of_eight_ranks_neither_overflow_nor_vanish(value, kept):
    """Trap 36: float16 parameters, sums in float32, and nothing divided beforehand."""

    def program(comm):
        layer = Lone()
        sync = Zero([layer], SGD(), Mesh(comm), dtype=F16)
        sync.begin()
        layer.backward(None, np.full(5, value, F16))
        sync.ready(0)
        sync.finish()
        return layer.weight.grad.copy()

    for grad in run(program, ranks=8):
        assert grad.dtype == np.float32
        assert (grad == kept).all()
