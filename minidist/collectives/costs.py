"""What each collective costs, as formulas that the tests compare with counters and clocks.

In the alpha-beta model (Hockney, 1994) a message of n bytes takes alpha + n beta seconds on a free
link, alpha being the latency and beta one over the bandwidth. Adding takes gamma seconds a byte.
The time of a collective is its longest chain of messages and sums that wait for each other:

    seconds = messages x alpha + nbytes x beta + added x gamma

Every formula is for N ranks and an array of S bytes on links that nobody shares: each pair of ranks
has its own. Where one rank sends or receives several arrays at once, `one_port` counts them one
after the other, as on a rank with one wire out and one in (Thakur, Rabenseifner and Gropp, 2005;
Chan et al., 2007, Concurrency Computat.: Pract. Exper. 19(13)).

Bytes are exact where N (for halving the power of two P) divides the array; otherwise pieces differ
by one element.
"""

from collections.abc import Sequence
from typing import NamedTuple

from minidist.collectives.folding import split_ranks
from minidist.collectives.segmented import SEGMENT, segments
from minidist.comm.links import Link


class Cost(NamedTuple):
    """Messages one after the other, bytes sent and bytes added along the longest chain."""

    messages: float
    nbytes: float
    added: float = 0.0

    def seconds(self, link: Link, add: float = 0.0) -> float:
        """Return the time on a link, if adding takes ``add`` seconds a byte."""
        return self.messages * link.latency + self.nbytes / link.bandwidth + self.added * add

    def then(self, other: "Cost") -> "Cost":
        """Return the cost of one after the other."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


def shift(ranks: int, nbytes: float) -> Cost:
    """One message."""
    return Cost(1, nbytes) if ranks > 1 else Cost(0, 0)


def reduce_scatter(ranks: int, nbytes: float) -> Cost:
    """N - 1 messages of a piece, each of which is added on arrival. The ring."""
    piece, steps = nbytes / ranks, ranks - 1
    return Cost(steps, steps * piece, steps * piece)


def all_gather(ranks: int, nbytes: float) -> Cost:
    """N - 1 messages of a piece. The ring."""
    return Cost(ranks - 1, (ranks - 1) * nbytes / ranks)


def all_to_all(ranks: int, nbytes: float) -> Cost:
    """N - 1 messages of a piece; ``nbytes`` is what one rank has for all."""
    return all_gather(ranks, nbytes)


def ring_all_reduce(ranks: int, nbytes: float) -> Cost:
    """Reduce-scatter, then all-gather: 2 (N - 1) messages, 2 (N - 1) / N S bytes."""
    return reduce_scatter(ranks, nbytes).then(all_gather(ranks, nbytes))


def segmented_all_reduce(
    ranks: int, nbytes: int, link: Link, add: float = 0.0, segment: int = SEGMENT
) -> float:
    """Seconds, since it is no plain sum: each segment is added while the next one travels.

    The first segment travels, K (N - 1) - 1 times the longer of the two passes, and the last one is
    added; then the all-gather.
    """
    if ranks == 1:
        return 0.0
    piece = nbytes / ranks
    count = segments(-(-nbytes // ranks), segment)
    travel, adding = Cost(1, piece / count).seconds(link), piece / count * add
    scatter = travel + (count * (ranks - 1) - 1) * max(travel, adding) + adding
    return scatter + all_gather(ranks, nbytes).seconds(link)


def halving_all_reduce(ranks: int, nbytes: float) -> Cost:
    """2 log2 P messages, 2 (P - 1) / P S bytes; and two whole arrays if N is no power of two."""
    power, extra = split_ranks(ranks)
    half = (power - 1) / power * nbytes
    work = Cost(2 * _floor_log2(power), 2 * half, half)
    return work.then(Cost(2, 2 * nbytes, nbytes)) if extra else work


def doubling_all_reduce(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """log2 P messages of S, and one or two more if E = N - P ranks are too many.

    What an extra rank hands in reaches another worker with one message for each bit in which their
    numbers differ, and an extra rank waits for one more. So with E > 0, log2 P + 1 messages are the
    chain to a worker without a partner, and b + 2 the chain from one extra rank to another, if
    their numbers have b bits. With one port, log2 P + 2 arrays go through the wires of a pair.
    """
    power, extra = split_ranks(ranks)
    rounds = _floor_log2(power)
    if not extra:
        return Cost(rounds, rounds * nbytes, rounds * nbytes)
    chain = max(rounds + 1, (extra - 1).bit_length() + 2)
    arrays = rounds + 2 if one_port else chain
    return Cost(chain, arrays * nbytes, (rounds + 1) * nbytes)


def broadcast(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """A tree of depth log2 N, rounded down; with one port, log2 N arrays, rounded up."""
    depth, fan = _floor_log2(ranks), (ranks - 1).bit_length()
    return Cost(depth, (fan if one_port else depth) * nbytes)


def reduce(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """The same tree; the root adds log2 N arrays, rounded up.

    With one port this is the most: if N is no power of two, a leaf may use a wire while others do
    not need it yet.
    """
    fan = (ranks - 1).bit_length()
    return broadcast(ranks, nbytes, one_port)._replace(added=fan * nbytes)


def tree_all_reduce(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """A reduction to one rank, and a broadcast from it."""
    return reduce(ranks, nbytes, one_port).then(broadcast(ranks, nbytes, one_port))


def server_all_reduce(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """Everything to one rank and back: with one port, 2 (N - 1) S bytes go through it."""
    if ranks == 1:
        return Cost(0, 0)
    at_once = ranks - 1 if one_port else 1
    return Cost(2, 2 * at_once * nbytes, (ranks - 1) * nbytes)


def gather(ranks: int, nbytes: float, one_port: bool = True) -> Cost:
    """N - 1 pieces to one rank (or from one: scatter)."""
    if ranks == 1:
        return Cost(0, 0)
    return Cost(1, ((ranks - 1) if one_port else 1) * nbytes / ranks)


scatter = gather


def hierarchical_all_reduce(sizes: Sequence[int], nbytes: float) -> tuple[Cost, Cost]:
    """Return the cost inside the node and that across, for nodes of ``sizes`` ranks.

    With L ranks on the largest node and m on the smallest, pieces are S / m: 2 (L - 1) messages of
    one inside, and the ring of K nodes over one across. Where the m ranks of a node share one
    network card, they share its bandwidth.
    """
    piece, steps = nbytes / min(sizes), max(sizes) - 1
    inside = Cost(2 * steps, 2 * steps * piece, steps * piece)
    return inside, ring_all_reduce(len(sizes), piece)


def _floor_log2(n: int) -> int:
    return n.bit_length() - 1
