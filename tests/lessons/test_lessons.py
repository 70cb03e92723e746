"""Every lesson holds what it promises: blanks are blank, solutions pass, wrong versions do not."""

import re
import signal
import sys
from datetime import date
from types import SimpleNamespace

import pytest

from minidist import cli, processes
from minidist.errors import MinidistError
from minidist.learn import demos, manifest, report, subject
from minidist.learn.limit import limit
from minidist.testing.pictures import same_picture

LESSONS = manifest.load()
FOUND = (AssertionError, MinidistError, ValueError, IndexError, TypeError, AttributeError)
HEADINGS = ["Question", "Predict", "Run", "Observe", "Change and check", "Check yourself"]
FILES = ["README.md", "exercise.py", "check.py", "mutants.py", "demo.py", "figure.svg"]


TODAY = 2 * date.today().toordinal()
TURN = {LESSONS[(TODAY + i) % len(LESSONS)].id for i in range(2)}
"""The two lessons of the day, which run in the fast tier; the others with --all."""


def case(lesson, *more, dear=False):
    """Parameters of a test. Lessons about kernels need a compiler; what is dear goes in turns."""
    kernels = any(".cu:" in blank.solution for blank in lesson.blanks)
    marks = [pytest.mark.kernel] if kernels else []
    marks += [pytest.mark.slow] if dear and lesson.id not in TURN else []
    return pytest.param(lesson, *more, marks=marks)


every_lesson = pytest.mark.parametrize(
    "lesson", [*map(case, LESSONS)], ids=lambda lesson: lesson.id
)
each_in_turn = pytest.mark.parametrize(
    "lesson", [case(lesson, dear=True) for lesson in LESSONS], ids=lambda lesson: lesson.id
)
every_blank = pytest.mark.parametrize(
    ("lesson", "blank"),
    [case(lesson, blank) for lesson in LESSONS for blank in lesson.blanks],
    ids=lambda value: value.id,
)
mutants_in_turn = pytest.mark.parametrize(
    ("lesson", "mutant"),
    [case(lesson, m, dear=True) for lesson in LESSONS for m in subject.mutants(lesson)],
    ids=lambda value: value.id if isinstance(value, manifest.Lesson) else value.name,
)


def about(lesson, blank):
    """The tests of the lesson that are about a blank."""
    every = subject.checks(lesson)
    return {n: t for n, t in every.items() if subject.blank_of(lesson, n) == blank}


def failure(lesson, blank, module):
    """The text for the first test of a blank that fails, and the error; None if none does."""
    for name, test in about(lesson, blank).items():
        try:
            with limit(60):
                test(module)
        except (*FOUND, NotImplementedError) as error:
            return report.explain(error, lesson, name), error
    return None


# --- exercise, check, mutants ---------------------------------------------------------------------


@every_lesson
def test_a_lesson_is_complete(lesson):
    assert [name for name in FILES if not (lesson.folder / name).is_file()] == []
    assert lesson.folder.name.startswith(f"{lesson.id}_")
    assert [b.id for b in lesson.blanks] == [
        f"{lesson.id}.{i + 1}" for i in range(len(lesson.blanks))
    ]


@every_lesson
def test_the_tests_go_in_the_order_of_the_blanks(lesson):
    blanks = [subject.blank_of(lesson, name) for name in subject.checks(lesson)]
    assert None not in blanks, "a test is named after its blank"
    assert list(dict.fromkeys(blanks)) == list(lesson.blanks)


@every_blank
def test_a_blank_says_what_to_do(lesson, blank):
    module = subject.solved(lesson)
    setattr(module, blank.name, getattr(subject.exercise(lesson), blank.name))
    text, error = failure(lesson, blank, module)
    assert isinstance(error, NotImplementedError)
    assert text.startswith(f"next  {blank.id}  {blank.name} (about ")
    assert re.search(r"exercise\.(py|cu):\d+$", text)


@each_in_turn
def test_the_package_solves_it(lesson):
    module = subject.solved(lesson)
    for test in subject.checks(lesson).values():
        test(module)


