"""`minidist check`: what a student sees, through the real command, on a copy of the lessons."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minidist import cli
from minidist.errors import LessonError
from minidist.learn import check, manifest, subject

LESSONS = manifest.load()
LESSON = manifest.find(LESSONS, "03")


def checker(tmp_path):
    """Return a function that checks a lesson, 03, after a change of the text of its exercise.py."""
    folder = tmp_path / "lessons"
    shutil.copytree(manifest.lessons_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))

    def checked(change, *words, lesson=LESSON):
        file = folder / lesson.folder.name / "exercise.py"
        text = file.read_text("utf-8")
        file.write_text(change(text), "utf-8")
        assert file.read_text("utf-8") != text or change is same
        env = {**os.environ, manifest.VARIABLE: str(folder), "PYTEST_ADDOPTS": "--no-such-flag"}
        done = subprocess.run(
            [sys.executable, "-m", "minidist", "check", lesson.id, *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return SimpleNamespace(
            status=done.returncode,
            lines=done.stdout.replace(str(file), "exercise.py").splitlines(),
            errors=done.stderr,
        )

    return checked


@pytest.fixture
def student(tmp_path):
    return checker(tmp_path)


def same(text):
    return text


def blank(number, body):
    """Return the change that puts ``body`` in place of the raise of a blank."""

    def change(text):
        start = text.index(f'"{number}: ')
        start = text.rindex("raise NotImplementedError(", 0, start)
        line = text.rindex("\n", 0, start) + 1
        indent = text[line:start]
        return text[:line] + "".join(indent + row + "\n" for row in body.splitlines()) + text[line:]

    return change


FIRST = """for source in others:
    yield Exchange(comm, recv=arriving, source=source)
    combine(op, result, arriving, out=result)
for to in others:
    yield Exchange(comm, send=result, to=to)
