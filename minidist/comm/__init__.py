"""Ranks and messages: one interface, two worlds.

`run` starts ranks inside this process; `world` is this process's place among real MPI ranks;
`wrap` puts the same interface on a communicator of mpi4py. MPI is loaded only when one of the
last two is called.
"""

from typing import Any

from minidist.comm.base import Comm, Request
from minidist.comm.inprocess import run
from minidist.comm.links import Link, by_node

__all__ = ["Comm", "Link", "Request", "by_node", "run", "world", "wrap"]


def world(debug: bool | None = None) -> Comm:
    """Return this process's place among the MPI ranks: see `minidist.comm.mpi.world`."""
    from minidist.comm import mpi

    return mpi.world(debug)


def wrap(communicator: Any, debug: bool | None = None) -> Comm:
    """Put a `Comm` on a communicator of mpi4py: see `minidist.comm.mpi.wrap`."""
    from minidist.comm import mpi

    return mpi.wrap(communicator, debug)
