"""The most that a step lends and gathers at once, at stages 2 and 3: elements, by formula.

At stage 2 a gradient is lent from the first backward that adds to it until it is reduced. A few
reductions are under way, and beside them are the gradients that backward now fills: those of one
unit, and a table with several users from its last user to its first.

At stage 3 a unit's parameters are there while it works, and the next unit's are on their way.

These are bounds: on a fast network a reduction is done before the next one begins. Stages 0 and 1
lend and gather nothing, and one rank has nothing to gather.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple


class Sized(NamedTuple):
    """A bucket, as far as its size matters: the units that use it, and its elements."""

    users: Collection[int]
    size: int
    trainable: bool = True


def lent(stage: int, buckets: Sequence[Sized], under_way: int) -> int:
    """Return the elements of gradients that are lent at once, at most.

    ``under_way``: reductions that travel at the same time, at most.
    """
    reduced = [b for b in buckets if b.trainable]
    if stage < 2 or not reduced:
        return 0
    units = range(max(max(b.users) for b in reduced) + 1)
    filled = max(sum(b.size for b in reduced if min(b.users) <= u <= max(b.users)) for u in units)
    return under_way * max(b.size for b in reduced) + filled


def gathered(stage: int, ranks: int, buckets: Sequence[Sized]) -> int:
    """Return the elements of parameters that are gathered at once, at most."""
    if stage < 3 or ranks == 1:
        return 0
    return max(_neighbours(buckets), default=0)


def _neighbours(buckets: Sequence[Sized]) -> Iterator[int]:
    """Yield what each unit and the next one use together."""
    units = range(max((max(b.users) for b in buckets), default=-1) + 1)
    for u in units:
        yield sum(b.size for b in buckets if u in b.users or u + 1 in b.users)
