"""The map from (channel, tag) to MPI's tag (two formulas overlapped in ooples/AiDotNet#845)."""

import pytest

from minidist.comm.checks import TAGS
from minidist.comm.tags import TagSpace
from minidist.errors import LaunchError
from minidist.testing.mutants import mutate

LIMITS = [2**31 - 1, 2**29 - 1, 6 * TAGS - 1]  # Open MPI, MPICH, the smallest that will do


def check_no_two_meet(tag):
    for limit in LIMITS:
        space = TagSpace(limit)
        alone = {0, 1, 2, TAGS - 1, TAGS, TAGS + 1, 2 * TAGS + 1, space.half - 2, space.half - 1}
        places = [(channel, 0) for channel in alone]
        channels = {0, 1, 2, space.ranges - 1}
        places += [(c, t) for c in channels for t in (1, 2, TAGS - 2, TAGS - 1)]
        got = {tag(space, c, t) for c, t in places}
        assert len(got) == len(places)
        assert min(got) == 0
        assert max(got) <= limit


def test_two_channels_or_tags_never_meet():
    check_no_two_meet(TagSpace.tag)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.half + _turn", "_turn"),
        ("* TAGS + tag", "* (TAGS - 2) + tag"),
        ("_turn(channel, self.half)", "0"),
        ("_turn(channel, self.ranges) * TAGS", "0"),
        ("self.half + _turn", "self.half * 2 + _turn"),
    ],
)
def test_wrong_maps_are_found(old, new):
    with pytest.raises(AssertionError):
        check_no_two_meet(mutate(TagSpace.tag, old, new))


def test_collectives_come_round_only_after_half_of_all_tags():
    space = TagSpace(2**31 - 1)
    assert space.tag(1, 0) == space.tag(2**30, 0) == 1
    assert len({space.tag(c, 0) for c in range(100_000)}) == 100_000


def test_a_library_with_few_tags_is_refused():
    with pytest.raises(LaunchError, match="allows tags up to 32767, and channels need at least"):
        TagSpace(32767)
