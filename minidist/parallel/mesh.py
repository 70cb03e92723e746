"""A mesh gives every rank a place on named axes, and every axis its groups of ranks.

    Mesh(comm, dp=2, tp=4) on 8 ranks        dp 0   0 1 2 3        a row is a tp group
                                             dp 1   4 5 6 7        a column is a dp group

    dp   data parallel: other samples               tp   tensor parallel: a part of each matrix
    pp   pipeline: other layers                     ep   experts: other experts, other samples
    cp   context parallel: other positions

The ranks are an array of shape (dp, pp, cp, ep, tp), filled in order, so tp varies fastest: its
groups are neighbours, which lie in one node and talk most. The array is the whole definition: the
group of an axis is a line of it.

For a weight without experts dp, cp and ep are all the same: ranks that hold this weight and have
seen other data. They are the *data axes*, over which gradients are summed and state may be cut.

`torch.distributed.DeviceMesh` and `jax.sharding.Mesh` are this array too; Megatron-LM computes the
groups with strides ("order" tp-cp-ep-dp-pp).
"""

from itertools import combinations
from math import prod

import numpy as np

from minidist.comm import Comm
from minidist.errors import ConfigError
from minidist.nn import DATA
from minidist.roster import roster

AXES = ("dp", "pp", "cp", "ep", "tp")


class Mesh:
    """The place of this rank. ``size`` and ``index`` give a number for each axis.

    ``dp`` is what the others leave unless it is given. All ranks of ``comm`` build it with the same
    sizes. Raises ConfigError if the sizes do not multiply to the number of ranks.
    """

    def __init__(
        self,
        comm: Comm,
        dp: int | None = None,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        tp: int = 1,
    ) -> None:
        others = {"pp": pp, "cp": cp, "ep": ep, "tp": tp}
        self.size = {"dp": _rest(comm, others) if dp is None else dp, **others}
        _check(comm, self.size)
        self.world = comm
        self.ranks = np.arange(comm.size).reshape(list(self.size.values()))
        place = np.unravel_index(comm.rank, self.ranks.shape)
        self.index = {axis: int(i) for axis, i in zip(AXES, place, strict=True)}
        self._comms = {group: self._split(group) for group in self._groups()}

    def comm(self, *axes: str) -> Comm:
        """Return the ranks that differ from this one along these axes only, this one included.

        No axis: this rank alone. There is a group for each axis, and for each choice of data axes;
        they were made with the mesh, so this is local. Raises ConfigError for another choice.
        """
        if set(axes) - set(AXES) or (len(axes) > 1 and set(axes) - set(DATA)):
            raise ConfigError(
                f"rank {self.world.rank}: the mesh has no group {'+'.join(axes)!r}; it has one for "
                f"each of {', '.join(AXES)} and for any of {', '.join(DATA)} together"
            )
        return self._comms[self._long(axes)]

    def group(self, *axes: str) -> list[int]:
        """Return the world ranks of `comm(*axes)`, in its order. Local."""
        where = tuple(slice(None) if a in axes else self.index[a] for a in AXES)
        return [int(r) for r in self.ranks[where].ravel()]

    def describe(self, device: str = "cpu") -> str:
        """Return a table of ranks with their place, host and device. All ranks call it."""
        places = self.world.gather_objects(self.index)
        used = [a for a in AXES if self.size[a] > 1] or ["dp"]
        lines = [f"mesh {' x '.join(f'{a} {self.size[a]}' for a in used)}"]
        lines.append("  rank  " + "".join(f"{a:>4}" for a in used) + "  host and device")
        for seat, index in zip(roster(self.world, device), places, strict=True):
            where = "".join(f"{index[a]:4}" for a in used)
            lines.append(f"  {seat.rank:4}  {where}  {seat.host}, {seat.device}")
        return "\n".join(lines)

    def _long(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the axes in order, without those of one rank, which add nobody to a group."""
        return tuple(a for a in AXES if a in axes and self.size[a] > 1)

    def _groups(self) -> list[tuple[str, ...]]:
        """All groups, in the one order in which every rank makes them."""
        data = [g for n in range(len(DATA) + 1) for g in combinations(DATA, n)]
        alone = [(a,) for a in AXES if a not in DATA]
        return list(dict.fromkeys(self._long(g) for g in [*data, *alone]))

    def _split(self, group: tuple[str, ...]) -> Comm:
        if prod(self.size[a] for a in group) == self.world.size:
            return self.world
        colour = tuple(i for a, i in self.index.items() if a not in group)
        found = self.world.split(colour, self.world.rank, "+".join(group) or "self")
        assert found is not None  # every rank gave a colour
        return found


def _rest(comm: Comm, others: dict[str, int]) -> int:
    """Return the ranks that are left for dp."""
    product = prod(others.values())
    return comm.size // product if product > 0 else 1


def _check(comm: Comm, size: dict[str, int]) -> None:
    wrong = [a for a, n in size.items() if type(n) is not int or n < 1]
    if wrong or prod(size.values()) != comm.size:
        product = " x ".join(f"{a} {n}" for a, n in size.items())
        why = f"{wrong[0]} must be at least 1" if wrong else f"that is {prod(size.values())} ranks"
        raise ConfigError(
            f"rank {comm.rank}: a mesh of {product} does not fit {comm.size} ranks: {why}; "
            f"choose sizes whose product is {comm.size}"
        )
