r"""The parameter server: one rank receives all, adds, and sends the sum back. The baseline to beat.

    rank 1 --\                      /--> rank 1
    rank 2 ---->  rank 0 adds  ------->  rank 2          everything goes through one rank's wire
    rank 3 --/                      \--> rank 3

Simple, and the first thing that everybody writes. The bytes through the server grow with the number
of ranks, 2 (N - 1) times the array, while a ring stays under 2 for every rank (Li et al., "Scaling
distributed machine learning with the parameter server", OSDI 2014, spread the array over several
servers; with N of them it is a reduce-scatter and an all-gather).
"""

from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import working_array
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.comm.checks import check_peer
from minidist.ops.reduce import combine


@Collective
def all_reduce(
    comm: Any, x: Array, out: Array | None = None, op: str = "sum", root: int = 0
) -> Steps:
    """Combine ``x`` over all ranks on the server ``root``, which sends the result to everybody.

    In place without ``out``. All ranks call it. The server receives N - 1 arrays, in the order of
    the ranks, and sends N - 1; every other rank sends one. Bit-identical on every rank. float16 and
    bfloat16 are added in float32 and rounded once a rank.
    """
    check_peer(root, comm, "root")
    result = working_array(comm, x, out, op)
    others = [r for r in range(comm.size) if r != root]
    if comm.rank != root:
        yield Exchange(comm, send=result, to=root)
        yield Exchange(comm, recv=result, source=root)
        return x if out is None else out
    with comm.scratch(result.size if others else 0, like=result) as arriving:
        for source in others:
            yield Exchange(comm, recv=arriving, source=source)
            combine(op, result, arriving, out=result)
    for to in others:
        yield Exchange(comm, send=result, to=to)
    return x if out is None else out
