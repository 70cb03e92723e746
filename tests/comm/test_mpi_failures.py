"""What goes wrong over MPI is said, and ends: never a hang without a word.

Each test starts a job that fails. A job that would hang is read until it has said what it waits
for, and is then ended; the time limit of the test is the only clock.
"""

import os
import signal
import sys

import pytest

from minidist import launch, processes
from minidist.comm.detect import announced, launched
from tests.tiers import fast_and_slow

HEAD = """
import os, signal, sys, threading
import numpy as np
from minidist.collectives import ring, tree
from minidist.comm import world

comm = world()
x = np.ones(8)
ring.all_reduce(comm, x, label="before")
"""


def plain(program, ranks, tmp_path, env=None, options=()):
    """Start a program with mpirun alone: without our launcher, without `python -m mpi4py`."""
    library = launch.library()
    settings = {**launch.SETTINGS[launch.family(library)], "OMP_NUM_THREADS": "1", **(env or {})}
    (tmp_path / "program.py").write_text(HEAD + program, "utf-8")
    command = [launch.find_mpirun(library), "-n", str(ranks), sys.executable, *options]
    return processes.start([*command, str(tmp_path / "program.py")], tmp_path, settings)


RAISES = """
if comm.rank == 1:
    raise ValueError("rank one is ill")
ring.all_reduce(comm, x)
"""


def test_a_rank_that_raises_ends_all_with_its_traceback(mpirun):
    done = mpirun(HEAD + RAISES, ranks=3, timeout=30, check=False)
    assert done.returncode == 1
    assert "[rank 1] ValueError: rank one is ill" in done.stderr
    assert 'raise ValueError("rank one is ill")' in done.stderr


def test_a_rank_that_exits_ends_all(mpirun):
    exits = "if comm.rank == 1: sys.exit(3)\nring.all_reduce(comm, x)"
    assert mpirun(HEAD + exits, ranks=3, timeout=30, check=False).returncode == 3


PLAIN = {
    "raises": (RAISES, 1, "[rank 1] ValueError: rank one is ill"),
    "interrupted": (
        "if comm.rank == 1: signal.raise_signal(signal.SIGINT)\nring.all_reduce(comm, x)",
        130,
        "[rank 1] KeyboardInterrupt",
    ),
    "fails in a thread": (
        "if comm.rank == 1: threading.Thread(target=lambda: 1 / 0).start()\ncomm.recv(x, 0)",
        1,
        "[rank 1] ZeroDivisionError",
    ),
}


@pytest.mark.mpi
@pytest.mark.parametrize("case", PLAIN)
def test_under_plain_mpirun_too(case, tmp_path):
    program, status, words = PLAIN[case]
    done = processes.finish(plain(program, 2, tmp_path), 30)
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr


def test_a_killed_rank_ends_all(mpirun):
    kill = "if comm.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nring.all_reduce(comm, x)"
    assert mpirun(HEAD + kill, ranks=3, timeout=30, check=False).returncode != 0


MISMATCHES = {
    # a program on 3 ranks, and the words of its error: one of these, as two ranks may find it
    "another size": (
        "ring.all_reduce(comm, np.ones(10 if comm.rank == 0 else 8))",
        [
            "rank 1 waits for 2 x float64 in all_reduce #2 (ring), but rank 0 has sent 3 x float64",
            "rank 0 waits for 4 x float64 in all_reduce #2 (ring), but rank 2 has sent 3 x float64",
        ],
    ),
    "two in another order": (
        "for name in 'ab' if comm.rank < 2 else 'ba': ring.all_reduce(comm, x[:6], label=name)",
        [
            "#2 (ring, a), but rank 2 has sent 2 x float64 in all_reduce #2 (ring, b)",
            "#2 (ring, b), but rank 1 has sent 2 x float64 in all_reduce #2 (ring, a)",
        ],
    ),
    "another dtype": (
        "ring.all_reduce(comm, np.ones(6, 'f4' if comm.rank == 0 else 'f8'))",
        [
            "2 x float64 in all_reduce #2 (ring), but rank 0 has sent 2 x float32 in",
            "2 x float32 in all_reduce #2 (ring), but rank 2 has sent 2 x float64 in",
        ],
    ),
    "one is skipped": (
        "for name in 'ab' if comm.rank != 1 else 'b': ring.all_reduce(comm, x[:6], label=name)",
        [
            "#2 (ring, a), but rank 1 has sent 2 x float64 in all_reduce #2 (ring, b)",
            "#2 (ring, b), but rank 0 has sent 2 x float64 in all_reduce #2 (ring, a)",
        ],
    ),
    "another algorithm": (
        "(tree if comm.rank else ring).all_reduce(comm, x[:1])",
        ["#2 (ring), but rank 2 has sent", "#2 (tree), but rank 0 has sent"],
    ),
    "another control operation": (
        "comm.barrier() if comm.rank else comm.gather_objects(0)",
        ["ranks of world meet in different calls: rank 0 gather_objects of point to point, rank 1"],
    ),
}


