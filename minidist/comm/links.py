"""Links of a described machine: latency and bandwidth between ranks, for the virtual clock.

A message of n bytes on a free link takes

    latency + n / bandwidth        seconds (the alpha-beta model; Hockney, 1994)

and keeps the link busy for n / bandwidth. Links with one name are one wire: a network card that all
ranks of a node share. `run(..., links=links)` takes a `Link` for all pairs, or a function
``links(a, b) -> Link`` of two world ranks.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from minidist.errors import ConfigError


class Link(NamedTuple):
    """One direction between two ranks: latency in seconds, bandwidth in bytes per second."""

    latency: float
    bandwidth: float = float("inf")
    name: str | None = None


def check_link(link: Link) -> Link:
    """Return the link. Raises ConfigError unless its numbers are those of a link."""
    if not (0 <= link.latency < math.inf and link.bandwidth > 0):  # nan is neither
        raise ConfigError(f"{link}: a link needs latency >= 0 s and bandwidth > 0 bytes/s")
    return link


Links: TypeAlias = Callable[[int, int], Link]


def as_links(links: "Link | tuple[float, float] | Links | None") -> Links | None:
    """Return a function of two ranks from a single link for all pairs, or from a function."""
    if links is None or callable(links):
        return links
    same = check_link(Link(*links))
    return lambda a, b: same


def by_node(nodes: Sequence[int], inside: Link, across: Link, shared_card: bool = False) -> Links:
    """Describe nodes of ``nodes[i]`` ranks each: one link inside a node, another one across.

    With ``shared_card`` all messages that leave a node queue on that node's one network card.
    """
    node_of = [i for i, ranks in enumerate(nodes) for _ in range(ranks)]

    def links(a: int, b: int) -> Link:
        if node_of[a] == node_of[b]:
            return inside
        return across._replace(name=f"card of node {node_of[a]}") if shared_card else across

    return links
