"""Flat buffers: which parameters share one, and which pieces of them lie in a chunk."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.errors import ConfigError
from minidist.nn import Parameter
from minidist.parallel import flat
from minidist.parallel.flat import Layout, group
from minidist.testing.mutants import mutate, rebind


class Unit:
    """A unit that owns some parameters and computes nothing."""

    def __init__(self, *own):
        self.own = own

    def parameters(self):
        return list(self.own)


def vector(name, size, **how):
    return Parameter(name, (size,), init=1.0, **how)


def check_shards(sizes, ranks, kind=Layout):
    """The chunks of all ranks hold every element once, each where the whole buffer has it."""
    layout = kind([vector(f"p {i}", n) for i, n in enumerate(sizes)])
    whole = np.arange(layout.size)
    views = {p.name: view for p, view in layout.views(whole)}
    seen = {name: [] for name in views}
    for start, stop in pairwise(bounds(layout.size, ranks)):
        chunk = whole[start:stop]
        filled = 0
        for shard, place in layout.shards(slice(start, stop)):
            assert 0 <= place.start == filled < place.stop <= chunk.size
            filled = place.stop
            name = shard.parameter.name
            assert np.array_equal(chunk[place], views[name][shard.start : shard.stop])
            seen[name] += range(shard.start, shard.stop)
        assert filled == chunk.size
    assert seen == {name: list(range(view.size)) for name, view in views.items()}


@example([4, 6], 4)
@example([0, 1, 0], 3)
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 6))
def test_chunks_hold_every_element_once(sizes, ranks):
    check_shards(sizes, ranks)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first - part.start, last", "first - start, last"),
        ("Shard(p, first - start, last - start)", "Shard(p, 0, last - first)"),
        ("if first < last", "if start == first < last"),
        ("if first < last", "if first <= last"),
    ],
)
def test_a_wrong_shard_is_seen(old, new):
    with pytest.raises((AssertionError, ValueError)):
        check_shards([4, 6, 0], 4, mutate(Layout, old, new))


def check_fill(kind=Layout):
    """Values of a chunk are those of the whole parameters, however they are cut."""
    own = [vector("a", 5), vector("b", 7)]
    want = np.concatenate([p.initial(0, p.size) for p in own]).astype(np.float16)
    for ranks in (1, 3, 5):
        for a, b in pairwise(bounds(12, ranks)):
            target = np.full(b - a, np.nan, np.float32)
            kind(own).fill(target, slice(a, b), np.float16)
            assert np.array_equal(target, want[a:b].astype(np.float32))


def test_first_values_do_not_depend_on_the_cut(monkeypatch):
    check_fill()
    monkeypatch.setattr(flat, "AT_ONCE", 2)
    check_fill()


def test_a_value_that_is_not_rounded_is_seen():
    with pytest.raises(AssertionError):
        check_fill(mutate(Layout, ".astype(through)", ""))


def model():
    """Three units of 4, 2 and 3 elements of their own, and a table the ends share."""
    tied = vector("tied", 8)
    return [Unit(tied, vector("a", 4)), Unit(vector("b", 2)), Unit(vector("c", 3), tied)]


def check_groups(elements, want, kind=group):
    found = [(g.users, [p.name for p in g.parameters]) for g in kind(model(), elements)]
    assert found == want


def check_all_groups(kind):
    for elements, want in JOINED:
        check_groups(elements, want, kind)


JOINED = [
    (0, [((0,), ["a"]), ((1,), ["b"]), ((2,), ["c"]), ((0, 2), ["tied"])]),
    (3, [((0, 1), ["a", "b"]), ((2,), ["c"]), ((0, 2), ["tied"])]),
    (4, [((0,), ["a"]), ((1, 2), ["b", "c"]), ((0, 2), ["tied"])]),
    (6, [((0, 1, 2), ["a", "b", "c"]), ((0, 2), ["tied"])]),
]


@pytest.mark.parametrize(("elements", "want"), JOINED)
def test_buckets_are_joined_from_the_last_unit_until_they_have_enough(elements, want):
    """A last bucket may stay small, as that of unit 0 does; a shared table is never joined."""
    check_groups(elements, want)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("joined[-1].size < elements", "joined[-1].size <= elements"),
        ("in reversed(groups)", "in groups"),
        ("(*g.users, *last.users)", "(*last.users, *g.users)"),
        ("joined[::-1]", "joined"),
    ],
)
def test_a_wrong_join_is_seen(old, new):
    by_user = rebind(flat._by_user, join=mutate(flat.join, old, new))
    with pytest.raises(AssertionError):
        check_all_groups(rebind(group, _by_user=by_user))


def test_a_shared_table_that_is_joined_is_seen():
    broken = mutate(flat._by_user, "if len(us) == 1]", "]")
    with pytest.raises(AssertionError):
        check_all_groups(rebind(group, _by_user=broken))


def test_what_is_reduced_or_trained_otherwise_is_not_joined():
    units = [Unit(vector("a", 1), vector("b", 1, trainable=False)), Unit(vector("c", 1))]
    names = [[p.name for p in g.parameters] for g in group(units, 100)]
    assert names == [["a", "c"], ["b"]]


def test_two_parameters_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two parameters are called w: share one or rename one"):
        group([Unit(vector("w", 1)), Unit(vector("w", 1))])