@mutants_in_turn
def test_a_wrong_version_is_rejected(lesson, mutant):
    blank = subject.blank_by_id(lesson, mutant.blank)
    found = failure(lesson, blank, subject.with_mutant(lesson, mutant))
    assert found is not None, f"{mutant.name}: no test of {blank.name} rejects it"
    assert len(found[0].splitlines()) <= 30, found[0]
    assert "\n" not in mutant.old + mutant.new, "one line"
    assert mutant.story


@every_lesson
def test_enough_wrong_versions(lesson):
    every = subject.mutants(lesson)
    assert 6 <= len(every) <= 12
    assert len({m.name for m in every}) == len(every)
    assert {m.blank for m in every} == {b.id for b in lesson.blanks}


@every_lesson
def test_each_blank_is_explained_in_one_paragraph(lesson):
    text = lesson.file("README.md").read_text("utf-8")
    for blank in lesson.blanks:
        lesson.paragraph(blank)
        starts = [p for p in text.split("\n\n") if p.lstrip("\n*").startswith(blank.read)]
        assert len(starts) == 1, blank.id


# --- demo and figure ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """`demo(lesson)` runs its demo.py once: what it has printed, and its figure."""
    done = {}

    def once(lesson):
        if lesson.id not in done:
            folder = tmp_path_factory.mktemp(lesson.folder.name)
            words = [sys.executable, str(lesson.file("demo.py")), "--figure", "figure.svg"]
            shown = processes.finish(processes.start(words, folder), 60)
            assert shown.returncode == 0, shown.stdout + shown.stderr
            done[lesson.id] = shown.stdout, (folder / "figure.svg").read_text("utf-8")
        return done[lesson.id]

    return once


@each_in_turn
def test_the_figure_is_the_one_that_the_demo_draws(lesson, demo):
    assert same_picture(lesson.file("figure.svg").read_text("utf-8"), demo(lesson)[1])


@each_in_turn
@pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_the_demo_runs_on_real_ranks(lesson, ranks, mpirun):
    shown = mpirun([sys.executable, str(lesson.file("demo.py"))], ranks=ranks).stdout
    assert str(ranks) in shown.splitlines()[0], "the first line says on how many ranks"


# --- what the README says -------------------------------------------------------------------------


def sections(lesson):
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", lesson.file("README.md").read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@every_lesson
def test_the_readme_has_the_shape_of_a_lesson(lesson):
    text = lesson.file("README.md").read_text("utf-8")
    assert text.startswith(f"# {lesson.id} {lesson.title}\n\nYou need: ")
    assert list(sections(lesson)) == HEADINGS
    assert "<details>" in sections(lesson)["Predict"]
    assert "](figure.svg)" in sections(lesson)["Observe"]
    assert "**Find the bug.**" in text
    assert "**Open question.**" in text


def numbers(text):
    """Numbers with a point, or of three digits and more, but for years; without commas."""
    plain = re.sub(r"(?<=\d),(?=\d\d\d)", "", re.sub(r"\]\([^)]*\)", "]", text))
    found = re.findall(r"(?<![\w#.])\d+\.\d+(?!\.?\d)|(?<![\w#.])\d{3,}(?!\.?\d)", plain)
    return [n for n in found if not re.fullmatch(r"(19|20)\d\d", n)]


def test_numbers_are_found_in_a_text():
    text = "1,998.0 M, 14.00 and 112020 us in 2009 or 1.5-fold, not 7 [x](a/123) #1942 v1.2.3"
    assert numbers(text) == ["1998.0", "14.00", "112020", "1.5"]


@each_in_turn
def test_the_readme_states_only_numbers_that_the_demo_prints(lesson, demo):
    printed = set(numbers(demo(lesson)[0]))
    parts = sections(lesson)
    stated = numbers(parts["Predict"] + parts["Observe"])
    assert [n for n in stated if n not in printed] == []


@every_lesson
def test_links_of_the_readme_lead_somewhere(lesson):
    for target in re.findall(r"\]\(([^)]+)\)", lesson.file("README.md").read_text("utf-8")):
        if not target.startswith("https://"):
            assert (lesson.folder / target.partition("#")[0]).exists(), target


def command_lines(lesson):
    return re.findall(r"^\$ (.+)$", lesson.file("README.md").read_text("utf-8"), flags=re.M)


