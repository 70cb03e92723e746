"""The bytes that a ctx keeps alive are those that NumPy has allocated for it and not freed."""

import tracemalloc

import numpy as np
import pytest

from minidist.nn import RECOMPUTE, At, DecoderConfig, activations, build_decoder
from minidist.nn.activations import alive
from minidist.testing.mutants import mutate, rebind
from tests.nn.test_decoder import forward, model
from tests.ops.test_half import BF16

NUMPY = 389047
"""The domain in which NumPy reports its allocations to tracemalloc."""
CACHED = 1024
"""NumPy keeps blocks below this for the next array, and reports nothing then."""
SHAPE = {"layers": 2, "width": 32, "heads": 4, "head_size": 8, "hidden": 48, "vocabulary": 16}


def allocated(compute):
    """Return (what compute returns, the bytes of arrays that are still there because of it)."""
    tracemalloc.start()
    try:
        result = compute()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    traces = snapshot.filter_traces([tracemalloc.DomainFilter(True, NUMPY)]).traces
    return result, sum(t.size for t in traces if t.size >= CACHED)


def check_model(config, dtype, recompute, count=alive):
    """All units together, and each alone: no storage belongs to two of them."""
    units, toy = model(config, dtype, build=lambda *a: build_decoder(*a, recompute))
    at = At(4, True, np.arange(4), np.arange(64))  # no array smaller than CACHED
    forward(units, toy.tokens(at), at)  # what is allocated once and kept is not of a ctx
    contexts, nbytes = allocated(lambda: forward(units, toy.tokens(at), at)[1])
    assert count(*contexts) == nbytes
    assert sum(count(ctx) for ctx in contexts) == nbytes


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BF16], ids=str)
@pytest.mark.parametrize(
    ("groups", "dropout"), [(4, 0.3), (1, 0.0)], ids=["grouped-dropout", "one-group"]
)
def test_alive_is_what_was_allocated(groups, dropout, dtype, recompute):
    check_model(DecoderConfig(**SHAPE, groups=groups, dropout=dropout), dtype, recompute)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("found[id(owner)] = owner.nbytes", "found[id(value)] = value.nbytes"),
        ("owner = _owner(value)", "owner = value"),
        ("for part in value:", "for part in value[1:]:"),
        ("batch, batch)", "found, batch)"),
    ],
    ids=["views", "owners", "first forgotten", "batch counted"],
)
def test_alive_mutants(old, new):
    wrong = rebind(alive, _collect=mutate(activations._collect, old, new))
    with pytest.raises(AssertionError):
        check_model(DecoderConfig(**SHAPE, dropout=0.3), np.float32, "none", wrong)


def test_a_view_keeps_the_whole_storage():
    x = np.zeros((8, 5))
    assert alive(x[2:3, ::2]) == x.nbytes
    assert alive((x[0], [x.T, {"last": x[-1]}]), x.reshape(40)) == x.nbytes
    assert alive(x[1], np.zeros(3, np.float32)) == x.nbytes + 12


def test_what_is_no_array_takes_nothing():
    assert alive() == 0
    assert alive(None, 3, "name", np.dtype("float64"), np.float64(1), (), []) == 0
    assert alive(np.zeros((0, 5))) == 0


def test_numbers_of_the_batch_belong_to_nobody():
    """Even if a layer has them beside its own arrays, as dropout on a device does."""
    at = At(0, True, np.arange(10)[:4], np.arange(6))
    assert alive(at) == 0
    assert alive(((17, at.samples, at.positions), np.zeros(3)), at) == 24


def test_what_is_alive_elsewhere():
    x, y = np.zeros(4), np.zeros(5)
    assert alive((x, y), besides=(x[1:],)) == y.nbytes
    assert alive((x, y), besides=(x, y)) == 0
    assert alive(x, besides=[np.zeros(4)]) == x.nbytes
