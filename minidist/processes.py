"""Start real ranks from a program: under a time limit, in a session of their own, no leftovers.

    a test (one process)  -->  minidist launch -n 4  -->  mpirun  -->  rank 0 .. 3

A test is never started by `mpirun` itself: one rank that fails its assertion would leave the
others waiting in the next collective. The test starts the ranks, waits, and reads what they print.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from minidist.comm.detect import outside_mpi

Process: TypeAlias = subprocess.Popen[str]
Completed: TypeAlias = subprocess.CompletedProcess[str]


def start(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start `command` in `cwd` as the leader of a new session, output captured as text."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**outside_mpi(os.environ), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: Process, timeout: float) -> Completed:
    """Wait for `process`. After `timeout` seconds end all of it, and raise TimeoutError.

    Ctrl-C ends all of it, too: it does not get there by itself, since the session is another.
    """
    try:
        out, err = process.communicate(timeout=timeout)
    except KeyboardInterrupt:
        _end(process)
        raise
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        raise TimeoutError(
            f"no end after {timeout} s: {process.args!r}\n--- stdout\n{out}\n--- stderr\n{err}"
        ) from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _end(process: Process) -> tuple[str, str]:
    """End `process` and all that it has started; return its output.

    SIGTERM goes to the whole group, so that `mpirun` ends its ranks (which are in groups of their
    own); what is left after five seconds is killed.
    """
    _signal(process, signal.SIGTERM)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        return process.communicate()


def _signal(process: Process, number: int) -> None:
    """Send a signal to the group of `process`, all of which may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def mpirun(
    program: str | Sequence[str],
    ranks: int = 2,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    *,
    folder: Path,
) -> Completed:
    """Run `program` on `ranks` MPI ranks through `minidist launch`, and return what came of it.

    `program` is Python source text, or the words after `--`: `["minidist", "train", ...]`,
    `["-m", "module", ...]`, `["script.py", ...]`. The ranks work in `folder`. With `check`, an
    exit status other than 0 raises AssertionError with all output.
    """
    if isinstance(program, str):
        (folder / "program.py").write_text(program, "utf-8")
        program = [str(folder / "program.py")]
    launch = [sys.executable, "-m", "minidist", "launch", "-n", str(ranks), "--"]
    done = finish(start([*launch, *program], folder, env), timeout)
    if check and done.returncode:
        raise AssertionError(
            f"{ranks} ranks ended with status {done.returncode}\n"
            f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        )
    return done


@contextlib.contextmanager
def ended(process: Process) -> Iterator[Process]:
    """End `process` and all that it has started when the block ends, however that comes about.

    For a program that reads what a process prints before it calls `finish`.
    """
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)
