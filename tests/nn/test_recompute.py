"""Recomputing changes no bit and keeps less: whole decoders, several micro-batches under way."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.nn import (
    RECOMPUTE,
    At,
    Attention,
    DecoderConfig,
    Linear,
    Recompute,
    allocate,
    build_decoder,
    decoder,
    segments,
)
from minidist.nn.activations import alive
from minidist.testing import fake_device
from minidist.testing.gradients import check_layer, fingerprint
from minidist.testing.mutants import mutate, rebind
from tests.nn.test_decoder import TINY, Toy, configs, forward, model, parameters, place, step
from tests.nn.test_layers import ready, swiglu, walk
from tests.ops.test_half import BF16, F16

EVERYTHING = DecoderConfig(**TINY, tied=True, bias=True, dropout=0.5)
AGAIN = [kind for kind in RECOMPUTE if kind != "none"]
MODES = pytest.mark.parametrize("recompute", AGAIN)


def build(recompute, cls=Recompute):
    """Return `build_decoder` with a choice of ``recompute``, and perhaps a wrong `Recompute`."""
    block = rebind(decoder._block, Recompute=cls)
    whole = rebind(build_decoder, _block=block)
    return lambda config, labels: whole(config, labels, recompute)


def run(units, toy, ats, deferred=False):
    """All forwards, then all backwards, those of the *first* micro-batch first.

    Returns losses, gradients by name, and the deferred computations.
    """
    for p in parameters(units):
        p.grad[...] = 0
    under_way = [forward(units, toy.tokens(at), at) for at in ats]
    later = [] if deferred else None
    for _, contexts in under_way:
        dy = 0.25
        for unit in reversed(units):
            dy = unit.backward(contexts.pop(), dy, later)
    for weight_gradient in later or ():
        weight_gradient()
    return [x for x, _ in under_way], {p.name: p.grad.copy() for p in parameters(units)}, later


def check_equal(config, ats, recompute, cls=Recompute, dtype=np.float64):
    """Losses and gradients to the last bit, at once and deferred; no layer changes."""
    units, toy = model(config, dtype)
    again, _ = model(config, dtype, build=build(recompute, cls))
    assert [p.name for p in parameters(again)] == [p.name for p in parameters(units)]
    before = [fingerprint(unit) for unit in again]
    for deferred in (False, True):
        losses, gradients, later = run(units, toy, ats, deferred)
        found_losses, found, found_later = run(again, toy, ats, deferred)
        assert [x.tobytes() for x in found_losses] == [x.tobytes() for x in losses]
        for name, gradient in gradients.items():
            assert found[name].tobytes() == gradient.tobytes(), name
        assert len(found_later or ()) == len(later or ())
    assert [fingerprint(unit) for unit in again] == before, "a layer has changed"


def two_places(samples=2, positions=4):
    """Two micro-batches of one step, with other samples."""
    first = place(samples, positions)
    return [first, replace(first, samples=first.samples + 7)]


@settings(max_examples=6)
@given(configs, st.integers(0, 3), st.integers(0, 4), st.sampled_from(AGAIN))
@example(EVERYTHING, 2, 4, "unit")
@example(EVERYTHING, 2, 4, "attention")
def test_no_bit_changes(config, samples, positions, recompute):
    check_equal(config, two_places(samples, positions), recompute)


@pytest.mark.parametrize("dtype", [np.float32, BF16, F16], ids=str)
@MODES
def test_no_bit_changes_in_other_types(recompute, dtype):
    check_equal(EVERYTHING, two_places(), recompute, dtype=dtype)


@MODES
def test_outside_training(recompute):
    """Dropout is off both times."""
    check_equal(EVERYTHING, [replace(at, train=False) for at in two_places()], recompute)


@dataclass(frozen=True, eq=False)
class Remembers(Recompute):
    """Forgets which micro-batch a ctx belongs to: the last input is taken for all."""

    last: ClassVar = {}

    def forward(self, x, at):
        self.last[id(self)] = x
        return super().forward(x, at)

    def backward(self, ctx, dy, later=None):
        return super().backward((self.last[id(self)], ctx[1]), dy, later)


FORWARD = "inner = self.layer.forward(x, at)"
BACKWARD = "return self.layer.backward(inner, dy, later)"


@MODES
@pytest.mark.parametrize(
    "change",
    [
        (FORWARD, "inner = self.layer.forward(2 * x, at)"),
        (BACKWARD, "self.layer.backward(inner, dy, later); " + BACKWARD),
        (BACKWARD, "return self.layer.backward(inner, dy)"),
        (BACKWARD, "return self.layer.backward(inner, dy + dy, later)"),
        None,
    ],
    ids=["other input", "twice", "not deferred", "other gradient", "last input"],
)
def test_mutants(change, recompute):
    wrong = mutate(Recompute, *change) if change else Remembers
    with pytest.raises(AssertionError):
        check_equal(EVERYTHING, two_places(), recompute, wrong)


@pytest.mark.parametrize(
    "change",
    ["train=False", "step=at.step + 1", "samples=at.samples + 1", "positions=at.positions + 1"],
)
def test_another_place_is_found(change):
    """Trap 96: the mask of dropout is not that of forward."""
    wrong = mutate(Recompute, FORWARD, f"inner = self.layer.forward(x, replace(at, {change}))",
                   replace=replace)  # fmt: skip
    with pytest.raises(AssertionError):
        check_equal(EVERYTHING, two_places(), "unit", wrong)


def test_against_central_differences():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    check_layer(ready(Recompute(swiglu())), x, place(2, 3))


@MODES
def test_device_equals_host_bit_for_bit(recompute):
    xp = fake_device.xp
    units, toy = model(EVERYTHING, np.float32, build=build(recompute))
    on_device, device_toy = model(EVERYTHING, np.float32, xp, build=build(recompute))
    device_at = At(4, True, xp.asarray(np.arange(2)), xp.asarray(np.arange(5)))
    _, gradients = step(units, toy, place(), 0.1)
    _, found = step(on_device, device_toy, device_at, 0.1)
    assert all(np.array_equal(found[name].get(), g) for name, g in gradients.items())


# --- what is kept, and what is done again ---------------------------------------------------------


def check_bytes(recompute, cls=Recompute):
    """A ctx is the input of the layer; backward reports what it brings back, and nothing else."""
    config, reports = replace(EVERYTHING, tied=False), []
    at = replace(place(), recomputed=lambda *ctx: reports.append(ctx))
    whole, toy = model(config)
    again, _ = model(config, build=build(recompute, cls))
    _, contexts = forward(whole, toy.tokens(at), at)
    _, found = forward(again, toy.tokens(at), at)
    assert not reports
    sizes, kept = [alive(ctx) for ctx in contexts], [alive(ctx) for ctx in found]
    stream = 2 * 5 * config.width * 8
    attention = contexts[1][0][0][0][1]
    dropped = sizes[1] - stream if recompute == "unit" else alive(attention) - stream
    assert dropped > stream
    assert kept == [sizes[0], sizes[1] - dropped, sizes[2] - dropped, sizes[3]]
    run(again, toy, [at])
    assert [alive(inner, besides=ctx) for inner, ctx in reports] == [dropped] * config.layers


@MODES
def test_only_the_input_is_kept(recompute):
    check_bytes(recompute)


@dataclass(frozen=True, eq=False)
class Keeps(Recompute):
    """Recomputes nothing: right, and of no use."""

    def forward(self, x, at):
        return self.layer.forward(x, at)

    def backward(self, ctx, dy, later=None):
        return self.layer.backward(ctx, dy, later)


@pytest.mark.parametrize(
    "wrong",
    [
        Keeps,
        mutate(Recompute, "at.recomputed(inner, ctx)", "pass"),
        mutate(Recompute, "at.recomputed(inner, ctx)", "at.recomputed(inner, ())"),
        mutate(Recompute, "y, (x, at)", "y, (x, at, self.layer.forward(x, at)[1])"),
    ],
    ids=["keeps", "not told", "told too much", "keeps both"],
)
@MODES
def test_bytes_mutants(wrong, recompute):
    with pytest.raises(AssertionError):
        check_bytes(recompute, wrong)


def counting(cls, log):
    """Return a layer class that notes each forward."""

    @dataclass(frozen=True, eq=False)
    class Counted(cls):
        def forward(self, x, at):
            log.append(self)
            return super().forward(x, at)

    return Counted


@pytest.mark.parametrize(
    ("recompute", "linears", "attentions"),
    [("none", 7, 1), ("unit", 14, 2), ("attention", 11, 2)],
)
def test_how_often_a_layer_runs(recompute, linears, attentions):
    """Of a block's seven products all are done twice, or the four of attention. The head's once."""
    log = []
    block = decoder._block
    names = {"Linear": counting(Linear, log), "Attention": counting(Attention, log)}
    parts = {n: rebind(getattr(decoder, n), **names) for n in ("_linear", "_attention")}
    parts["_attention"] = rebind(decoder._attention, **names, _linear=parts["_linear"])
    parts["_mlp"] = rebind(decoder._mlp, **names, _linear=parts["_linear"])
    whole = rebind(build_decoder, **names, _block=rebind(block, **parts))
    toy = Toy(EVERYTHING.vocabulary)
    units = whole(EVERYTHING, toy.labels, recompute)
    allocate(parameters(units), np.float64, gradients=True)
    run(units, toy, [place()])
    runs = [sum(isinstance(x, kind) for x in log) for kind in (Linear, Attention)]
    assert runs == [2 * linears + 1, 2 * attentions]


def check_gradients_are_added_once(recompute, cls=Recompute):
    """Trap 98: what a layer does besides its result must not be done twice."""
    units, toy = model(EVERYTHING, build=build(recompute, cls))
    added = []
    for p in parameters(units):
        p.accumulate = lambda gradient, name=p.name: added.append(name)
    for deferred in (False, True):
        added.clear()
        run(units, toy, [place()], deferred)
        assert sorted(added) == sorted(p.name for unit in units for p in unit.parameters())


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_gradients_are_added_once(recompute):
    check_gradients_are_added_once(recompute)


@MODES
def test_gradients_added_twice_are_found(recompute):
    wrong = mutate(Recompute, BACKWARD, "self.layer.backward(inner, dy, later); " + BACKWARD)
    with pytest.raises(AssertionError):
        check_gradients_are_added_once(recompute, wrong)


def test_which_layers_are_wrapped():
    def wrapped(recompute):
        units = build_decoder(EVERYTHING, None, recompute)
        return [
            [type(x.layer).__name__ for x in walk(u) if isinstance(x, Recompute)] for u in units
        ]

    assert wrapped("none") == [[], [], [], []]
    assert wrapped("unit") == [[], ["Chain"], ["Chain"], []]
    assert wrapped("attention") == [[], ["Attention"], ["Attention"], []]


def test_an_unknown_choice_is_refused():
    with pytest.raises(ConfigError, match="recompute = 'all': must be one of none, unit"):
        build_decoder(EVERYTHING, recompute="all")


# --- segments -------------------------------------------------------------------------------------


def segmented(config, labels, length, cut=segments):
    """The decoder with its blocks in segments."""
    first, *blocks, last = build_decoder(config, labels)
    return [first, *cut(blocks, length), last]


def check_segments(length, cut=segments):
    """No bit changes; each layer is in one segment, in order, and only the inputs are kept."""
    config, ats = replace(EVERYTHING, layers=5), two_places()
    units, toy = model(config)
    again, _ = model(config, build=lambda *args: segmented(*args, length, cut))
    losses, gradients, _ = run(units, toy, ats)
    found_losses, found, _ = run(again, toy, ats)
    assert [x.tobytes() for x in found_losses] == [x.tobytes() for x in losses]
    assert {n: g.tobytes() for n, g in found.items()} == {
        n: g.tobytes() for n, g in gradients.items()
    }
    sizes = [len(s.layer.layers) for s in again[1:-1]]
    assert sizes == [length] * (5 // length) + [5 % length] * (5 % length > 0)
    _, contexts = forward(again, toy.tokens(ats[0]), ats[0])
    assert [alive(c) for c in contexts[1:-1]] == [2 * 4 * config.width * 8] * len(sizes)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 9])
def test_segments(length):
    check_segments(length)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(0, len(layers), length)", "range(0, len(layers) - length + 1, length)"),
        ("start : start + length", "start : start + 1"),
        (
            "Recompute(Chain(*layers[start : start + length]))",
            "Chain(*layers[start : start + length])",
        ),
    ],
)
def test_segments_mutants(old, new):
    with pytest.raises((AssertionError, AttributeError, KeyError)):
        check_segments(2, mutate(segments, old, new))


def test_segments_of_nothing():
    assert segments([], 3) == []
    with pytest.raises(ConfigError, match="segments of 0 layers: the length must be at least 1"):
        segments([], 0)
