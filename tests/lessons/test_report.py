"""What a student reads when the exercise does what no check expects."""

import pytest

from tests.lessons.test_check import FIRST, LESSONS, blank, checker
from tests.tiers import fast_and_slow

FIRST_LESSON = LESSONS[0]
HANGS = "import threading\nthreading.Thread(target=threading.Event().wait).start()\nreturn 1"


@pytest.fixture
def student(tmp_path):
    return checker(tmp_path)


def test_the_end_of_the_process_is_no_success(student):
    seen = student(blank("00.1", "os._exit(0)"), lesson=FIRST_LESSON)
    assert seen.status == 1
    assert seen.lines[2].startswith("os._exit(0) ends the whole process, and the check with it")
    assert seen.lines[5] == "    os._exit(0)"


@pytest.mark.slow
def test_neither_is_it_in_a_rank(student):
    package = "\nfrom minidist.bounds import bounds, share\n"
    change = blank("00.3", "os._exit(0)")
    seen = student(lambda text: change(text) + package, lesson=FIRST_LESSON)
    assert seen.status == 1
    assert "os._exit(0) ends the whole process" in "\n".join(seen.lines)


def test_a_thread_that_goes_on_does_not_keep_the_check(student):
    seen = student(blank("00.1", HANGS), lesson=FIRST_LESSON)
    assert seen.status == 1
    assert "is 1" in seen.lines[2]


@pytest.mark.parametrize(
    "call", fast_and_slow(["breakpoint()", "input()", "__import__('pdb').set_trace()"], 1)
)
def test_nobody_can_type(student, call):
    seen = student(blank("00.1", call), lesson=FIRST_LESSON)
    assert seen.status == 1
    words = " does not work in a check, where nobody can type; print(...) does"
    assert any(line.endswith(words) for line in seen.lines)
    assert any(line.startswith("exercise.py, line ") for line in seen.lines)


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('\\n'.join(['x' * 1000] * 500))",
        "return list(range(10**5))",
        "print('x' * 10**5)\nreturn [0, n] if parts == 1 else [['x' * 10**5]] * (parts + 1)",
    ],
    ids=["error", "list", "printed and held"],
)
@pytest.mark.slow
def test_long_texts_are_cut(student, body):
    seen = student(blank("00.1", body), lesson=FIRST_LESSON)
    assert seen.status == 1
    assert len(seen.lines) < 30
    assert max(map(len, seen.lines)) < 500
    assert " in all)" in "\n".join(seen.lines)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: f"import no_such_module\n{t}",
        lambda t: t.replace("def bounds", "def bonds"),
    ],
    ids=["import", "gone"],
)
def test_what_cannot_be_loaded_is_no_matter_of_a_contract(student, change):
    seen = student(change, lesson=FIRST_LESSON)
    assert seen.status == 1
    assert "contract" not in "\n".join(seen.lines)


@pytest.mark.slow
def test_a_yield_without_an_exchange_shows_its_line(student):
    seen = student(blank("03.1", "yield"))
    assert "a body yields Exchange(comm, ...) and nothing else" in seen.lines[4]
    assert seen.lines[7] == "    yield"


def test_a_missing_return_is_a_result_of_none(student):
    body = (
        "yield Exchange(comm, passing, (r + 1) % n, arriving, (r - 1) % n)\n"
        "passing = combine(op, arriving, mine, out=own if s == n - 2 else arriving)"
    )

    def change(text):
        text = blank("03.3", body)(blank("03.1", FIRST)(text))
        text = text.replace("\n    return own\n", "\n")
        return f"{text}\nfrom minidist.collectives.tree import broadcast\n"

    seen = student(change)
    assert seen.status == 1
    assert "rank 0 should hold no elements, holds None" in "\n".join(seen.lines)


@pytest.mark.slow
def test_a_meeting_of_the_students_own_is_not_that_of_the_laws(student):
    row = "row = Row(comm.rank, platform.node(), os.getpid(), device)"
    body = "return comm.gather_objects(row) if comm.rank == 0 else [row]"
    package = "\nfrom minidist.bounds import bounds, share\n"
    change = blank("00.3", f"{row}\n{body}")
    seen = student(lambda text: change(text) + package, lesson=FIRST_LESSON)
    at = seen.lines.index("DeadlockError: no rank can go on:")
    assert seen.lines[at - 2].startswith("2 ranks")
    assert seen.lines[at + 1 : at + 3] == [
        "  rank 0 waits: gather_objects of world, which ranks 1 have not entered",
        "  rank 1 has finished",
    ]
    assert seen.lines[at + 5] == f"    {body}"
    assert seen.lines[at + 7].startswith("the law: what all ranks have to call, ")
