"""Parameters and operations of real toy models beside the formulas, and published figures."""

from dataclasses import replace

import numpy as np
import pytest

from minidist.errors import ConfigError
from minidist.nn import At, DecoderConfig, allocate, build_decoder
from minidist.plan import compute
from minidist.plan.compute import (
    block_matrices,
    block_vectors,
    decoder_parameters,
    multiplying,
    training_days,
    training_flops,
)
from minidist.testing.flops import counted_products
from minidist.testing.mutants import mutate, rebind

TOY = DecoderConfig(layers=2, width=12, heads=6, groups=2, head_size=4, hidden=10, vocabulary=7)
SHAPES = [
    TOY,
    replace(TOY, tied=True),
    replace(TOY, bias=True),
    replace(TOY, layers=1, groups=6, head_size=0, hidden=0, bias=True, tied=True),
]
TOKENS = 3 * 5


def every(config):
    """The parameters of a real model, each once."""
    return list(dict.fromkeys(p for unit in build_decoder(config) for p in unit.parameters()))


def check_count(function, config):
    assert function(config) == sum(p.size for p in every(config)), config


def check_counts(function):
    for config in SHAPES:
        check_count(function, config)


@pytest.mark.parametrize("config", SHAPES)
def test_parameters_are_those_of_a_real_model(config):
    check_count(decoder_parameters, config)
    block = [p for p in every(config) if p.name.startswith("blocks.0.")]
    assert block_matrices(config) == sum(p.size for p in block if len(p.shape) == 2)
    assert block_vectors(config) == sum(p.size for p in block if len(p.shape) == 1)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("decoder_parameters", "1 if shape.tied else 2", "2"),
        ("decoder_parameters", " + shape.width  #", "  #"),
        ("block_vectors", "2 * shape.inner", "shape.inner"),
        ("block_matrices", "2 * shape.width * keys", "2 * shape.width * queries"),
        ("block_matrices", "3 * shape.width", "2 * shape.width"),
    ],
)
def test_a_wrong_count_is_seen(name, old, new):
    broken = mutate(getattr(compute, name), old, new)
    whole = broken if name == "decoder_parameters" else rebind(decoder_parameters, **{name: broken})
    with pytest.raises(AssertionError):
        check_counts(whole)


def one_step(config, recompute="none"):
    """Operations of products with weights in forward and backward, by product."""
    labels = np.arange(TOKENS).reshape(3, 5) % config.vocabulary
    units = build_decoder(config, lambda at: labels, recompute)
    allocate((p for unit in units for p in unit.parameters()), np.float32, gradients=True)
    at, contexts, x = At(0, True, np.arange(3), np.arange(5)), [], labels
    with counted_products() as seen:
        for unit in units:
            x, context = unit.forward(x, at)
            contexts.append(context)
        dy = 1.0 / TOKENS
        for unit in reversed(units):
            dy = unit.backward(contexts.pop(), dy)
    return seen


def check_operations(flops):
    for config in SHAPES:
        head = config.vocabulary * config.width
        blocks = config.layers * block_matrices(config)
        assert sum(one_step(config)) == flops(multiplying(config), TOKENS)
        again = flops(blocks, TOKENS, True) + flops(head, TOKENS)
        assert sum(one_step(config, "unit")) == again


def test_operations_are_those_of_a_real_step():
    """The head is not recomputed, so only the blocks cost 8."""
    check_operations(training_flops)


@pytest.mark.parametrize(
    ("old", "new"),
    [("2, 4", "2, 2"), ("(2 if recompute else 1)", "1"), ("2, 4", "1, 2")],
)
def test_a_wrong_number_of_operations_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_operations(mutate(training_flops, old, new))


def test_each_product_is_counted_by_its_three_sizes():
    """One block, one by one: seven matrices, forward once and backward twice, and the head."""
    seen = one_step(replace(TOY, layers=1))
    assert len(seen) == 3 * (7 + 1)
    assert seen[0] == 2 * TOKENS * 12 * 24  # q, the first one
    assert seen[-1] == 2 * TOKENS * 12 * 8  # v, the last one


def test_a_published_model():
    """SmolLM2-135M, from the numbers of its configuration."""
    shape = DecoderConfig(
        layers=30, width=576, heads=9, groups=3, hidden=1536, vocabulary=49152, tied=True
    )
    assert decoder_parameters(shape) == 134_515_008


def check_days(days):
    """Narayanan et al., SC 2021: GPT-3 on 1024 devices takes 34 days."""
    assert round(days(training_flops(175e9, 300e9, recompute=True), 1024, 140e12)) == 34
    # Table 2 counts the products of attention too: 90 days, 2.6 % more than 8TP / (nX).
    table_2 = days(training_flops(174.6e9, 300e9, recompute=True), 384, 144e12)
    assert table_2 == pytest.approx(90, rel=0.03)
    assert days(86400.0, 1, 1.0) == 1.0


def test_published_days():
    check_days(training_days)


@pytest.mark.parametrize(
    ("old", "new"), [("devices * rate", "rate"), ("DAY\n", "3600\n"), ("flops /", "2 * flops /")]
)
def test_wrong_days_are_seen(old, new):
    with pytest.raises(AssertionError):
        check_days(mutate(training_days, old, new))


@pytest.mark.parametrize(("devices", "rate"), [(0, 1e12), (1, 0.0), (1, float("nan"))])
def test_nothing_to_compute_with(devices, rate):
    with pytest.raises(ConfigError, match="never get done"):
        training_days(1e20, devices, rate)