return x if out is None else out"""


def test_as_shipped_it_names_the_first_blank(student):
    seen = student(same)
    assert seen.status == 1
    assert seen.lines[0] == f"lesson 03: {LESSON.title}"
    assert seen.lines[2].startswith("next  03.1  server_all_reduce (about 5 lines): receive the")
    assert seen.lines[-1].startswith("write it in exercise.py:")
    assert len(seen.lines) == 5
    assert seen.errors == ""


def test_a_first_success_leads_to_the_next_blank(student):
    seen = student(blank("03.1", FIRST))
    assert seen.status == 1
    assert seen.lines[1].startswith("  ok  03.1  ")
    assert seen.lines[2].startswith("  ok  03.1  ")
    assert seen.lines[4].startswith("next  03.2  broadcast (about 4 lines): ")


def test_all_right_says_why_and_what_is_next(student):
    lesson = LESSONS[0]  # the quickest
    solutions = (b.solution.rpartition(".") for b in lesson.blanks)
    names = [b.name for b in lesson.blanks]
    lines = [
        f"from {module} import {solution} as {name}"
        for (module, _, solution), name in zip(solutions, names, strict=True)
    ]
    seen = student(lambda text: "\n".join([text, *lines, ""]), "--in-process", lesson=lesson)
    assert seen.status == 0, seen
    assert [line[:6] for line in seen.lines[1:-5]] == ["  ok  "] * len(subject.checks(lesson))
    assert seen.lines[-4].startswith(f"Lesson {lesson.id} is done")
    assert seen.lines[-3].endswith(f'{lesson.folder.name}/README.md, under "Observe"')
    assert seen.lines[-2] == f"how the package does it: minidist solution {lesson.id}.1"
    assert seen.lines[-1] == f"next: lesson {LESSONS[1].id}, {LESSONS[1].title}"


def test_a_counterexample_is_a_table_and_the_law(student):
    seen = student(blank("03.1", FIRST.replace("result, arriving", "arriving, arriving")))
    assert seen.status == 1
    assert seen.lines[2:] == [
        "2 ranks, n = 1: rank 0 should hold [0:1] of ranks 0+1, holds [0:1] of ranks 1+1: "
        "rank 0 is missing, rank 1 is there twice",
        "",
        "  rank  should hold         holds",
        "  -> 0  [0:1] of ranks 0+1  [0:1] of ranks 1+1",
        "     1  [0:1] of ranks 0+1  [0:1] of ranks 1+1",
        "",
        "the law: after an all-reduce every rank has the combination of all inputs, all of it.",
        "",
        seen.lines[-1],
    ]
    assert seen.lines[-1].startswith("read: the contract of server_all_reduce, exercise.py:")
    assert seen.lines[-1].endswith(', and README.md:10, "The first thing that everybody writes"')


def test_a_deadlock_says_who_waits_for_whom(student):
    wrong = FIRST.replace("for to in others:", "for to in others[1:]:")
    seen = student(blank("03.1", wrong))
    assert seen.status == 1
    assert seen.lines[2] == "2 ranks, n = 0, sends that wait for their receive"
    assert seen.lines[4:8] == [
        "DeadlockError: no rank can go on:",
        "  rank 0 is done and waits for the others",
        "  rank 1 waits: receive from rank 0, tag 0, in server_all_reduce #1 of world",
        "",
    ]
    assert seen.lines[8].startswith("the law: every receive needs its send, ")


def test_an_error_shows_the_students_own_lines(student):
    seen = student(blank("03.1", "print('hello')\nyield Exchange(comm, recv=ariving, source=1)"))
    assert seen.lines[2:] == [
        "1 rank, n = 0, sends that wait for their receive, on rank 0 of 1",
        "",
        seen.lines[4],
        "",
        seen.lines[6],
        "    yield Exchange(comm, recv=ariving, source=1)",
        "",
        seen.lines[9],
        "",
        "your code printed:",
        "    hello",
    ]
    assert seen.lines[4].startswith("NameError: name 'ariving' is not defined")
    assert seen.lines[6].startswith("exercise.py, line ")
    assert seen.lines[6].endswith(", in server_all_reduce:")


def test_an_error_of_an_exchange_shows_the_yield(student):
    seen = student(blank("03.1", "yield Exchange(comm, recv=arriving, source=7)"))
    assert (
        "RankError: rank 0, receive in server_all_reduce #1 of world: there is no rank 7"
        in (seen.lines[4])
    )
    assert seen.lines[7] == "    yield Exchange(comm, recv=arriving, source=7)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("def broadcast(comm", "def broadcast((comm"), "invalid syntax"),
        (lambda t: t.replace("def broadcast", "def brodcast"), "exercise.py has no broadcast any"),
        (lambda t: f"{t}\n1 / 0\n", "ZeroDivisionError: division by zero"),
        (blank("03.1", "return x"), "returns something else"),
    ],
    ids=["syntax", "gone", "import", "wrong array"],
)
def test_an_exercise_that_cannot_be_checked(student, change, words):
    seen = student(change)
    assert seen.status == 1
    assert words in "\n".join(seen.lines)
    assert len(seen.lines) < 20


def test_the_zero_of_a_number_may_be_left_out():
    assert manifest.find(LESSONS, "3") is LESSON


def test_a_wrong_version_in_place_of_the_exercise(student):
    seen = student(same, "--mutant", "3")
    assert seen.status == 1
    assert seen.lines[1] == "wrong version 3 of 11, of 03.1"
    assert "DeadlockError: no rank can go on:" in seen.lines


# --- refused before anything is checked -----------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["77"], "there is no lesson '77'; there are 00, "),
        (["03", "--mutant", "0"], "lesson 03 has wrong versions 1 to 11, not 0"),
    ],
)
def test_what_is_not_there_is_one_sentence(words, message, capsys):
    assert cli.main(["check", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_lesson_without_its_files(tmp_path, monkeypatch, capsys):
    shutil.copy(manifest.lessons_folder() / "lessons.toml", tmp_path)
    monkeypatch.setenv(manifest.VARIABLE, str(tmp_path))
    assert cli.main(["check", "03"]) == 1
    assert "bring it back with: git checkout -- " in capsys.readouterr().err


def test_lessons_without_what_they_share(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "lessons"
    shutil.copytree(manifest.lessons_folder(), folder, ignore=shutil.ignore_patterns("conftest.py"))
    monkeypatch.setenv(manifest.VARIABLE, str(folder))
    assert cli.main(["check", "03"]) == 1
    assert f"{folder}/conftest.py is not there, and no check works" in capsys.readouterr().err


def test_no_checkout_and_a_wrong_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(manifest.VARIABLE, raising=False)
    monkeypatch.setattr("minidist.__file__", str(tmp_path / "minidist" / "__init__.py"))
    with pytest.raises(LessonError, match="not of an installed package"):
        manifest.lessons_folder()
    monkeypatch.setenv(manifest.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(LessonError, match="which is no folder"):
        manifest.lessons_folder()


def test_without_pytest_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(LessonError, match="checks need pytest, which is not installed"):
        check.run_check(LESSON, check.Reporter(LESSON, None))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((True, ""), "  ok  the kernels on the GPU\n"),
        ((False, "no device"), "  --  not tried on a GPU: no device\n"),
    ],
)
def test_a_check_of_kernels_says_if_a_gpu_was_there(monkeypatch, capsys, found, told):
    monkeypatch.setattr(check.cuda, "gpu_available", lambda: found)
    check._tell_gpu()
    assert capsys.readouterr().out == told
