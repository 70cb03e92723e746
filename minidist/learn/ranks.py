"""The check of a lesson on MPI ranks: started by `minidist check` when all is right in one process.

    minidist check 03  ->  minidist launch -n 3 -- python -m minidist.learn.ranks 03 FOLDER

The ranks leave in FOLDER what failed, rank by rank, or how many programs ran on them.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from minidist import processes
from minidist.errors import LaunchError, LessonError
from minidist.launch import library
from minidist.learn import manifest, real, subject
from minidist.learn.manifest import Lesson
from minidist.learn.running import Reporter, run_check

SIZES = (2, 3, 4)
LIMIT = 120.0
"""Seconds that the check may take on real ranks; it takes a few."""


def missing() -> str:
    """Say why nothing can run on real ranks here, or ''."""
    try:
        library()
    except LaunchError as error:
        return str(error)
    return ""


def again(lesson: Lesson, size: int, mutant: int | None) -> tuple[int, str]:
    """Run the check on ``size`` MPI ranks: how many programs ran there, and what failed, or ''."""
    with TemporaryDirectory() as folder:
        words = ["-m", __name__, lesson.id, folder, *([str(mutant)] if mutant else [])]
        env = {manifest.VARIABLE: str(lesson.folder.parent)}
        try:
            done = processes.mpirun(words, size, LIMIT, env, check=False, folder=Path(folder))
        except TimeoutError:
            return 0, (
                f"{size} MPI ranks: no end after {LIMIT:g} s, so some rank waits for ever; in one "
                "process all was well, so look for what depends on the order of events"
            )
        failed = sorted(Path(folder).glob("failed-*.txt"))
        if failed:
            return 0, f"{size} MPI ranks: {failed[0].read_text('utf-8')}"
        if done.returncode:
            raise LessonError(
                f"lesson {lesson.id} could not be checked on {size} MPI ranks (status "
                f"{done.returncode}):\n{(done.stderr or done.stdout)[-2000:]}"
            )
        return int((Path(folder) / "programs.txt").read_text("utf-8")), ""


def main() -> None:
    """Be one of the ranks."""
    from minidist.comm.mpi import leave, world

    number, folder, *mutant = sys.argv[1:]
    real.RANKS.comm = comm = world()
    vars(comm)["compute"] = lambda seconds: None  # real ranks would really be busy
    lesson = manifest.find(manifest.load(), number)
    wrong = subject.mutants(lesson)[int(mutant[0]) - 1] if mutant else None
    reporter = Reporter(lesson, wrong, quiet=True)
    run_check(lesson, reporter)
    if reporter.failure is not None:
        (Path(folder) / f"failed-{comm.rank}.txt").write_text(reporter.failure, "utf-8")
        raise LessonError(reporter.failure)  # ends the others, who may wait for this one
    if comm.rank == 0:
        (Path(folder) / "programs.txt").write_text(str(real.RANKS.programs), "utf-8")
    leave()


if __name__ == "__main__":
    main()
