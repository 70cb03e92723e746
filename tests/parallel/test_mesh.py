"""The mesh: places, groups, and sizes that do not fit."""

from itertools import product

import pytest

from minidist.comm import run
from minidist.errors import ConfigError
from minidist.parallel.mesh import AXES, Mesh
from minidist.testing.mutants import mutate

SHAPES = [
    (24, {"tp": 2, "cp": 2, "pp": 3}),
    (6, {"tp": 3}),
    (5, {}),
    (8, {"ep": 2, "tp": 2}),
    (1, {}),
]


def check_mesh(ranks, sizes, kind=Mesh):
    """Groups part the ranks; a group is the ranks that differ along its axes; tp varies fastest."""

    def program(comm):
        mesh = kind(comm, **sizes)
        groups = {axis: mesh.comm(axis).gather_objects(comm.rank) for axis in AXES}
        data = mesh.comm("dp", "cp", "ep").gather_objects(comm.rank)
        assert all(mesh.group(axis) == ranks for axis, ranks in groups.items())
        assert mesh.group("dp", "cp", "ep") == data
        assert int(mesh.ranks[tuple(mesh.index.values())]) == comm.rank
        return groups, data

    found = run(program, ranks=ranks)
    assert found[0][0]["tp"] == list(range(sizes.get("tp", 1)))
    for axis in AXES:
        parts = {tuple(groups[axis]) for groups, _ in found}
        assert sorted(r for part in parts for r in part) == list(range(ranks))
    return found


@pytest.mark.parametrize(("ranks", "sizes"), SHAPES)
def test_groups_part_the_ranks(ranks, sizes):
    check_mesh(ranks, sizes)


def test_the_layout_is_the_documented_one():
    """fairscale#1189: 24 ranks, dp 2, pp 3, cp 2, tp 2, against strides worked out by hand."""
    found = check_mesh(24, SHAPES[0][1])
    stride = {"dp": 12, "pp": 4, "cp": 2, "ep": 2, "tp": 1}
    size = {"dp": 2, "pp": 3, "cp": 2, "ep": 1, "tp": 2}
    for rank, axis in product(range(24), AXES):
        first = rank - rank // stride[axis] % size[axis] * stride[axis]
        assert found[rank][0][axis] == [first + i * stride[axis] for i in range(size[axis])]
    assert found[5][1] == [5, 7, 17, 19]


def test_a_wrong_colour_is_seen():
    broken = mutate(Mesh, "if a not in group)", "if a in group)")
    with pytest.raises(AssertionError):
        check_mesh(*SHAPES[0], broken)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"tp": 4}, "that is 4 ranks; choose sizes whose product is 6"),
        ({"dp": 2, "tp": 2}, "that is 4 ranks"),
        ({"tp": 0}, "tp must be at least 1"),
        ({"pp": -1}, "pp must be at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_one_clear_error(sizes, told):
    with pytest.raises(ConfigError, match="does not fit 6 ranks: .*" + told):
        run(lambda comm: Mesh(comm, **sizes), ranks=6)


def test_groups_that_there_are_not_are_refused():
    with pytest.raises(ConfigError, match=r"no group 'dp\+tp'"):
        run(lambda comm: Mesh(comm, tp=2).comm("dp", "tp"), ranks=4)


def test_it_describes_itself():
    lines = run(lambda comm: Mesh(comm, tp=2).describe(), ranks=4)[3].splitlines()
    assert lines[0] == "mesh dp 2 x tp 2"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["0", "0", "0"], ["1", "0", "1"], ["2", "1", "0"], ["3", "1", "1"],
    ]  # fmt: skip