def check_command(line, root):
    """Refuse a command line that the real parsers refuse, or a script that is not there."""
    words = line.partition("#")[0].split()
    while "=" in words[0]:
        words = words[1:]
    if words[0] == "python":
        assert (root / words[1]).is_file(), line
    elif words[0] in ("minidist", "./run"):
        command = words[1]
        if words[0] == "./run" and command == "test":
            return
        args = cli.parse(command, words[2:])
        if command == "launch":
            check_command(" ".join(args.command), root)
        if command == "check":
            lesson = manifest.find(LESSONS, args.lesson)
            assert args.mutant is None or args.mutant <= len(subject.mutants(lesson))
    else:
        raise AssertionError(f"an unknown command: {line}")


@every_lesson
def test_commands_of_the_readme_are_commands(lesson):
    lines = command_lines(lesson)
    assert any(f"check {lesson.id}" in line for line in lines)
    for line in lines:
        check_command(line, lesson.folder.parent.parent)


@pytest.mark.parametrize(
    "line",
    [
        "minidist chek 03",
        "minidist check 03 04",
        "minidist check 03 --mutant 99",
        "python lessons/gone.py",
        "minidist launch -n 4 -- python lessons/gone.py",
        "rm -r lessons",
    ],
)
def test_commands_that_are_none_are_refused(line):
    with pytest.raises((AssertionError, SystemExit, KeyError)):
        check_command(line, LESSONS[0].folder.parent.parent)


@every_lesson
def test_code_under_the_name_of_a_file_is_from_that_file(lesson):
    text = lesson.file("README.md").read_text("utf-8")
    for name, code in re.findall(r"^`([\w./]+\.py)`:?\n+```python\n(.*?)^```", text, re.M | re.S):
        assert code in (lesson.folder / name).read_text("utf-8"), name


def test_the_list_of_lessons_is_that_of_the_manifest():
    text = (LESSONS[0].folder.parent / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d\d) (.+?)\]\((\w+)/README\.md\) \|.*\| (\d+) \|$", text, re.M)
    assert rows == [(one.id, one.title, one.folder.name, str(one.minutes)) for one in LESSONS]


# --- demos that cannot go on ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "flags", "told"),
    [
        (
            "00",
            "--n -1",
            "demo.py: cannot cut -1 things into 4 parts: need n >= 0 and parts >= 1\n",
        ),
        ("00", "--ranks -2", "demo.py: run needs at least one rank, not -2\n"),
        ("02", "--send-first -1", "demo.py: --send-first -1: a message has 0 bytes or more\n"),
    ],
)
def test_silly_flags_of_a_demo_are_refused_in_a_sentence(number, flags, told, tmp_path):
    demo = manifest.find(LESSONS, number).file("demo.py")
    words = [sys.executable, str(demo), *flags.split()]
    done = processes.finish(processes.start(words, tmp_path), 60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@each_in_turn
def test_a_figure_that_cannot_be_written_is_a_sentence(lesson, monkeypatch, capsys):
    demo = subject.load_file(lesson.file("demo.py"))
    monkeypatch.setattr(sys, "argv", ["demo.py", "--figure", "/nonexist/a.svg"])
    for name in ("table", "small_and_large", "figure", "show_times"):  # what takes long
        monkeypatch.setattr(demo, name, lambda *args, **how: "", raising=False)
    with pytest.raises(SystemExit) as end:
        demos.play(demo.main)
    assert end.value.code == 2
    said = "demo.py: cannot write the picture /nonexist/a.svg: No such file or directory\n"
    assert capsys.readouterr().err == said


def test_ctrl_c_ends_the_ranks_of_a_demo_that_hangs(monkeypatch):
    demo, jobs = subject.load_file(manifest.find(LESSONS, "02").file("demo.py")), []

    def start(*args):
        words = [sys.executable, "-c", "import signal; signal.pause()"]
        jobs.append(processes.start(words, *args[1:]))
        return jobs[-1]

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "processes", SimpleNamespace(**{**vars(processes), "start": start}))
    monkeypatch.setattr(demo, "islice", interrupted)
    with pytest.raises(SystemExit) as end:
        demos.play(demo.show_hang)
    assert end.value.code == 130
    assert [job.poll() for job in jobs] == [-signal.SIGTERM]
