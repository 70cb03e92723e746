"""Two levels: inside the node, then across nodes. Few bytes cross the slow wire.

    node 0: ranks 0 1 2            node 1: ranks 3 4

    1. reduce-scatter in each node     0: A   1: B   2: -      3: A   4: B      (sums of the node)
    2. all-reduce of equal pieces      0 <-> 3: A       1 <-> 4: B              (sums of all)
    3. all-gather in each node         A B everywhere

The array is cut into as many pieces as the *smallest* node has ranks, so that every node has a
rank for each piece; ranks beyond that number get an empty piece in step 1 and the whole in step 3.
So nodes may be uneven. (A mean of the means of nodes would be wrong there: sums are summed.)

Each node sends 2 (K - 1) / K of the array across, for K nodes, instead of once more per rank; NCCL
and MPI libraries do the same under the names "hierarchical" and "tree across nodes".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minidist.arrays import Array
from minidist.bounds import bounds
from minidist.collectives import ring
from minidist.collectives.buffers import working_array
from minidist.collectives.steps import Collective, Steps
from minidist.comm import Comm
from minidist.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Nodes:
    """The two groups of a rank. ``across`` is None for a rank that its node has too many of."""

    local: Comm
    across: Comm | None
    smallest: int


def nodes(comm: Comm, hosts: Sequence[object]) -> Nodes:
    """Split by host. All ranks call it; ``hosts[r]`` names the node of rank r, equal on all ranks.

    ``comm.gather_objects(platform.node())`` gives the real ones. Control messages only.
    """
    if len(hosts) != comm.size:
        raise ConfigError(f"{comm.at('nodes')}: {len(hosts)} hosts for {comm.size} ranks")
    place = list(hosts[: comm.rank]).count(hosts[comm.rank])
    smallest = min(list(hosts).count(h) for h in hosts)
    local = comm.split(hosts[comm.rank], name="node")
    across = comm.split(place if place < smallest else None, name="across nodes")
    assert local is not None
    return Nodes(local, across, smallest)


@Collective
def all_reduce(
    comm: Any, x: Array, nodes: Nodes, out: Array | None = None, op: str = "sum"
) -> Steps:
    """Combine ``x`` over all ranks, inside nodes and then across, and return the result.

    In place without ``out``. All ranks of the communicator that ``nodes`` has split call it. With L
    ranks on this node, K nodes, m ranks on the smallest and S bytes, a rank sends inside its node
    what a ring of L sends that is cut into m pieces, and across it 2 (K - 1) / K of S / m, if it
    has a piece. Bit-identical on all ranks: each piece is summed once and copied.
    """
    local = nodes.local.channel(comm.op, comm.label)
    across = nodes.across and nodes.across.channel(comm.op, comm.label)
    whole = working_array(comm, x, out, op)
    cut = bounds(whole.size, nodes.smallest)
    cut += [whole.size] * (local.size - nodes.smallest)
    own = yield from ring.reduce_scatter.steps(local, whole, op=op, offsets=cut)
    if across is not None:
        yield from ring.all_reduce.steps(across, own, op=op)
    yield from ring.all_gather.steps(local, whole, offsets=cut)
    return x if out is None else out
