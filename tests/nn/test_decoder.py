"""The whole decoder: central differences, slices of a batch, devices, configurations."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.errors import ConfigError
from minidist.nn import At, DecoderConfig, Linear, Parameter, allocate, build_decoder, decoder
from minidist.testing import fake_device
from minidist.testing.gradients import check_gradient, fingerprint
from minidist.testing.mutants import mutate, rebind

TINY = {
    "layers": 2,
    "width": 6,
    "heads": 2,
    "groups": 1,
    "head_size": 2,
    "hidden": 5,
    "vocabulary": 7,
}


class Toy:
    """Tokens and labels as functions of (sample, position); about a fifth of labels are ignored."""

    def __init__(self, vocabulary, xp=np, ignore=0.2):
        rng = np.random.default_rng(0)
        self.tokens_all = xp.asarray(rng.integers(0, vocabulary, (64, 64)))
        labels = rng.integers(0, vocabulary, (64, 64))
        self.labels_all = xp.asarray(np.where(rng.random((64, 64)) < ignore, -1, labels))

    def tokens(self, at):
        return self.tokens_all[at.samples[:, None], at.positions]

    def labels(self, at):
        return self.labels_all[at.samples[:, None], at.positions]


def parameters(units):
    return list(dict.fromkeys(p for unit in units for p in unit.parameters()))


def model(config, dtype=np.float64, xp=np, ignore=0.2, build=build_decoder):
    toy = Toy(config.vocabulary, xp, ignore)
    units = build(config, toy.labels)
    allocate(parameters(units), dtype, xp, gradients=True)
    return units, toy


def forward(units, x, at):
    contexts = []
    for unit in units:
        x, ctx = unit.forward(x, at)
        contexts.append(ctx)
    return x, contexts


def step(units, toy, at, scale=1.0, later=None):
    """Forward and backward; returns (loss, gradients by name)."""
    for p in parameters(units):
        p.grad[...] = 0
    loss, contexts = forward(units, toy.tokens(at), at)
    dy = scale
    for unit in reversed(units):
        dy = unit.backward(contexts.pop(), dy, later)
    for weight_gradient in later or ():
        weight_gradient()
    return loss, {p.name: p.grad.copy() for p in parameters(units)}


def place(samples=2, positions=5, train=True):
    return At(4, train, np.arange(samples), np.arange(positions))


configs = st.builds(
    DecoderConfig,
    layers=st.integers(1, 2),
    width=st.integers(2, 6),
    heads=st.sampled_from([2, 4]),
    groups=st.sampled_from([1, 2]),
    head_size=st.sampled_from([2, 4]),
    hidden=st.integers(1, 5),
    vocabulary=st.integers(1, 7),
    tied=st.booleans(),
    bias=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3]),
    norm_eps=st.just(1e-2),  # a row near 0 bends the loss too much for any step
    seed=st.integers(0, 99),
)


def check_decoder(config, at, build=build_decoder):
    """Every gradient of the loss, the tied table's two parts included, against differences."""
    units, toy = model(config, build=build)
    for p in parameters(units):
        if p.init == "zeros":
            p.data += 0.1  # a bias of 0 would hide how it enters
    before = [fingerprint(unit) for unit in units]
    loss, gradients = step(units, toy, at)
    _, deferred = step(units, toy, at, later=[])
    assert [fingerprint(unit) for unit in units] == before, "a layer has changed"
    assert loss.shape == ()
    for p in parameters(units):
        assert np.array_equal(gradients[p.name], deferred[p.name])
        check_gradient(
            lambda: float(forward(units, toy.tokens(at), at)[0]), p.data, gradients[p.name], p.name
        )


@settings(max_examples=10)
@given(configs, st.integers(0, 3), st.integers(0, 4))
def test_gradients(config, samples, positions):
    check_decoder(config, place(samples, positions))


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_with_everything_on(tied):
    check_decoder(DecoderConfig(**TINY, tied=tied, bias=True, dropout=0.2), place())


class HeadOnly(Parameter):
    """Takes only gradients that reach every row: those of the head, not of the embedding."""

    def accumulate(self, gradient):
        if gradient.any(axis=1).all():
            super().accumulate(gradient)


