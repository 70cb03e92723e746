"""Code without an end: it is ended, and the line of the student's code is known."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from minidist.collectives.steps import Collective
from minidist.comm import run
from minidist.errors import DeadlockError, RankError, StuckError
from minidist.learn import limit, manifest, report, subject

LESSON = manifest.find(manifest.load(), "03")
EXERCISE = LESSON.folder / "exercise.py"
TEST = "test_broadcast"


def written(source, **names):
    """What ``source`` defines, as if it stood in the exercise."""
    scope = {**vars(subject.solved(LESSON)), **names}
    exec(compile(source, str(EXERCISE), "exec"), scope)
    return SimpleNamespace(**scope)


def forever():
    while True:
        pass


def test_a_limit_ends_a_loop_and_leaves_nothing_behind():
    with pytest.raises(limit.OutOfTime, match=r"no end after 0\.05 s"), limit.limit(0.05):
        forever()
    with limit.limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_loop_that_catches_everything_ends_at_the_second_limit():
    caught = []

    def stubborn():
        while len(caught) < 2:
            try:
                forever()
            except limit.OutOfTime as error:
                caught.append(error)

    with limit.limit(0.05):
        stubborn()
    assert len(caught) == 2


EXCHANGES = """
def program(comm, x):
    while True:
        yield Exchange(comm, x, 1 - comm.rank, x.copy(), 1 - comm.rank)
"""


def test_ranks_that_exchange_for_ever_show_their_yield():
    body = Collective(written(EXCHANGES).program)
    with pytest.raises(limit.OutOfTime) as caught, limit.limit(0.2):
        run(lambda comm: body(comm, np.zeros(2)), ranks=2)
    text = report.explain(caught.value, LESSON, TEST)
    assert "exercise.py, line 4, in program:" in text


def test_a_loop_inside_a_rank_shows_the_students_line_and_not_where_it_was_ended(monkeypatch):
    monkeypatch.setattr(limit, "TICK", 0.02)
    program = written("def program(comm):\n    forever()\n", forever=forever).program
    with pytest.raises(StuckError) as caught, limit.limit(60):
        run(program, ranks=1, stuck_after=0.2)
    text = report.explain(caught.value, LESSON, TEST)
    assert text.splitlines()[:3] == [
        "on rank 0 of 1",
        "",
        "StuckError: rank 0 has computed for more than 0.2 s without giving way: is the loop "
        "endless?",
    ]
    assert "exercise.py, line 2, in program:" in text
    assert "stuck_after" not in text


def test_a_loop_that_was_never_seen_keeps_its_place():
    with pytest.raises(StuckError) as caught:
        run(lambda comm: forever(), ranks=1, stuck_after=0.05)
    text = report.explain(caught.value, LESSON, TEST)
    assert "in forever: is the loop endless?" in text
    assert "stuck_after" not in text
    text = report.explain(limit.OutOfTime("no end"), LESSON, TEST)
    assert text.startswith("no end\n\nread: the contract of broadcast, ")


def test_a_child_process_may_leave():
    with limit.stay():
        child = os.fork()
        if not child:
            os._exit(3)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        with pytest.raises(limit.Left, match=r"os\._exit\(0\) ends the whole process"):
            os._exit(0)


# --- what is caught too early, and what is waited for ---------------------------------------------

CATCHES = """
def program(comm, x):
    try:
        yield Exchange(comm, x, 99)
    except BaseException:
        pass
"""


def test_an_error_that_a_body_swallows_is_shown_all_the_same():
    body = Collective(written(CATCHES).program)
    with pytest.raises(StopIteration) as caught:
        run(body, np.zeros(1), ranks=1)
    text = report.explain(caught.value, LESSON, TEST)
    assert isinstance(caught.value.__context__, RankError)
    assert text.startswith("your code has caught this at a yield and gone on; let it pass there:")
    assert "RankError: rank 0, send in program #1" in text
    assert "exercise.py, line 4, in program:" in text


def test_a_deadlock_shows_the_root_and_a_law():
    def program(comm):
        if comm.rank:
            subject.solved(LESSON).broadcast(comm, np.zeros(1), root=2)

    with pytest.raises(DeadlockError) as caught:
        run(program, ranks=3, synchronous=True)
    text = report.explain(caught.value, LESSON, TEST)
    assert text.startswith("3 ranks")
    assert "in broadcast #1 (tree, root 2) of world" in text
    assert "the law: every receive needs its send, " in text


def test_none_where_the_laws_want_a_value():
    with pytest.raises(AttributeError) as caught:
        None.reshape  # noqa: B018
    text = report.explain(caught.value, LESSON, TEST)
    assert "Has broadcast returned None? Then a `return` is missing." in text
