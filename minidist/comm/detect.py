"""Was this process started as one of several MPI ranks? Asked without loading MPI.

Launchers tell their ranks who they are through environment variables, before MPI starts. Only their
presence is used here: the communicator knows the rank, a variable left over in a shell does not.
"""

import os
from collections.abc import Mapping

SIGNS = (
    "OMPI_COMM_WORLD_SIZE",  # Open MPI's mpirun
    "PMIX_RANK",  # Open MPI's mpirun, and srun --mpi=pmix
    "PMI_SIZE",  # MPICH's mpirun, Intel MPI, and srun --mpi=pmi2
)


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether mpirun or srun started this process. A world of one rank counts too."""
    return any(sign in environment for sign in SIGNS)
