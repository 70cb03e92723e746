"""What the checks of the lessons see besides right values: who waits, how long, what it touches.

Each wrong version gives right results, and was accepted once.
"""

import numpy as np
import pytest

from minidist.collectives import ring
from minidist.learn import demos, manifest, subject
from minidist.learn.laws import LawBroken, World, never_waits, run_all
from minidist.testing.mutants import mutate

LESSONS = manifest.load()
GATHER = "yield Exchange(comm, piece(r - s), (r + 1) % n, piece(r - 1 - s), (r - 1) % n)"
IN_TURN = """halves = [Exchange(comm, piece(r - s), (r + 1) % n)]
        halves.insert(r % 2, Exchange(comm, None, None, piece(r - 1 - s), (r - 1) % n))
        yield halves[0]
        yield halves[1]"""
OWN_HOST = (
    "[Row(i, platform.node(), os.getpid(), d) for i, d in enumerate(comm.gather_objects(device))]"
)
MINE = "Row(comm.rank, platform.node(), os.getpid(), device)"
OTHERS, ALL_BUT_0 = "[r for r in range(comm.size) if r != root]", "list(range(1, comm.size))"
WAIT, SCATTER = "self.wait_all(requests)", "reduce_scatter(comm, x, own, op)"
WRONG = [
    ("00.1", "i * small", "1.0 * i * small", "1 rank, n = 0: rank 0 should hold [0:0], holds [0.0"),
    ("00.3", "comm.gather_objects(mine)", OWN_HOST, "2 ranks, in the table of rank 0: rank 1"),
    ("00.3", MINE, f"tuple({MINE})", "1 rank, in the table of rank 0: rank 0 should say Row("),
    ("02.1", WAIT, f"{WAIT}; self.barrier()", "3 ranks, n = 0"),
    ("02.2", "return out", "x[...] = 0; return out", "2 ranks, n = 1, `x`: rank 0 should hold"),
    ("02.3", "if turn > 0:", "if turn > 1:", "2 ranks, messages of turns 0 to 1 take"),
    ("02.3", "clock or (", "(", "2 ranks, a message takes 1.25 s"),
    ("02.5", "link.latency * link.bandwidth", "int(link.latency * link.bandwidth)", "latency 0.5"),
    ("03.1", OTHERS, ALL_BUT_0, "root 1, 2 ranks, n = 0"),
    ("03.1", "yield Exchange(comm, recv=arriving, source=source)", "comm.recv(arriving, source)",
     "2 ranks: rank 0 should use yield, uses comm.recv"),
    ("03.4", GATHER, IN_TURN, "2 ranks, 840 bytes, latency 0.5 s, 8 bytes/s: rank 0 should need"),
    ("03.5", "yield from reduce_scatter.steps(comm, x, own, op)", SCATTER,
     "1 rank: rank 0 should use yield, uses a call of another collective"),
]  # fmt: skip


def hold(tests, module):
    for test in tests:
        test(module)


@pytest.mark.parametrize(("number", "old", "new", "told"), WRONG, ids=range(len(WRONG)))
def test_right_values_are_not_enough(number, old, new, told):
    lesson = manifest.find(LESSONS, number[:2])
    blank, module = subject.blank_by_id(lesson, number), subject.solved(lesson)
    setattr(module, blank.name, mutate(subject.solution(blank), old, new))
    every = subject.checks(lesson).items()
    tests = [test for name, test in every if subject.blank_of(lesson, name) == blank]
    with pytest.raises(LawBroken) as found:
        hold(tests, module)
    assert str(found.value).startswith(told)
    assert "the law: " in str(found.value)


def test_a_body_that_only_yields_never_waits():
    never_waits(ring.all_reduce, lambda rank, ranks: (np.ones(ranks),))


@pytest.mark.parametrize(
    ("meets", "told"), [(True, "rank 1 is done"), (False, "rank 1 waits: bar")]
)
def test_a_deadlock_is_a_broken_law(meets, told):
    def program(comm, n):
        return comm.barrier() if comm.rank else comm.recv(np.ones(n), 1)

    with pytest.raises(LawBroken, match="no rank can go on") as found:
        run_all(World(2, 1), program, law="somebody sends", meets=meets)
    assert told in found.value.table
    assert "rank 0 waits: receive from rank 1" in found.value.table
    assert found.value.law == "somebody sends"


@pytest.mark.parametrize(
    ("number", "word", "told"),
    [(1, "rank", "1 rank"), (0, "rank", "0 ranks"), (2, "process", "2 processes")],
)
def test_counted(number, word, told):
    assert demos.counted(number, word) == told