def test_tied_mutant():
    """One part of a tied table's gradient is lost."""
    build = rebind(build_decoder, _matrix=rebind(decoder._matrix, Parameter=HeadOnly))
    config = DecoderConfig(**{**TINY, "vocabulary": 30}, tied=True)
    check_decoder(config, place())
    with pytest.raises(AssertionError):
        check_decoder(config, place(), build)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_losses_and_gradients_of_slices_add_up(ranks):
    """Uneven and empty slices; dropout on; labels ignored: plain sums over any cut of the batch."""
    units, toy = model(DecoderConfig(**TINY, tied=True, bias=True, dropout=0.3))
    loss, gradients = step(units, toy, place(4), 0.1)
    cuts = bounds(4, ranks)
    parts = [At(4, True, np.arange(a, b), np.arange(5)) for a, b in pairwise(cuts)]
    found = [step(units, toy, at, 0.1) for at in parts]
    assert np.isclose(sum(f[0] for f in found), loss, rtol=1e-13)
    for name in gradients:
        assert np.allclose(sum(f[1][name] for f in found), gradients[name], atol=1e-14)


def test_no_valid_label():
    """Loss 0, gradient 0, no NaN, with the scale 0 that then is used."""
    units, toy = model(DecoderConfig(**TINY), ignore=1.0)
    loss, gradients = step(units, toy, place(), scale=0.0)
    assert loss == 0
    assert not any(g.any() for g in gradients.values())


@pytest.mark.parametrize("tied", [False, True])
def test_device_equals_host_bit_for_bit(tied):
    """The strict fake device: no NumPy function, no host array, no conversion on the way."""
    config = DecoderConfig(**TINY, tied=tied, bias=True, dropout=0.3)
    xp = fake_device.xp
    units, toy = model(config, np.float32)
    on_device, device_toy = model(config, np.float32, xp)
    device_at = At(4, True, xp.asarray(np.arange(2)), xp.asarray(np.arange(5)))
    loss, gradients = step(units, toy, place(), 0.1)
    device_loss, device_gradients = step(on_device, device_toy, device_at, 0.1)
    assert device_loss.get() == loss
    for name in gradients:
        assert np.array_equal(device_gradients[name].get(), gradients[name]), name


def test_float32_stays_float32_and_close():
    single, toy = model(DecoderConfig(**TINY, dropout=0.2), np.float32)
    double, _ = model(DecoderConfig(**TINY, dropout=0.2), np.float64)
    loss, gradients = step(single, toy, place(), np.float64(0.1))
    exact, exact_gradients = step(double, toy, place(), 0.1)
    assert loss.dtype == np.float32
    assert abs(float(loss) - float(exact)) < 1e-5 * float(exact)
    for name, g in gradients.items():
        assert g.dtype == np.float32
        assert np.allclose(g, exact_gradients[name], atol=1e-6), name
    x = toy.tokens(place())
    for unit in single:
        x, _ = unit.forward(x, place())
        assert x.dtype == np.float32


def test_recomputing_a_unit_gives_the_same_bits():
    """Trap 96: forward again with the same `at`, dropout 0.5."""
    units, toy = model(DecoderConfig(**TINY, dropout=0.5))
    at = place()
    x, _ = units[0].forward(toy.tokens(at), at)
    assert np.array_equal(units[1].forward(x, at)[0], units[1].forward(x, at)[0])


def arrays_in(thing):
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, (tuple, list)):
        for part in thing:
            yield from arrays_in(part)


def check_contexts(units, toy):
    """What forward keeps holds no weights: those may be gone, or changed, before backward."""
    _, contexts = forward(units, toy.tokens(place()), place())
    kept = list(arrays_in(contexts))
    assert len(kept) > 20
    for p in parameters(units):
        assert not any(np.may_share_memory(p.data, x) for x in kept), p.name


def test_contexts_hold_no_parameter():
    check_contexts(*model(DecoderConfig(**TINY, bias=True, dropout=0.3)))