@pytest.mark.parametrize("case", fast_and_slow(MISMATCHES, 2))
def test_debug_mode_names_both_sides_of_a_mismatch(mpirun, case):
    program, words = MISMATCHES[case]
    done = mpirun(HEAD + program, 3, timeout=30, env={"MINIDIST_DEBUG": "1"}, check=False)
    assert done.returncode == 1
    error = next(line for line in done.stderr.splitlines() if "errors.MismatchError: " in line)
    assert any(w in error for w in words), error


HANGS = {
    # a program on 2 ranks without end, its environment, and what its ranks must all say
    "a deadlock": (
        "comm.recv(x, 1, tag=7) if comm.rank == 0 else comm.barrier()",
        {},
        ["rank 0 has waited ", "receive from rank 1, tag 7, in ", "barrier of world"],
    ),
    "sending first, without buffers": (
        "comm.send(x, 1 - comm.rank); comm.recv(x, 1 - comm.rank)",
        {"MINIDIST_SYNCHRONOUS": "1"},
        ["rank 0 has waited ", "rank 1 has waited ", "send to rank 0, tag 0"],
    ),
    "sending first, more than is buffered": (
        "big = np.ones(1 << 20); comm.send(big, 1 - comm.rank); comm.recv(big, 1 - comm.rank)",
        {},
        ["rank 0 has waited ", "rank 1 has waited ", "send to rank 0, tag 0"],
    ),
    "a skipped collective": (
        "for name in 'ab': comm.rank or ring.all_reduce(comm, x, label=name)",
        {},
        ["rank 0 has waited ", "receive from rank 1, tag 0, in all_reduce #2 (ring, a) of world"],
    ),
}


@pytest.mark.mpi
@pytest.mark.parametrize("case", fast_and_slow(HANGS, 2))
def test_a_rank_that_waits_for_long_says_for_what(case, tmp_path):
    program, env, words = HANGS[case]
    process = plain(program, 2, tmp_path, {"MINIDIST_PATIENCE": "0.2", **env})
    said = ""
    while not all(word in said for word in words):
        line = process.stderr.readline()
        assert line, f"the job ended, having said: {said}"
        said += line
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate()


EXCHANGES = """
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
for n in (8, 1 << 20):
    comm.exchange(np.full(n, comm.rank), right, got := np.zeros(n, int), left)
    assert (got == left).all()
"""


def test_exchange_needs_no_buffers(mpirun):
    mpirun(HEAD + EXCHANGES, ranks=4, env={"MINIDIST_SYNCHRONOUS": "1"})


@pytest.mark.mpi
def test_a_world_of_the_wrong_size_is_refused_in_one_sentence(tmp_path):
    # mpirun of one MPI and the library of another: every rank believes that it is alone.
    command = [sys.executable, "-c", "from minidist.comm import world; world()"]
    done = processes.finish(processes.start(command, tmp_path, {"PMI_SIZE": "4"}), 30)
    assert done.returncode == 1
    assert "LaunchError: PMI_SIZE announces 4 ranks, but this world of MPI has 1" in done.stderr


def test_what_launchers_announce():
    assert announced({"OMPI_COMM_WORLD_SIZE": "4", "MINIDIST_WORLD_SIZE": "3"}) == {
        "OMPI_COMM_WORLD_SIZE": 4,
        "MINIDIST_WORLD_SIZE": 3,
    }
    assert announced({"SLURM_NTASKS": "4"}) == {}  # also set in a batch script, outside any rank
    assert launched({"PMIX_RANK": "0"})
    assert not launched({"SLURM_PROCID": "0"})
