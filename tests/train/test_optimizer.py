"""Optimisers on shards: cuts change nothing, matrices decay, the step comes from outside."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.nn import Parameter, Shard
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from minidist.train import optimizer
from minidist.train.optimizer import SGD, AdamW

MATRIX, VECTOR = Parameter("matrix", (4, 5)), Parameter("norm", (5,))


def textbook_adamw(x, gradients, lr, b1, b2, eps, decay):
    """Algorithm 2 of Loshchilov and Hutter, on whole arrays that are never changed in place."""
    m, v = 0 * x, 0 * x
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * decay * x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return x


def steps(rule, parameter, x, gradients, lr, cuts):
    """Apply the gradients to `x`, in the shards that `cuts` makes of it."""
    x = x.copy()
    ends = [0, *sorted(cuts), x.size]
    for t, g in enumerate(gradients, 1):
        for a, b in pairwise(ends):
            rule.update(Shard(parameter, a, b), x[a:b], g[a:b], lr, t)
    return x


def check_adamw(kind, cuts=(), decay=0.1):
    rng = np.random.default_rng(3)
    x, gradients = rng.normal(size=20), rng.normal(size=(5, 20))
    got = steps(kind((0.9, 0.95), 1e-8, decay), MATRIX, x, gradients, 0.1, cuts)
    want = textbook_adamw(x, gradients, 0.1, 0.9, 0.95, 1e-8, decay)
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(0, 20), max_size=4), st.sampled_from([0.0, 0.1]))
def test_adamw_is_the_textbook_rule_however_the_parameter_is_cut(cuts, decay):
    check_adamw(AdamW, cuts, decay)


@given(st.lists(st.integers(0, 20), max_size=4), st.sampled_from([0.0, 0.1]))
def test_sgd_is_the_textbook_rule_however_the_parameter_is_cut(cuts, decay):
    rng = np.random.default_rng(3)
    x, gradients = rng.normal(size=20), rng.normal(size=(5, 20))
    got, want = steps(SGD(decay), MATRIX, x, gradients, 0.1, cuts), x
    for g in gradients:
        want = want - 0.1 * (g + decay * want)
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)


def check_decay(kind):
    """OpenRLHF and others: a flat piece of a matrix is still a matrix, a norm never decays."""
    for parameter, factor in ((MATRIX, 0.99), (VECTOR, 1.0)):
        x = np.arange(1.0, parameter.size + 1)
        got = steps(kind(weight_decay=0.1), parameter, x, [np.zeros(x.size)], 0.1, [3])
        assert np.allclose(got, x * factor, rtol=1e-15)


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_matrices_decay_and_vectors_do_not(kind):
    check_decay(kind)


def test_decay_by_the_shape_of_the_piece_is_seen():
    broken = mutate(
        optimizer._decay, "shard.parameter.shape) > 1", "(shard.stop - shard.start,)) > 1"
    )
    kind = mutate(AdamW, "_decay(shard, self", "broken(shard, self", broken=broken)
    with pytest.raises(AssertionError):
        check_decay(kind)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*self.betas", "*self.betas[::-1]"),
        ("kept = state_of(self, shard, data)", "kept = state_of(AdamW(), shard, data)"),
        ("decay, step)", "decay, 1)"),
    ],
)
def test_a_wrong_adamw_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_adamw(mutate(AdamW, old, new), cuts=[7])


def test_a_lost_step_count_would_double_the_step():
    """AReaL#1468: with a constant gradient of 1, step 10 with t = 1 is 2.06 times too large."""
    rule = AdamW((0.9, 0.999), weight_decay=0.0)
    x = steps(rule, VECTOR, np.zeros(5), [np.ones(5)] * 9, 1e-3, [])
    kept = {slot: a.copy() for slot, a in rule.state[Shard(VECTOR, 0, 5)].items()}
    right = steps_once(rule, x, 10)
    rule.state[Shard(VECTOR, 0, 5)] = kept
    wrong = steps_once(rule, x, 1)
    assert np.allclose(right, 1e-3)
    assert np.allclose(wrong / right, 2.06, atol=0.01)


def steps_once(rule, x, t):
    after = x.copy()
    rule.update(Shard(VECTOR, 0, 5), after, np.ones(5), 1e-3, t)
    return x - after


def test_memory_of_training_in_float32_is_16_bytes_a_parameter():
    """DeepSpeed#5099: counted from the arrays that are alive. Weights, gradients, m and v."""

    def program(comm):
        units = [type("Unit", (), {"parameters": lambda self: [MATRIX, VECTOR]})()]
        sync = Zero(units, AdamW(), Mesh(comm), dtype=np.float32)
        kept = [a for slot, _, a in sync.kept() if slot != "weights"]
        buffers = [a for b in sync.buckets for a in (b.stored, b.grad)]
        return sum(a.nbytes for a in kept + buffers)

    assert run(program, ranks=2) == [16 * (20 + 5)] * 2


def test_it_runs_on_a_device_that_refuses_host_functions():
    xp = fake_device.xp
    for kind in (SGD, AdamW):
        host, there = np.arange(20.0), xp.asarray(np.arange(20.0))
        for t in (1, 2):
            kind_host, kind_there = (kind(weight_decay=0.1) for _ in range(2))
            kind_host.update(Shard(MATRIX, 0, 20), host, np.cos(np.arange(20.0)), 0.1, t)
            gradient = xp.asarray(np.cos(np.arange(20.0)))
            kind_there.update(Shard(MATRIX, 0, 20), there, gradient, 0.1, t)
        assert np.array_equal(host, there.get())
