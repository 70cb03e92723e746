"""The ways to do each collective: by hand, and by MPI itself.

A way binds a call to its arrays, so that nothing but the call is timed:

    call = way(problem, x, out)      out None: in place, in x
    call()                           does it, and returns the array that holds this rank's result

Another collective here is another function of `problems`, an entry in `OURS` and one in `MPIS`.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from mpi4py import MPI
from problems import Call, Problem, Way

from minidist.arrays import Array
from minidist.collectives import (
    Collective,
    all_to_all,
    doubling,
    halving,
    hierarchical,
    ring,
    rooted,
    segmented,
    server,
    tree,
)

OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}


# --- by hand --------------------------------------------------------------------------------------


def ours(collective: Collective, *options: str) -> Way:
    """Return the way that is a collective of minidist, with these fields of the problem."""

    def way(p: Problem, x: Array, out: Array | None) -> Call:
        named = {name: getattr(p, name) for name in options}
        if out is not None:
            named["out"] = out
        return lambda: collective(p.comm, x, **named)

    return way


OURS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": ours(ring.all_reduce, "op"),
        "segmented": ours(segmented.all_reduce, "op"),
        "halving": ours(halving.all_reduce, "op"),
        "doubling": ours(doubling.all_reduce, "op"),
        "tree": ours(tree.all_reduce, "op"),
        "hierarchical": ours(hierarchical.all_reduce, "nodes", "op"),
        "server": ours(server.all_reduce, "op"),
    },
    "reduce_scatter": {
        "ring": ours(ring.reduce_scatter, "op"),
        "segmented": ours(segmented.reduce_scatter, "op"),
    },
    "all_gather": {"ring": ours(ring.all_gather)},
    "broadcast": {"tree": ours(tree.broadcast, "root")},
    "reduce": {"tree": ours(tree.reduce, "op", "root")},
    "all_to_all": {"pairwise": ours(all_to_all, "send_offsets", "recv_offsets")},
    "gather": {"direct": ours(rooted.gather, "root")},
    "scatter": {"direct": ours(rooted.scatter, "root")},
}


# --- MPI's own: the library chooses the algorithm -------------------------------------------------

WORLD = MPI.COMM_WORLD


def mpi_all_reduce(p: Problem, x: Array, out: Array | None) -> Call:
    send, recv = (MPI.IN_PLACE, x) if out is None else (x, out)
    return returning(recv, lambda: WORLD.Allreduce(send, recv, OPS[p.op]))


def mpi_reduce_scatter(p: Problem, x: Array, out: Array | None) -> Call:
    """In place, the piece of every rank ends at the beginning of its array."""
    send, recv = (MPI.IN_PLACE, x) if out is None else (x, out)
    lengths = p.lengths
    place = recv[: lengths[p.comm.rank]]
    return returning(place, lambda: WORLD.Reduce_scatter(send, recv, lengths, OPS[p.op]))


def mpi_all_gather(p: Problem, x: Array, out: Array | None) -> Call:
    send, whole = (MPI.IN_PLACE, x) if out is None else (x, out)
    recv = pieces(whole, p.cut)
    return returning(whole, lambda: WORLD.Allgatherv(send, recv))


def mpi_broadcast(p: Problem, x: Array, out: Array | None) -> Call:
    return returning(x, lambda: WORLD.Bcast(x, p.root))


def mpi_reduce(p: Problem, x: Array, out: Array | None) -> Call:
    at_root = p.comm.rank == p.root
    send = MPI.IN_PLACE if out is None and at_root else x
    recv = (x if out is None else out) if at_root else None
    return returning(recv, lambda: WORLD.Reduce(send, recv, OPS[p.op], p.root))


def mpi_all_to_all(p: Problem, x: Array, out: Array | None) -> Call:
    send, recv = pieces(x, p.send_offsets), pieces(out, p.recv_offsets)
    return returning(out, lambda: WORLD.Alltoallv(send, recv))


def mpi_gather(p: Problem, x: Array, out: Array | None) -> Call:
    recv = pieces(out, p.cut) if p.comm.rank == p.root else None
    return returning(out, lambda: WORLD.Gatherv(x, recv, p.root))


def mpi_scatter(p: Problem, x: Array, out: Array | None) -> Call:
    send = pieces(x, p.cut) if p.comm.rank == p.root else None
    return returning(out, lambda: WORLD.Scatterv(send, out, p.root))


def pieces(x: Array, cut: list[int]) -> list[Any]:
    """Return an array and its pieces as mpi4py wants them: lengths and beginnings."""
    return [x, ([b - a for a, b in pairwise(cut)], cut[:-1])]


def returning(result: Array | None, call: Callable[[], object]) -> Call:
    """Return a call that does its work and says where the result is."""

    def both() -> Array | None:
        call()
        return result

    return both


MPIS: dict[str, Way] = {
    "all_reduce": mpi_all_reduce,
    "reduce_scatter": mpi_reduce_scatter,
    "all_gather": mpi_all_gather,
    "broadcast": mpi_broadcast,
    "reduce": mpi_reduce,
    "all_to_all": mpi_all_to_all,
    "gather": mpi_gather,
    "scatter": mpi_scatter,
}
