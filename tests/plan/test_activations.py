"""Activation bytes by formula: this decoder's are what is counted, the paper's are its tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minidist.nn import RECOMPUTE, At, DecoderConfig, build_decoder
from minidist.nn.activations import alive
from minidist.ops import half
from minidist.plan import activations as plan
from minidist.plan.activations import Activations, Layer, best_length, first_stage, segmented
from minidist.testing.mutants import mutate
from tests.nn.test_decoder import TINY, configs, forward, model

GIB = 2**30
EVERYTHING = DecoderConfig(**TINY, dropout=0.3)


def planned(config, batch, positions, dtype, recompute, kind=Activations):
    return kind(
        batch=batch,
        positions=positions,
        width=config.width,
        heads=config.heads,
        groups=config.groups,
        head_size=config.head,
        hidden=config.inner,
        vocabulary=config.vocabulary,
        layers=config.layers,
        element=half.named(dtype).itemsize,
        dropout=config.dropout > 0,
        recompute=recompute,
    )


def check(config, batch, positions, dtype, recompute, kind=Activations):
    """Every unit, the sum, and the peak of a step, to the byte."""
    plan = planned(config, batch, positions, dtype, recompute, kind)
    again = []
    at = At(0, True, np.arange(batch), np.arange(positions), recomputed=lambda *c: again.append(c))
    units, toy = model(
        config, half.named(dtype), build=lambda *args: build_decoder(*args, recompute)
    )
    _, kept = forward(units, toy.tokens(at), at)
    formula = [plan.embedding, *[plan.block] * config.layers, plan.last]
    assert [alive(ctx) for ctx in kept] == formula
    assert alive(*kept) == plan.kept
    dy, most = 1.0, 0
    for unit in reversed(units):
        dy = unit.backward(kept[-1], dy)
        most = max(most, alive(*kept, *(inner for inner, _ in again)))
        again.clear()
        kept.pop()
    assert most == plan.peak


@settings(max_examples=25)
@given(configs, st.integers(0, 3), st.integers(0, 5), st.sampled_from(list(half.NAMES)),
       st.sampled_from(RECOMPUTE))  # fmt: skip
@example(EVERYTHING, 2, 5, "float32", "none")
@example(EVERYTHING, 2, 5, "bfloat16", "attention")
@example(EVERYTHING, 2, 5, "float64", "unit")
def test_this_decoder(config, batch, positions, dtype, recompute):
    check(config, batch, positions, dtype, recompute)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(self.heads + self.groups)", "(self.heads + self.heads)"),
        ("self.tokens * self.heads + angles", "self.tokens * self.groups + angles"),
        ("max(4, self.element)", "self.element"),
        ("3 * self.tokens", "2 * self.tokens"),
        ("angles = 2 * self.positions", "angles = 2 * self.tokens"),
        ("self.tokens * self.width if", "self.stream if"),
        ("max(self.last, again)", "self.last + again"),
        ("2 * (self.norm + self.mask)", "2 * self.norm + self.mask"),
    ],
)
def test_mutants(old, new):
    wrong = mutate(Activations, old, new)
    with pytest.raises(AssertionError):
        check_both(wrong)


def check_both(kind):
    """A model whose last unit is the largest thing, and one whose blocks are."""
    check(replace(EVERYTHING, vocabulary=400), 2, 5, "bfloat16", "none", kind)
    check(EVERYTHING, 2, 5, "bfloat16", "unit", kind)


SHAPE = Activations(
    batch=3, positions=16, width=48, heads=4, groups=4, head_size=12, hidden=128, vocabulary=7,
    element=2, dropout=True,
)  # fmt: skip


def test_the_published_terms_one_by_one():
    """16-bit activations, no grouped heads, a hidden size of 8/3."""
    paper, w = Layer(s=16, b=3, h=48, a=4), SHAPE.statistic
    root_mean_squares = 2 * SHAPE.tokens * w
    lse, angles = SHAPE.tokens * 4 * w, 2 * 16 * 12 * w
    scores = 5 * 4 * 16**2 * 3
    attention = SHAPE.stream + SHAPE.attention + SHAPE.mask
    assert 2 * SHAPE.norm - root_mean_squares == paper.norms()
    assert attention - lse - angles == paper.attention() - scores
    assert SHAPE.swiglu + SHAPE.mask == paper.mlp()
    assert SHAPE.block - root_mean_squares - lse - angles == paper.tensor(selective=True)
    assert replace(SHAPE, recompute="unit").block == paper.full()
    whole = paper.attention() + paper.mlp() + paper.norms()
    assert np.isclose(whole, paper.tensor())
    assert np.isclose(whole, paper.sequence())


MODELS = {
    "22B": (Layer(s=2048, b=4, h=6144, a=64, t=8), 48, 1, 1),
    "175B": (Layer(s=2048, b=1, h=12288, a=96, t=8), 96, 8, 3),
}


def ways(layer):
    """Tensor parallel; with sequence parallel; selective; both; full."""
    return [
        layer.tensor(),
        layer.sequence(),
        layer.tensor(True),
        layer.sequence(True),
        layer.full(),
    ]


@pytest.mark.parametrize(
    ("name", "scores", "coefficient", "percent"),
    [
        ("22B", 106.67, 26.333, [66.8, 49.4, 16.1, 7.6]),
        ("175B", 80.0, 23.0, [62.0, 56.5, 18.5, 8.7]),
    ],
)
def test_percent_of_tensor_parallelism(name, scores, coefficient, percent):
    layer = MODELS[name][0]
    base, *others = ways(layer)
    assert round(layer.scores, 2) == scores
    assert round(base / layer.sbh, 3) == coefficient
    assert [round(100 * x / base, 1) for x in others] == percent


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("22B", [59.25, 39.56, 29.25, 9.56, 4.50]),
        ("175B", [66.84, 41.41, 37.78, 12.35, 5.81]),
    ],
)
def test_first_stage(name, gib):
    layer, layers, p, chunks = MODELS[name]
    found = [first_stage(x, layers, p, chunks) / GIB for x in ways(layer)]
    assert [round(x, 2) for x in found] == gib


def test_gpt3_saves_70_percent_by_selective_recomputation():
    layer = replace(MODELS["175B"][0], t=1)
    assert round(100 * (1 - layer.tensor(True) / layer.tensor()), 1) == 70.2


@pytest.mark.parametrize(
    ("cls", "old", "new"),
    [
        (Layer, "10 + (24 +", "10 + 24 + ("),
        (Layer, "5 * self.a", "4 * self.a"),
        (Layer, "self.sbh * 2.0", "self.sbh / self.t * 2.0"),
    ],
)
def test_published_mutants(cls, old, new):
    wrong = mutate(cls, old, new)
    layer = wrong(s=2048, b=1, h=12288, a=96, t=8)
    base, *others = ways(layer)
    with pytest.raises(AssertionError):
        assert [round(100 * x / base, 1) for x in others] == [62.0, 56.5, 18.5, 8.7]


def test_the_interleaved_schedule_holds_more():
    assert plan.first_stage(1.0, 96, 8) == 96
    assert plan.first_stage(1.0, 96, 8, 3) == 96 * (1 + 7 / 24)


# --- segments -------------------------------------------------------------------------------------


def walked(layers, length, stream, whole):
    """The most bytes at once, by going through backward segment by segment."""
    starts = range(0, layers, length)
    sizes = [min(length, layers - start) for start in starts]
    return max(i * stream + n * whole for i, n in enumerate(sizes))


def check_segmented(segmented):
    for layers in range(1, 14):
        for length in range(1, layers + 3):
            for whole in (3, 4, 50):
                assert segmented(layers, length, 3, whole) == walked(layers, length, 3, whole)


def test_segments():
    check_segmented(segmented)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(full - 1) * stream", "full * stream"),
        ("full * stream + rest", "(full + 1) * stream + rest"),
        ("max(at_full, at_rest)", "at_full"),
        ("if rest else 0", "if False else 0"),
    ],
)
def test_segments_mutants(old, new):
    with pytest.raises(AssertionError):
        check_segmented(mutate(segmented, old, new))


def test_a_segment_of_one_is_recompute_unit():
    shape = planned(EVERYTHING, 2, 5, "float32", "unit")
    found = segmented(shape.layers, 1, shape.stream, shape.whole_block)
    assert found == shape.layers * shape.block + shape.whole_block - shape.block


@pytest.mark.parametrize(
    ("layers", "whole", "best", "peak"),
    [(16, 1, 3, 7), (64, 1, 6, 15), (100, 1, 8, 19), (64, 4, 4, 31), (32, 16, 1, 47)],
)
def test_the_best_length_is_about_a_root(layers, whole, best, peak):
    """The peak is near twice the root of L whole; several lengths may share it."""
    assert best_length(layers, 1, whole) == best
    assert segmented(layers, best, 1, whole) == peak
    assert peak <= 2.1 * (layers * whole) ** 0.5
