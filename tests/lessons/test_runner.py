"""The lesson runner as a student uses it: lessons, lesson, hint, solution, reset, watch, ranks."""

import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minidist import cli, processes
from minidist.collectives import server
from minidist.errors import LessonError
from minidist.learn import manifest, progress, ranks, real, reset, running, solution, subject, watch

LESSONS = manifest.load()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the lessons to work in, without progress."""
    copy = tmp_path / "lessons"
    ignore = shutil.ignore_patterns("__pycache__", progress.FILE, "*.kept*")
    shutil.copytree(manifest.lessons_folder(), copy, ignore=ignore)
    monkeypatch.setenv(manifest.VARIABLE, str(copy))
    return copy


def said(capsys, *words, status=0):
    """What a command prints; on standard error if it fails."""
    assert cli.main([*words]) == status
    out, err = capsys.readouterr()
    return out if status == 0 else err


def solve(lesson, folder):
    """Put the package's objects behind the exercise's own."""
    path = folder / lesson.folder.name / "exercise.py"
    names = [(b.name, *b.solution.rpartition(".")[::2]) for b in lesson.blanks]
    lines = [f"from {module} import {last} as {name}" for name, module, last in names]
    path.write_text("\n".join([path.read_text("utf-8"), *lines, ""]), "utf-8")


# --- progress -------------------------------------------------------------------------------------


def test_events_add_up_and_survive_a_new_process(tmp_path):
    one = progress.load(tmp_path)
    one.note("done", "00")
    one.note("hint", "02.1", "2")
    one.note("hint", "02.1", "1")
    one.note("looked", "03.1")
    one.note("predicted", "03", "14 and\n 1.75 ")
    with (tmp_path / progress.FILE).open("a") as file:
        file.write("# mine\n\n")
    for found in (one, progress.load(tmp_path)):
        assert (found.done, found.hints, found.looked) == ({"00"}, {"02.1": 2}, {"03.1"})
        assert found.predicted == {"03": "14 and 1.75"}
    assert progress.load(tmp_path).current(LESSONS) == LESSONS[1]


def test_a_last_line_without_an_end_is_not_joined(tmp_path):
    (tmp_path / progress.FILE).write_text("2026-11-30 done 00")
    progress.load(tmp_path).note("done", "01")
    assert progress.load(tmp_path).done == {"00", "01"}


@pytest.mark.parametrize("line", ["x", "2026-11-30 done", "2026-11-30 won 00", "d hint 01.1 two"])
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / progress.FILE).write_text(f"2026-11-30 done 00\n{line}\n")
    with pytest.raises(LessonError, match=r"line 2 of .*progress\.txt is none of mine: .*delete"):
        progress.load(tmp_path)


def test_progress_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / progress.FILE).mkdir()
    with pytest.raises(LessonError, match=r"cannot note progress in .*: Is a directory"):
        progress.Progress(tmp_path / progress.FILE).note("done", "00")


# --- lessons, lesson ------------------------------------------------------------------------------


def marks(capsys):
    text = said(capsys, "lessons")
    return {m[2]: m[1] for m in re.finditer(r"^([ *o>]) (\d\d)  ", text, re.M)}


def test_the_list_shows_what_is_done_and_where_to_go_on(folder, capsys):
    assert marks(capsys) == {one.id: ">" if one == LESSONS[0] else " " for one in LESSONS}
    done = progress.load(folder)
    done.note("done", "00")
    done.note("looked", "01.1")
    done.note("done", "01")
    found = marks(capsys)
    assert (found["00"], found["01"], found["02"]) == ("*", "o", ">")
    weekend = [t[2:4] for t in said(capsys, "lessons").splitlines() if t.endswith("   weekend")]
    assert weekend == ["01", "02", "03", "05"]


def test_a_lesson_asks_and_runs_its_demo(folder, capfd, monkeypatch):
    monkeypatch.setattr("minidist.learn.lesson.missing", lambda: "no MPI today")
    assert cli.main(["lesson"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("lesson 00: Hello, ranks\nneeds any laptop, about 10 minutes\n")
    assert "Nobody is there to type a prediction" in out
    assert "<details>" not in out
    assert "(No real ranks here: no MPI today)" in out
    assert "all parts  45" in out
    assert out.rstrip().endswith("then write: minidist check 00")


def test_a_prediction_is_noted_and_the_answer_shown(folder, capfd, monkeypatch):
    monkeypatch.setattr("minidist.learn.lesson.run_demo", lambda lesson: 0)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: " 14 and 1.75 ")
    assert cli.main(["lesson", "3"]) == 0
    assert "Server: 14.00 M with 8 ranks" in capfd.readouterr().out
    assert progress.load(folder).predicted == {"03": "14 and 1.75"}


# --- hint, solution, reset ------------------------------------------------------------------------


def test_hints_come_one_by_one(folder, capsys):
    blank = LESSONS[0].blanks[1]
    for number in (1, 2, 3, 3):
        out = said(capsys, "hint", "0.2")
        assert [h in out for h in blank.hints] == [number >= i for i in (1, 2, 3)]
    assert "That is all" in out
    assert progress.load(folder).hints == {"00.2": 3}


@pytest.mark.parametrize("command", ["hint", "solution"])
@pytest.mark.parametrize("number", ["00.9", "00", "77.1", "x", ""])
def test_an_unknown_blank_is_a_sentence(folder, capsys, command, number):
    text = said(capsys, command, number, status=1)
    assert text.startswith(f"minidist {command}: ")
    assert text.count("\n") == 1
    assert "there is no lesson" in text or "has no blank" in text


def test_a_solution_is_shown_beside_yours_and_noted(folder, capsys):
    out = said(capsys, "solution", "00.1")
    assert "00.1  bounds is minidist.bounds.bounds" in out
    assert "from yours" not in out, "it is blank"
    assert progress.load(folder).looked == {"00.1"}
    path = folder / LESSONS[0].folder.name / "exercise.py"
    path.write_text(
        path.read_text() + "\ndef bounds(n, parts):\n    return [n // parts]\n", "utf-8"
    )
    assert "-    return [n // parts]\n" in said(capsys, "solution", "00.1")


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_every_solution_has_a_text(lesson):
    for blank in lesson.blanks:
        assert blank.solution.rpartition(".")[2].rpartition(":")[2].strip("_") in solution.text_of(
            subject.solution(blank)
        )


def test_reset_brings_the_blanks_back_and_keeps_what_was_written(folder, capsys, monkeypatch):
    path = folder / LESSONS[0].folder.name / "exercise.py"
    shipped = path.read_bytes()
    monkeypatch.setattr(reset, "blank_version", lambda lesson: "abc")
    monkeypatch.setattr(reset, "show", lambda c, lesson, name: shipped if "py" in name else None)
    assert "is blank already" in said(capsys, "reset", "00")
    for number in (1, 2):
        path.write_text(f"mine {number}")
        assert f"exercise.{number}.kept.py" in said(capsys, "reset", "0")
        assert path.read_bytes() == shipped
        assert path.with_name(f"exercise.{number}.kept.py").read_text() == f"mine {number}"


def test_the_blank_version_is_the_newest_that_is_blank(monkeypatch):
    lesson = LESSONS[0]
    blank = "".join(f'"{b.id}: " ' for b in lesson.blanks).encode()
    texts = {"c3": b"solved", "c2": blank, "c1": blank}
    monkeypatch.setattr(reset, "git", lambda *words: "c3\nc2\nc1\n")
    monkeypatch.setattr(reset, "show", lambda c, lesson, name: texts[c])
    assert reset.blank_version(lesson) == "c2"
    texts["c2"] = texts["c1"] = b"solved"
    with pytest.raises(LessonError, match="has no blank exercise of lesson 00; clone"):
        reset.blank_version(lesson)


def test_reset_without_a_repository_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(reset, "checkout", lambda: tmp_path)
    with pytest.raises(LessonError, match=r"reset asks git for the blank file: .*not a git"):
        reset.git("log")


# --- check: watch, symbolic, ranks ----------------------------------------------------------------


def test_watch_checks_again_after_each_save(tmp_path, monkeypatch):
    """Statuses 1, 1, 0: it ends with the success. A file may be away for a moment."""
    path, seen = tmp_path / "exercise.py", []
    path.write_text("1")

    def checked(words):
        seen.append(words[3:])
        return subprocess.CompletedProcess(words, 0 if len(seen) == 3 else 1)

    def pause(seconds):
        if path.exists() and len(seen) == 1:
            path.unlink()
        else:
            path.write_text("2" * len(seen))

    monkeypatch.setattr(watch.subprocess, "run", checked)
    monkeypatch.setattr(watch.time, "sleep", pause)
    assert watch.watch([path], ["check", "00"]) == 0
    assert seen == [["check", "00"]] * 3


def test_ctrl_c_ends_a_watch(folder, tmp_path):
    words = [sys.executable, "-m", "minidist", "check", "00", "--watch"]
    job = processes.start(words, tmp_path, {manifest.VARIABLE: str(folder)})
    for line in job.stdout:
        if line.startswith("waiting for "):
            break
    job.send_signal(signal.SIGINT)
    done = processes.finish(job, 30)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_solved_lesson_passes_on_real_ranks_and_is_noted(folder, capsys, mpirun):
    lesson = LESSONS[0]
    solve(lesson, folder)
    for size in ranks.SIZES[:2]:
        found = manifest.find(manifest.load(), lesson.id)
        programs, failure = ranks.again(found, size, None)
        assert failure == ""
        assert programs > 10
    assert said(capsys, "check", "--in-process").count("  ok  ") >= 3
    assert progress.load(folder).done == {"00"}


def test_what_fails_on_real_ranks_only_is_told(folder, mpirun):
    """Each rank says that it is rank 0 when there is more than one process."""
    lesson = manifest.find(manifest.load(), "00")
    solve(lesson, folder)
    path = folder / lesson.folder.name / "exercise.py"
    wrong = (
        "\nimport minidist.roster as _r\n"
        "def roster(comm, device):\n"
        "    rows = _r.roster(comm, device)\n"
        "    return rows[::-1] if type(comm).__name__ == 'MpiComm' else rows\n"
    )
    path.write_text(path.read_text("utf-8") + wrong, "utf-8")
    programs, failure = ranks.again(lesson, 2, None)
    assert programs == 0
    assert failure.startswith("2 MPI ranks: ")
    assert "the law: " in failure


def test_programs_go_to_the_ranks_that_there_are_and_others_stay_in_process():
    class Two:
        size = 2

        def gather_objects(self, value):
            return [value, value]

    real.RANKS.comm = Two()
    try:
        assert real.run(lambda comm: comm.size, ranks=2) == [2, 2]
        assert real.run(lambda comm: comm.rank, ranks=3) == [0, 1, 2]
        assert real.run(lambda comm: comm.rank, ranks=2, links=(1.0, 1.0)) == [0, 1]
        assert real.RANKS.programs == 1
    finally:
        real.RANKS.comm, real.RANKS.programs = None, 0


def test_the_score_of_lesson_03_is_at_its_bound():
    lesson = manifest.find(LESSONS, "03")
    rows = subject.load_file(lesson.file("check.py")).score(subject.solved(lesson))
    assert len(rows) == 6
    assert all(yours == bound for _, yours, bound in rows)


def test_an_all_reduce_worse_than_its_bound_is_seen():
    lesson = manifest.find(LESSONS, "03")
    worse = SimpleNamespace(**vars(subject.solved(lesson)))
    worse.all_reduce = server.all_reduce
    rows = subject.load_file(lesson.file("check.py")).score(worse)
    assert [yours > bound for _, yours, bound in rows][1]


@pytest.mark.parametrize("left", [set(), {"05.1"}])
def test_who_owns_what_is_asked_first_of_blanks_that_are_filled(left, monkeypatch):
    lesson = manifest.find(LESSONS, "05")
    monkeypatch.setattr(running, "blanks_left", lambda lesson: left)
    module = subject.load_file(lesson.file("check.py"))
    items = [
        SimpleNamespace(name=name, obj=test, module=module)
        for name, test in vars(module).items()
        if name.startswith("test_")
    ]
    running.Reporter(lesson, None).pytest_collection_modifyitems(items)
    first = [item.name for item in items[:2]]
    assert first == (
        ["test_join", "test_micro_batches"] if left else ["test_micro_batches", "test_join"]
    )