def test_contexts_mutant():
    wrong = mutate(
        Linear, "self.weight.local[0]), x", "self.weight.local[0]), (x, self.weight.data)"
    )
    units, toy = model(DecoderConfig(**TINY))
    units[-1].layers = (units[-1].layers[0], wrong(units[-1].layers[1].weight), units[-1].layers[2])
    with pytest.raises(AssertionError):
        check_contexts(units, toy)


def test_without_labels_the_last_unit_returns_logits():
    config = DecoderConfig(**TINY)
    units = build_decoder(config)
    allocate(parameters(units), np.float64)
    at = place(train=False)
    logits, _ = forward(units, Toy(7).tokens(at), at)
    assert logits.shape == (2, 5, 7)


def test_a_token_does_not_see_later_tokens():
    units = build_decoder(DecoderConfig(**TINY))
    allocate(parameters(units), np.float64)
    at = place(1, 6, train=False)
    tokens = np.array([[1, 2, 3, 4, 5, 6]])
    logits, _ = forward(units, tokens, at)
    changed, _ = forward(units, np.array([[1, 2, 3, 0, 0, 0]]), at)
    assert np.array_equal(logits[:, :3], changed[:, :3])
    assert not np.allclose(logits[:, 3:], changed[:, 3:])


def test_units_and_names():
    config = DecoderConfig(**TINY, bias=True)
    units = build_decoder(config)
    names = [p.name for p in parameters(units)]
    assert len(units) == config.layers + 2
    assert len(set(names)) == len(names)
    assert names[0] == "embed"
    assert names[-2:] == ["norm", "head"]
    assert {"blocks.1.attention.q", "blocks.1.attention.bias", "blocks.0.mlp.down"} <= set(names)


def test_a_tied_model_has_one_table_with_two_users():
    units = build_decoder(DecoderConfig(**TINY, tied=True))
    assert units[0].parameters()[0] is units[-1].parameters()[-1]


@pytest.mark.parametrize("tied", [False, True])
def test_first_values_by_the_fan_in_of_the_whole_matrix(tied):
    config = DecoderConfig(width=64, heads=4, hidden=100, tied=tied)
    init = {p.name: p.init for p in parameters(build_decoder(config))}
    assert init["embed"] == (1 / 8 if tied else 1)
    assert init["blocks.0.attention.q"] == 1 / 8
    assert np.isclose(init["blocks.0.attention.out"], 1 / 8 / np.sqrt(8))
    assert np.isclose(init["blocks.3.mlp.down"], 1 / 10 / np.sqrt(8))
    assert init["norm"] == "ones"


def test_smollm2_has_the_published_number_of_parameters():
    config = DecoderConfig(layers=30, width=576, heads=9, groups=3, hidden=1536, vocabulary=49152,
                           tied=True)  # fmt: skip
    assert sum(p.size for p in parameters(build_decoder(config))) == 134_515_008


def test_every_trainable_parameter_gets_a_gradient():
    """Trap 104."""
    units, toy = model(DecoderConfig(**TINY, bias=True))
    _, gradients = step(units, toy, place(8, 20))
    assert all(g.any() for g in gradients.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 0}, "layers = 0"),
        ({"vocabulary": -1}, "vocabulary = -1"),
        ({"heads": 6, "groups": 4}, "6 heads cannot share 4 groups"),
        ({"width": 10, "heads": 4, "groups": 2}, "width 10 is not a multiple of 4 heads"),
        ({"head_size": 3}, "head size 3 is odd"),
        ({"head_size": -2}, "head_size = -2"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"rope_base": 0.0}, "rope_base"),
        ({"norm_eps": -1.0}, "norm_eps"),
    ],
)
def test_a_shape_that_cannot_be_computed_is_refused(change, words):
    """Trap 110 and its kin: refused when it is written down, with the numbers."""
    with pytest.raises(ConfigError, match=words):
        DecoderConfig(**change)


def test_sizes_that_follow_from_the_width():
    config = DecoderConfig(width=128, heads=4)
    assert (config.head, config.inner) == (32, 352)
    assert DecoderConfig(head_size=10, hidden=7).head == 10
    assert DecoderConfig(head_size=10, hidden=7).inner == 7
