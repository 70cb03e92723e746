"""Who is where: a row for each rank, with its host, its process and its device.

    rank  host  process  device
       0  ant     71402  cuda:0 (H100 1f3a90c2)
       1  ant     71403  cuda:1 (H100 7be01d44)
       2  bee      9120  cuda:0 (H100 c55a0e19)

The first thing to look at when a job is slow or wrong: two ranks on one GPU, all ranks on one host
of two, or a "rank 0" in every row, which is what the library of one MPI says under the mpirun of
another.
"""

import os
import platform
from collections.abc import Sequence
from typing import NamedTuple

from minidist.comm import Comm


class Row(NamedTuple):
    """Where one rank computes."""

    rank: int
    host: str
    process: int
    device: str


def roster(comm: Comm, device: str) -> list[Row]:
    """Return a row for each rank, in the order of ranks, on every rank. All ranks call it.

    ``device``: what this rank computes on. A control message, no traffic.
    """
    mine = Row(comm.rank, platform.node(), os.getpid(), device)
    return comm.gather_objects(mine)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as lines of text under a line of names, as above."""
    host = max(len(row.host) for row in [*rows, Row(0, "host", 0, "")])
    lines = [f"rank  {'host':{host}}  process  device"]
    lines += [f"{r.rank:4}  {r.host:{host}}  {r.process:7}  {r.device}" for r in rows]
    return "\n".join(lines)
