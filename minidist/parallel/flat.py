"""Which parameters share a flat buffer, and where each lies in it.

    unit 1: norm (4), q (2, 3)     bucket "unit 1"   | norm  |     q     |      10 elements
    4 ranks cut the buffer                           |0 0 0|1 1 1|2 2|3 3|      3, 3, 2, 2

One buffer means one message for many small tensors, and cuts that need not ask where a tensor ends.
So a rank's chunk holds pieces of several tensors: here rank 0 keeps three elements of the norm, and
rank 1 the last one and two of q. Such a piece is a `Shard`, a row-major range.

A bucket is the parameters with the same users, that is the units that add to the gradient, and with
the same axes of reduction. A table that the embedding and the head share has two users, so it has a
bucket of its own, which is complete when both have reported.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from minidist.arrays import Array, namespace
from minidist.errors import ConfigError
from minidist.nn import Parameter, Shard

AT_ONCE = 1 << 20
"""First values computed at a time: they come in float64, which the whole model need not do."""


class Unit(Protocol):
    """What a model is a list of: as much of it as buckets look at."""

    def parameters(self) -> Sequence[Parameter]:
        """Return all of them; a shared one may appear twice."""


class Layout:
    """Parameters one after the other in a flat buffer of ``size`` elements."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = list(parameters)
        self.offsets = np.cumsum([0, *(p.size for p in parameters)]).tolist()
        self.size: int = self.offsets[-1]

    def views(self, flat: Array) -> Iterator[tuple[Parameter, Array]]:
        """Yield each parameter and its part of a whole buffer, in the parameter's own shape."""
        for p, start, stop in zip(self.parameters, self.offsets, self.offsets[1:], strict=False):
            yield p, flat[start:stop].reshape(p.local)

    def shards(self, part: slice) -> Iterator[tuple[Shard, slice]]:
        """Yield the pieces of parameters in a part of the buffer, and their places in that part.

        A piece has at least one element: where there is nothing to keep, nothing is kept.
        """
        for p, start, stop in zip(self.parameters, self.offsets, self.offsets[1:], strict=False):
            first, last = max(part.start, start), min(part.stop, stop)
            if first < last:
                place = slice(first - part.start, last - part.start)
                yield Shard(p, first - start, last - start), place

    def fill(self, target: Array, part: slice, through: Any) -> None:
        """Put the first values of a part of the buffer into `target`, rounded to `through` first.

        A master in float32 and a weight in bfloat16 then start from the same number.
        """
        xp = namespace(target)
        for shard, place in self.shards(part):
            p = shard.parameter
            for start in range(shard.start, shard.stop, AT_ONCE):
                stop = min(start + AT_ONCE, shard.stop)
                at = place.start + start - shard.start
                values = p.initial(start, stop).astype(through).astype(target.dtype)
                target[at : at + stop - start] = xp.asarray(values)


class Group(NamedTuple):
    """What becomes one bucket."""

    users: tuple[int, ...]
    parameters: list[Parameter]

    @property
    def size(self) -> int:
        """Elements that a rank holds of it."""
        return sum(p.size for p in self.parameters)


def users_of(units: Sequence[Unit]) -> dict[Parameter, list[int]]:
    """Return the parameters of a model, each once, and the indices of the units that use it."""
    users: defaultdict[Parameter, list[int]] = defaultdict(list)
    for index, unit in enumerate(units):
        for p in dict.fromkeys(unit.parameters()):
            users[p].append(index)
    return users


def group(units: Sequence[Unit], elements: float = 0) -> list[Group]:
    """Return the buckets of a model: one for each unit, and for each set of units that share.

    With ``elements``, the buckets of neighbouring units are joined, from the last unit on as
    backward goes, until each has that many. Fewer messages then, and a later start.
    """
    users = users_of(units)
    _check_names(list(users))
    alike = defaultdict[Any, dict[tuple[int, ...], list[Parameter]]](dict)
    for p, us in users.items():
        alike[p.partial, p.copies, p.trainable].setdefault(tuple(us), []).append(p)
    return [g for groups in alike.values() for g in _by_user(groups, elements)]


def join(groups: Sequence[Group], elements: float) -> list[Group]:
    """Join neighbours, from the last on as backward goes, until each has so many elements.

    ``groups`` and the result go by units, from the first to the last, and so do the users and the
    parameters in each. What backward reaches last may stay smaller.
    """
    joined: list[Group] = []
    for g in reversed(groups):
        if joined and joined[-1].size < elements:
            last = joined[-1]
            joined[-1] = Group((*g.users, *last.users), [*g.parameters, *last.parameters])
        else:
            joined.append(g)
    return joined[::-1]


def _by_user(groups: dict[tuple[int, ...], list[Parameter]], elements: float) -> list[Group]:
    """Join what neighbouring units use alone; what several units share stays by itself."""
    alone = [Group(us, ps) for us, ps in groups.items() if len(us) == 1]
    shared = [Group(us, ps) for us, ps in groups.items() if len(us) > 1]
    return [*join(sorted(alone, key=lambda g: g.users), elements), *shared]


def _check_names(parameters: Sequence[Parameter]) -> None:
    """Two parameters of one name would start with the same values and share a checkpoint entry."""
    seen: set[str] = set()
    for p in parameters:
        if p.name in seen:
            raise ConfigError(f"two parameters are called {p.name}: share one or rename one")
        seen.add(p.name)
