"""Who is where: rows by rank, the same on every rank, and what each rank says of itself."""

import json
import os
import platform

import pytest

from minidist.comm import run
from minidist.roster import Row, roster, table
from minidist.testing.mutants import mutate


def check_roster(function):
    for ranks in (1, 3, 5):
        tables = run(lambda comm: function(comm, f"card {comm.rank}"), ranks=ranks)
        host, process = platform.node(), os.getpid()
        assert tables[0] == [Row(r, host, process, f"card {r}") for r in range(ranks)]
        assert all(rows == tables[0] for rows in tables)


def test_a_row_for_each_rank_on_every_rank():
    check_roster(roster)


@pytest.mark.parametrize(
    ("old", "new"),
    [("Row(comm.rank,", "Row(0,"), ("comm.gather_objects(mine)", "[mine]")],
)
def test_mutants_are_rejected(old, new):
    with pytest.raises(AssertionError):
        check_roster(mutate(roster, old, new))


def test_it_costs_no_traffic():
    def program(comm):
        roster(comm, "cpu")
        return comm.traffic.messages

    assert run(program, ranks=3) == [0, 0, 0]


def test_the_table_stands_in_columns():
    rows = [Row(0, "ant", 71402, "cpu"), Row(10, "bumblebee", 9, "cuda:1 (H100 7be01d44)")]
    assert table(rows).splitlines() == [
        "rank  host       process  device",
        "   0  ant          71402  cpu",
        "  10  bumblebee        9  cuda:1 (H100 7be01d44)",
    ]


REAL = """
import json
from minidist.comm import world
from minidist.roster import roster

comm = world()
rows = roster(comm, "cpu")
if comm.rank == 0:
    print(json.dumps(rows))
"""


def test_real_ranks_are_processes_of_their_own(mpirun):
    rows = json.loads(mpirun(REAL, ranks=3).stdout)
    assert [row[0] for row in rows] == [0, 1, 2]
    assert len({row[2] for row in rows}) == 3
    assert os.getpid() not in {row[2] for row in rows}
