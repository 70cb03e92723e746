"""The command `minidist check [NN]`: runs the checks of a lesson on the student's exercise.

    $ minidist check 03
    lesson 03: From parameter server to ring all-reduce
      ok    every rank has the sum of all, from the server
      next  03.2  broadcast (about 4 lines): ...

From cheap to dear, up to the first failure, which is told in a few lines:

    who owns what      tests in the list SYMBOLIC of check.py, for blanks that are filled
    the laws           all tests in the order of the blanks, on ranks inside this process
    real ranks         the same check on 2, 3 and 4 MPI ranks, if there is an MPI
    a GPU              kernels ran on it within the laws, if there is one
    the score          `score(exercise)` of check.py: what is sent and kept, beside the bound

The exit status is 0 when all of it passes, else 1. After the verdict the process ends, also if the
exercise has started threads that go on.
"""

import argparse
import os
import sys
import threading
from collections.abc import Collection, Sequence
from types import ModuleType

from minidist import cuda
from minidist.errors import LessonError
from minidist.learn import ranks, subject
from minidist.learn.manifest import Lesson
from minidist.learn.progress import chosen
from minidist.learn.running import Reporter, run_check
from minidist.learn.subject import Mutant
from minidist.learn.watch import watch


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("lesson", metavar="NN", nargs="?", help="number of the lesson (current)")
    parser.add_argument("--watch", action="store_true", help="again after each save")
    parser.add_argument("--in-process", action="store_true", help="not on MPI ranks")
    words = "check wrong version K of the lesson (1, 2, ...) in place of your exercise"
    parser.add_argument("--mutant", metavar="K", type=int, help=words)


def main(args: argparse.Namespace) -> int:
    """Check one lesson; return 0 if all is right, else 1."""
    if args.watch:
        return _watch(args)
    before = threading.enumerate()
    try:
        status = _check(args)
    except KeyboardInterrupt:
        _leave_threads(before, 130)
        raise
    _leave_threads(before, status)
    return status


def _leave_threads(before: Collection[threading.Thread], status: int) -> None:
    """End the process now if the exercise has left threads: Python would wait for them."""
    if any(not t.daemon and t not in before for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _watch(args: argparse.Namespace) -> int:
    lesson, _, _ = chosen(args.lesson)
    words = ["check", lesson.id, *(["--in-process"] if args.in_process else [])]
    return watch([lesson.file("exercise.py"), lesson.folder / "exercise.cu"], words)


def _check(args: argparse.Namespace) -> int:
    lesson, lessons, progress = chosen(args.lesson)
    for name in ("exercise.py", "check.py"):
        lesson.file(name)
    if not (shared := lesson.folder.parent / "conftest.py").is_file():
        raise LessonError(
            f"{shared} is not there, and no check works without it; bring it back with: "
            f"git checkout -- {shared}"
        )
    print(f"lesson {lesson.id}: {lesson.title}")
    reporter = Reporter(lesson, None if args.mutant is None else _mutant(lesson, args.mutant))
    run_check(lesson, reporter)
    if reporter.failure is None and not reporter.passed:
        raise LessonError(f"{lesson.folder / 'check.py'} has no test; nothing was checked")
    failure = reporter.failure or ("" if args.in_process else _on_real_ranks(lesson, args.mutant))
    if failure:
        print(f"\n{failure}")
        return 1
    if any(".cu:" in blank.solution for blank in lesson.blanks):
        _tell_gpu()
    print(_score(lesson, reporter.subject()), end="")
    print(f"\n{_after(lesson, lessons)}")
    if args.mutant is None and lesson.id not in progress.done:
        try:
            progress.note("done", lesson.id)
        except LessonError as error:
            print(error, file=sys.stderr)
    return 0


def _on_real_ranks(lesson: Lesson, mutant: int | None) -> str:
    """Run the check on MPI ranks, if there is an MPI; return what failed, or ''."""
    if reason := ranks.missing():
        print(f"  --  not tried on real ranks: {reason}")
        return ""
    for size in ranks.SIZES:
        programs, failure = ranks.again(lesson, size, mutant)
        if failure:
            return failure
        if not programs:
            print("  --  nothing here depends on real ranks")
            return ""
        print(f"  ok  {programs} programs on {size} MPI ranks", flush=True)
    return ""


def _tell_gpu() -> None:
    """Say whether the kernels, which a check also launches on a GPU, have met one."""
    works, reason = cuda.gpu_available()
    print("  ok  the kernels on the GPU" if works else f"  --  not tried on a GPU: {reason}")


def _score(lesson: Lesson, module: ModuleType) -> str:
    """The table of `score(exercise)` in check.py, or nothing if it has none."""
    score = vars(subject.load_file(lesson.file("check.py"))).get("score")
    if score is None:
        return ""
    rows = [(what, f"{yours:,}", f"{bound:,}") for what, yours, bound in score(module)]
    wide = max(len(what) for what, _, _ in rows)
    lines = [f"{what:{wide}}{yours:>12}{bound:>12}" for what, yours, bound in rows]
    return "\n".join(["", f"{'score':{wide}}{'yours':>12}{'bound':>12}", *lines, ""])


def _mutant(lesson: Lesson, number: int) -> Mutant:
    every = subject.mutants(lesson)
    if not 1 <= number <= len(every):
        raise LessonError(f"lesson {lesson.id} has wrong versions 1 to {len(every)}, not {number}")
    print(f"wrong version {number} of {len(every)}, of {every[number - 1].blank}")
    return every[number - 1]


def _after(lesson: Lesson, lessons: Sequence[Lesson]) -> str:
    """What to say after success: why it works, and where to go on."""
    after = lessons[lessons.index(lesson) + 1 :]
    ahead = f"next: lesson {after[0].id}, {after[0].title}" if after else "this is the last lesson"
    return (
        f"Lesson {lesson.id} is done: all of this holds for what you have written.\n"
        f'why it works: {lesson.folder / "README.md"}, under "Observe"\n'
        f"how the package does it: minidist solution {lesson.blanks[0].id}\n{ahead}"
    )
