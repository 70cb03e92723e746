"""Was this process started by an MPI launcher? Answered from the environment, without loading MPI.

Every launcher tells its ranks who they are through environment variables. Slurm's own variables are
not among those asked: `SLURM_PROCID` is also set in a batch script, which is not a rank.
"""

import os
from collections.abc import Mapping

RANKS = ("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""A rank's number, as told by: Open MPI 5 and srun, MPICH and srun, Open MPI 4, Intel MPI."""

SIZES = ("MINIDIST_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""The number of ranks, as told by: `minidist launch`, Open MPI, MPICH."""

INHERITED = ("PMIX_", "PMI_", "PRTE_", "OMPI_COMM_", "OMPI_UNIVERSE_", "HYDI_", "MINIDIST_WORLD")
"""How the names begin of all that launchers tell their ranks."""


def launched(env: Mapping[str, str] = os.environ) -> bool:
    """Say whether this process is a rank that `mpirun` or `srun` has started."""
    return any(name in env for name in RANKS)


def announced(env: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return the world sizes that launchers have announced, by variable."""
    return {name: int(env[name]) for name in SIZES if env.get(name, "").isdecimal()}


def outside_mpi(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` without what an MPI launcher tells its ranks.

    A child process of a rank would otherwise believe that it belongs to its parent's world.
    """
    return {name: value for name, value in env.items() if not name.startswith(INHERITED)}
