"""Which all-reduce is the fastest here? Put the measured links into the formulas and compare.

    nbytes        8 B        64 KiB       64 MiB
    fastest       doubling   halving      ring or halving, and segmented between nodes

MPI libraries and NCCL choose in the same way, by tables or by a cost model like this one (NCCL's
has one latency and one bandwidth for each kind of link; Hu et al., 2025, "Demystifying NCCL").
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from minidist.arrays import Array
from minidist.collectives import costs, doubling, halving, hierarchical, ring, segmented, tree
from minidist.collectives.costs import Cost
from minidist.collectives.folding import split_ranks
from minidist.collectives.steps import Collective
from minidist.comm import Comm, Link
from minidist.comm.links import check_link
from minidist.errors import ConfigError
from minidist.network import DEFAULT, Measured, load, place


@dataclass(frozen=True)
class Network:
    """What there is between the ranks of a group.

    ``hosts[r]`` is the node of rank r; ``inside`` the link between two ranks of a node, ``across``
    the one between nodes, which all ranks of a node share; ``add`` seconds to add a byte.
    """

    hosts: Sequence[object]
    inside: Link
    across: Link
    add: float = 0.0

    def __post_init__(self) -> None:
        check_link(self.inside)
        check_link(self.across)
        if not 0 <= self.add < math.inf:
            raise ConfigError(f"adding takes {self.add} s a byte; must be 0 or more")

    @property
    def sizes(self) -> list[int]:
        """How many ranks each node has."""
        hosts = list(self.hosts)
        return [hosts.count(h) for h in dict.fromkeys(hosts)]

    def link(self, to: Callable[[int], int | None]) -> Link:
        """Return the slowest link in use when every rank r sends to rank ``to(r)`` at once.

        The ranks of a node that send to other nodes share its wire. None: the rank sends nothing.
        """
        hosts = list(self.hosts)
        goes = [(h, to(r)) for r, h in enumerate(hosts)]
        leaving = [h for h, target in goes if target is not None and hosts[target] != h]
        senders = max((leaving.count(h) for h in set(leaving)), default=0)
        return self.shared(senders) if senders else self.inside

    def shared(self, senders: int) -> Link:
        """Return the link between nodes as one of ``senders`` ranks of a node sees it."""
        return self.across._replace(bandwidth=self.across.bandwidth / senders)


@dataclass(frozen=True)
class Choice:
    """The algorithm that is taken: call it as ``choice(comm, x, out=None, op="sum")``.

    ``seconds`` is what it should take, ``candidates`` what each of them should.
    """

    name: str
    seconds: float
    candidates: dict[str, float]
    run: Callable[..., Any] = field(repr=False)

    def __call__(self, comm: Comm, x: Array, out: Array | None = None, op: str = "sum") -> Any:
        """Run it: see `ring.all_reduce`. All ranks call it."""
        return self.run(comm, x, out, op)


def choose(nbytes: int, comm: Comm, network: Network | None = None) -> Choice:
    """Return the all-reduce that should be the fastest for ``nbytes`` on this group.

    All ranks call it with equal arguments and get the same answer. ``network``: what there is
    between the ranks; without it, what `minidist measure-links` has measured (on rank 0's node),
    and `DEFAULT` links where nothing has been. The first call on a group, and only that, exchanges
    control messages.
    """
    if not hasattr(nbytes, "__index__") or not 0 <= nbytes < 1 << 63:
        raise ConfigError(f"{comm.at('choose')}: {nbytes!r} is no number of bytes")
    network = network or surroundings(comm)
    if len(network.hosts) != comm.size:
        raise ConfigError(f"{comm.at('choose')}: {len(network.hosts)} hosts, {comm.size} ranks")
    seconds = predict(nbytes, network)
    name = min(seconds, key=lambda candidate: seconds[candidate])
    body = FLAT.get(name) or two_levels(comm, network.hosts)
    return Choice(name, seconds[name], seconds, body)


def predict(nbytes: int, network: Network) -> dict[str, float]:
    """Return the seconds that each candidate should take, in the order of the simplest first."""
    ranks, add, sizes = len(network.hosts), network.add, network.sizes
    right = network.link(lambda r: (r + 1) % ranks)
    plain = costs.ring_all_reduce(ranks, nbytes)
    if len(sizes) > 1:
        segmented_ring = costs.segmented_all_reduce(ranks, nbytes, right, add)
    else:  # the core that adds also moves the bytes: nothing overlaps
        segmented_ring = costs.segmented_all_reduce(ranks, nbytes, right) + plain.added * add
    found = {"ring": plain.seconds(right, add), "segmented": segmented_ring}
    for name, rounds in (("halving", halves), ("doubling", doubles), ("tree", tree_rounds)):
        found[name] = sum(cost.seconds(network.link(to), add) for to, cost in rounds(ranks, nbytes))
    if len(sizes) > 1 and max(sizes) > 1:
        inner, outer = costs.hierarchical_all_reduce(sizes, nbytes)
        across = network.shared(min(sizes))
        found["hierarchical"] = inner.seconds(network.inside, add) + outer.seconds(across, add)
    return found


# --- the rounds of an algorithm: who sends to whom, and what it costs -----------------------------

Rounds: TypeAlias = Iterator[tuple[Callable[[int], int | None], Cost]]


def halves(ranks: int, nbytes: float) -> Rounds:
    """Halving: the far partners get the large messages."""
    power, _ = split_ranks(ranks)
    yield from handed_in(ranks, nbytes)
    for width in widths(power):
        part = width * nbytes / power
        yield partner(ranks, width), Cost(2, 2 * part, part)


def doubles(ranks: int, nbytes: float) -> Rounds:
    """Doubling: the whole array in each round."""
    power, _ = split_ranks(ranks)
    yield from handed_in(ranks, nbytes)
    for width in widths(power):
        yield partner(ranks, width), Cost(1, nbytes, nbytes)


def tree_rounds(ranks: int, nbytes: float) -> Rounds:
    """A tree, up and down."""
    for width in widths(1 << (ranks - 1).bit_length()):

        def parent(r: int, width: int = width) -> int | None:
            return r - width if r % (2 * width) == width else None

        yield parent, Cost(2, 2 * nbytes, nbytes)


def handed_in(ranks: int, nbytes: float) -> Rounds:
    """What ranks beyond a power of two give to their partners, and get back."""
    _, extra = split_ranks(ranks)
    if extra:
        yield (
            (lambda r: r + 1 if r < 2 * extra and r % 2 == 0 else None),
            Cost(2, 2 * nbytes, nbytes),
        )


def partner(ranks: int, width: int) -> Callable[[int], int | None]:
    """Return whom a worker exchanges with in the round of this width; see `folding`."""
    _, extra = split_ranks(ranks)

    def to(r: int) -> int | None:
        if r < 2 * extra and r % 2 == 0:
            return None
        other = (r // 2 if r < 2 * extra else r - extra) ^ width
        return 2 * other + 1 if other < extra else other + extra

    return to


def widths(power: int) -> list[int]:
    """Return 1, 2, 4, ... below a power of two."""
    return [1 << k for k in range(power.bit_length() - 1)]


FLAT: dict[str, Collective] = {
    "ring": ring.all_reduce,
    "segmented": segmented.all_reduce,
    "halving": halving.all_reduce,
    "doubling": doubling.all_reduce,
    "tree": tree.all_reduce,
}


# --- what is remembered about a group -------------------------------------------------------------


def surroundings(comm: Comm) -> Network:
    """Return what is known of the links between these ranks. All ranks call it."""
    if "network" not in comm.memo:
        places = comm.gather_objects(place())
        measured = comm.bcast_object(load() if comm.rank == 0 else None)
        comm.memo["network"] = between(places, measured or DEFAULT)
    found: Network = comm.memo["network"]
    return found


def between(places: Sequence[tuple[str, int]], measured: Measured) -> Network:
    """Return the network of ranks at these places (node, process), from measured links."""
    hosts = [node for node, _ in places]
    alone = len(set(places)) == len(set(hosts))  # one process a node
    inside = measured.link("process" if alone else "node")
    return Network(hosts, inside, measured.link("network"), measured.add)


def two_levels(comm: Comm, hosts: Sequence[object]) -> Any:
    """Return the hierarchical all-reduce on these nodes. All ranks call it; it splits once."""
    if "nodes" not in comm.memo:
        comm.memo["nodes"] = hierarchical.nodes(comm, hosts)
    nodes: hierarchical.Nodes = comm.memo["nodes"]

    def all_reduce(comm: Comm, x: Array, out: Array | None, op: str) -> Any:
        return hierarchical.all_reduce(comm, x, nodes, out, op)

    return all_reduce
