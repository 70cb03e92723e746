"""A parameter's first values do not depend on how it is cut, or on anything drawn before."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.errors import ArrayError, ConfigError
from minidist.nn import Parameter, Shard, allocate
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from minidist.testing.strategies import boxes, shapes


def whole(shape, **keywords):
    p = Parameter("w", shape, init=0.3, seed=5, **keywords)
    return p.initial(0, p.size).reshape(p.local)


def check_boxes(parameter, shape, box):
    """Traps 91 and 105: a piece of the whole is the piece at that place."""
    p = parameter("w", shape, box, init=0.3, seed=5)
    inside = whole(shape)[tuple(slice(a, b) for a, b in box)]
    assert p.local == inside.shape
    assert p.size == inside.size
    assert np.array_equal(p.initial(0, p.size), inside.reshape(inside.size))


@given(shapes(), st.data())
def test_any_box_holds_its_piece_of_the_whole(shape, data):
    check_boxes(Parameter, shape, data.draw(boxes(shape)))


@pytest.mark.parametrize(
    ("old", "new"),
    [("(first + along) * stride", "along * stride"), ("stride *= n", "stride *= last - first")],
)
def test_box_mutants(old, new):
    with pytest.raises(AssertionError):
        check_boxes(mutate(Parameter, old, new), (4, 6), ((1, 3), (2, 5)))


@given(shapes(), st.data())
def test_any_range_is_the_slice_of_the_box(shape, data):
    p = Parameter("w", shape, data.draw(boxes(shape)), init=0.3, seed=5)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, p.size)] * 2)))
    assert np.array_equal(p.initial(start, stop), p.initial(0, p.size)[start:stop])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_the_first_values_are_the_same_on_any_number_of_ranks(ranks):
    """Trap 91: cut by rows or by columns over the ranks, the gathered weight is the same."""
    cuts = list(pairwise(bounds(7, ranks)))
    rows = [Parameter("w", (7, 3), (cut, (0, 3)), init=0.3, seed=5) for cut in cuts]
    columns = [Parameter("w", (3, 7), ((0, 3), cut), init=0.3, seed=5) for cut in cuts]
    by_rows = np.concatenate([p.initial(0, p.size) for p in rows])
    by_columns = np.concatenate([p.initial(0, p.size).reshape(p.local) for p in columns], 1)
    assert np.array_equal(by_rows.reshape(7, 3), whole((7, 3)))
    assert np.array_equal(by_columns, whole((3, 7)))


def test_two_names_and_two_seeds_differ_and_one_name_does_not():
    """Trap 92, in any order of drawing."""

    def first(name, seed):
        return Parameter(name, (4, 4), init=1.0, seed=seed).initial(0, 16)

    a, b, c, again = first("a", 1), first("b", 1), first("a", 2), first("a", 1)
    assert np.array_equal(a, again)
    assert not np.isin(a, b).any()
    assert not np.isin(a, c).any()


def test_golden_first_values():
    """Any release starts from these: reported losses rest on them."""
    got = Parameter("w", (2, 2), init=2.0, seed=5).initial(0, 4)
    assert np.allclose(got, [0.63021953, -2.46565827, -2.50998792, 1.03001353], rtol=1e-7)


def test_the_spread_is_what_was_asked_for():
    values = Parameter("w", (200, 100), init=0.02, seed=0).initial(0, 20000)
    assert abs(values.mean()) < 0.001
    assert abs(values.std() - 0.02) < 0.001


def test_constants():
    assert Parameter("n", (3,), init="ones").initial(1, 3).tolist() == [1, 1]
    assert Parameter("b", (3,), init="zeros").initial(0, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("box", [((0, 3), (0, 4)), ((0, 2),), ((2, 1), (0, 4)), ((-1, 2), (0, 4))])
def test_a_box_outside_the_shape_is_refused(box):
    with pytest.raises(ConfigError, match="w: box"):
        Parameter("w", (2, 4), box)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 9), (3, 2)])
def test_a_range_outside_the_box_is_refused(start, stop):
    with pytest.raises(ArrayError, match="w: no range"):
        Parameter("w", (2, 4)).initial(start, stop)


def test_a_description_allocates_nothing():
    p = Parameter("huge", (10**7, 10**7))
    assert p.data is None
    assert p.grad is None
    assert p.size == 10**14
    assert Parameter("huge", (10**7, 10**7), init=1.0).initial(10**13, 10**13 + 2).shape == (2,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_allocate(dtype):
    p, scalar, empty = Parameter("w", (2, 3), init=1.0), Parameter("s", ()), Parameter("e", (0, 3))
    allocate([p, scalar, empty, p], dtype, gradients=True)
    assert np.array_equal(p.data, p.initial(0, 6).astype(dtype).reshape(2, 3))
    for x in (p, scalar, empty):
        assert x.data.dtype == x.grad.dtype == dtype
        assert x.data.shape == x.grad.shape == x.shape
        assert not x.grad.any()
    allocate([p], dtype)
    assert p.grad is None


def test_a_shared_parameter_is_allocated_once(monkeypatch):
    p, drawn = Parameter("w", (2, 3), init=1.0), []
    monkeypatch.setattr(p, "initial", lambda *r: drawn.append(r) or np.zeros(6))
    allocate([p, p], np.float32)
    assert drawn == [(0, 6)]


def test_allocate_on_a_device():
    p = Parameter("w", (2, 3), init=1.0)
    allocate([p], np.float32, fake_device.xp, gradients=True)
    assert np.array_equal(p.data.get().reshape(6), p.initial(0, 6).astype(np.float32))
    p.accumulate(fake_device.xp.ones((2, 3), np.float32))
    assert p.grad.get().sum() == 6


def test_accumulate_adds_and_refuses_what_does_not_fit():
    p = Parameter("w", (2, 3))
    with pytest.raises(ArrayError, match="w: no storage"):
        p.accumulate(np.ones((2, 3)))
    allocate([p], np.float64, gradients=True)
    p.accumulate(np.arange(6.0).reshape(2, 3))
    p.accumulate(np.ones((2, 3)))
    assert p.grad.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(ArrayError, match=r"w: a gradient of shape \(3,\)"):
        p.accumulate(np.ones(3))


def test_a_frozen_parameter_takes_no_gradient():
    p = Parameter("w", (2,), trainable=False)
    p.accumulate(np.ones(2))
    assert p.grad is None


def test_a_shard_can_be_a_key():
    p = Parameter("w", (2, 3))
    assert {Shard(p, 0, 3): "state"}[Shard(p, 0, 3)] == "state"
    assert Shard(p, 0, 3) != Shard(Parameter("w", (2, 3)), 0, 3)
