"""The device that is not there refuses what a real one would, and else computes like the host."""

import operator

import numpy as np
import pytest

from minidist import ops
from minidist.arrays import namespace, pieces, to_host
from minidist.collectives import ring
from minidist.comm import run
from minidist.errors import DeviceError
from minidist.testing.fake_device import FakeArray, xp

HOST = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "action",
    [
        lambda x: np.exp(x),
        lambda x: np.sum(x),
        lambda x: np.asarray(x),
        lambda x: np.concatenate([x, x]),
        lambda x: np.einsum("ij->i", x),
        lambda x: x + HOST,
        lambda x: HOST + x,
        lambda x: HOST @ x.T,
        lambda x: xp.matmul(HOST, x.T),
        lambda x: xp.add(x, x, out=HOST.copy()),
        lambda x: operator.setitem(x, ..., HOST),
        lambda x: operator.setitem(HOST.copy(), ..., x),
        lambda x: float(x.sum()),
        lambda x: int(x.sum()),
        lambda x: bool((x > 0).all()),
        lambda x: [1, 2][x.astype(int)[0, 0]],
        lambda x: x[np.array([0, 1])],
        lambda x: list(x),
        lambda x: xp.max(x, initial=0.0),
        lambda x: x.sum(where=x > 0),
        lambda x: xp.add.at,
        lambda x: xp.linalg,
    ],
)
def test_it_refuses_what_a_device_would(action):
    with pytest.raises((DeviceError, TypeError, AttributeError)):
        action(xp.asarray(HOST))


def test_it_computes_like_the_host():
    x, h = xp.asarray(HOST), HOST.copy()
    for f in (
        lambda n, a: n.exp(a) + a * 2 - 1 / (a + 1),
        lambda n, a: a @ a.T,
        lambda n, a: a[:, None, ::2].sum(-1, keepdims=True),
        lambda n, a: n.where(a > 2, a, -n.inf).max(0),
        lambda n, a: (a.astype(n.int64) >> np.int64(1)) ^ 5,
        lambda n, a: n.concatenate([a, a[::-1]], -1).transpose(1, 0).reshape(3, 4),
    ):
        got, want = f(xp, x), f(np, h)
        assert isinstance(got, FakeArray)
        assert got.dtype == want.dtype
        assert np.array_equal(got.get(), want)


def test_views_share_memory_and_copies_do_not():
    x = xp.zeros((2, 3))
    x[0, 1:] += 1
    x.reshape(6)[5:] = 7
    y = x.copy()
    y[...] = 0
    assert to_host(x).tolist() == [[0, 1, 1], [0, 0, 7]]
    assert xp.may_share_memory(x, x[1])
    host = x.get()
    host[...] = 9
    assert not (to_host(x) == 9).any()


def test_unwritten_memory_shows():
    assert np.isnan(xp.empty((2, 2), np.float32).get()).all()
    assert (xp.empty(3, np.int64).get() == 2**63 - 1).all()


def test_namespace_and_pieces():
    x = xp.asarray(HOST)
    assert namespace(x) is xp
    assert list(pieces(xp.zeros(10**6))) == [slice(0, 10**6)]
    assert list(pieces(xp.zeros(0))) == []
    assert len(list(pieces(np.zeros(10**6)))) > 10


def test_optimiser_equals_the_host_bit_for_bit():
    rng = np.random.default_rng(0)
    host = [rng.random(50).astype(np.float32) for _ in range(4)]
    device = [xp.asarray(x) for x in host]
    for t in (1, 2):
        for arrays in (host, device):
            ops.adamw(*arrays, np.float64(0.1), 0.9, 0.95, 1e-8, 0.1, t)
            ops.sgd(*arrays[:2], 0.1, 0.1)
    for h, d in zip(host, device, strict=True):
        assert np.array_equal(h, d.get())


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_messages_and_the_ring_carry_device_arrays(ranks):
    def program(comm):
        x = xp.asarray(np.arange(10) + 100.0 * comm.rank)
        ring.all_reduce(comm, x)
        return x.get()

    total = ranks * np.arange(10) + 100.0 * sum(range(ranks))
    assert all(np.array_equal(x, total) for x in run(program, ranks=ranks))
