"""A bucket: the flat buffers of parameters that travel together, and what each ZeRO stage keeps.

    Psi elements on N ranks      stage 0     stage 1     stage 2     stage 3
    parameters                   Psi         Psi         Psi         Psi/N
    gradients                    Psi         Psi         Psi/N       Psi/N
    masters and moments          Psi         Psi/N       Psi/N       Psi/N

In every stage the gradient is reduced by a reduce-scatter, so each rank has the sum of its chunk,
and the norm is taken from chunks. What follows differs:

    stage 0      gather the gradient; everybody updates everything
    stage 1      update the chunk; gather the parameters at the next forward
    stage 2      the same, and the gradient of a micro-batch is lent memory only until it is reduced
    stage 3      the same, and so are the parameters: gathered for a unit's forward and backward

A bucket knows its own memory and messages; who uses it when is told by `DataParallel` and `Zero`.
Source: Rajbhandari et al., "ZeRO", SC 2020, section 5.
"""

from typing import Any, NamedTuple

from minidist.arrays import Array
from minidist.bounds import share
from minidist.collectives import Started, Steps, ring
from minidist.nn import DATA
from minidist.ops.half import down
from minidist.parallel.chunk import kept_part, reduce_chunk
from minidist.parallel.flat import Group, Layout
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.watch import UNSEEN, Watch

GRADIENTS, PARAMETERS = "gradients", "parameters"
"""The operation names under which `comm.traffic.by` counts what buckets send."""


class Storage(NamedTuple):
    """How the state of a model is stored, the same for all its buckets."""

    stage: int
    dtype: Any
    """Of parameters, as layers read them."""
    grad_dtype: Any
    """Of gradients, in memory and on the wire."""
    master: Any
    """Of what the optimiser changes: a parameter itself if it has this dtype, else a copy."""
    xp: Any
    ledger: Ledger


class Bucket:
    """The parameters that the same units use, and their gradients.

    ``chunk`` is the part of the buffer that this rank answers for, ``own`` the part that it
    updates: at stage 0 all, else the chunk.
    """

    def __init__(self, group: Group, mesh: Mesh, how: Storage) -> None:
        first = group.parameters[0]
        self.users, self.how, self.stage = frozenset(group.users), how, how.stage
        self.name = "unit " + "+".join(map(str, group.users))
        self.trainable = first.trainable
        self.layout = Layout(group.parameters)
        self.comm = mesh.comm(*(a for a in DATA if a in first.partial))
        others = [a for a in first.partial if a not in DATA]
        self.rest = [mesh.comm(a) for a in others]
        self.counted = all(mesh.index[a] == 0 for a in (*others, *first.copies))
        self.chunk = slice(*share(self.comm, self.layout.size))
        self.own = kept_part("masters", self.stage, self.comm, self.layout.size)
        self.watch: Watch = UNSEEN
        self.ring: Started | None = None
        self.begun = False
        self._store_parameters()
        self._store_gradients()

    # --- what is kept -----------------------------------------------------------------------------

    def _new(self, kind: str, part: slice, dtype: Any, first: bool = False) -> Array:
        """Return an array for a part of the buffer, of zeros or first values; book its bytes."""
        array = self.how.xp.zeros(part.stop - part.start, dtype)
        self.how.ledger.take(kind, array.nbytes)
        if first:
            self.layout.fill(array, part, self.how.master)
        return array

    def _store_parameters(self) -> None:
        """`stored` is what stays, `weights` what the optimiser changes, `flat` what layers read."""
        how = self.how
        self.held, self.stale = 0, False
        self.gathering: Started | None = None
        self.flat: Array = None
        part = kept_part("parameters", self.stage, self.comm, self.layout.size)
        self.stored = self._new("parameters", part, how.dtype, first=True)
        if self.stage < 3:
            self._show(self.stored)
        self.weights = self._of_own(self.stored)
        if self.trainable and how.dtype != how.master:
            self.weights = self._new("masters", self.own, how.master, first=True)

    def _of_own(self, stored: Array) -> Array:
        """Return what this rank updates, of what it stores."""
        return stored[self.own] if self.stage < 3 else stored

    def _store_gradients(self) -> None:
        """`grad` is what layers add to, `sum` the chunk of the reduced gradient."""
        self.grad: Array = None
        if not self.trainable:
            return
        part = kept_part("gradients", self.stage, self.comm, self.layout.size)
        kept = self._new("gradients", part, self.how.grad_dtype)
        if self.stage < 2:
            self._lend(kept)
        self.sum = kept[self.chunk] if self.stage < 2 else kept
        for p in self.layout.parameters:
            p.home = self

    # --- gradients --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Forget the gradient of the step before; a lent one has been given back."""
        self.ring, self.begun = None, False
        if self.stage < 2:
            self.grad[...] = 0

    def lend(self) -> None:
        """Give the parameters memory for a gradient, until it is reduced. Only stages 2 and 3."""
        whole = slice(0, self.layout.size)
        self._lend(self._new("buffers", whole, self.how.grad_dtype))

    def _lend(self, flat: Array) -> None:
        self.grad = flat
        for p, view in self.layout.views(flat):
            p.grad = view

    def _take_back(self) -> Array:
        """Return the lent memory. The next gradient gets other memory: this one still travels."""
        if self.grad is None:
            self.lend()  # no user added to it, and zero is a gradient like any other
        flat, self.grad = self.grad, None
        for p in self.layout.parameters:
            p.grad = None
        return flat

    def start(self, final: bool) -> Started:
        """Start the sum over the data axes. `final`: nothing more is added in this step."""
        self.ring = Started(self.watch.ring(self.name, self._reduce(final)), self.comm)
        return self.ring

    def _reduce(self, final: bool) -> Steps:
        """Leave the sum of this rank's chunk in `sum`.

        The channels are taken before the first exchange: all ranks number them alike.
        """
        data, whole = (self.comm.channel(GRADIENTS, self.name) for _ in range(2))
        flat = self.grad if self.stage < 2 else self._take_back()
        out = self.sum if self.stage >= 2 and not self.begun else None
        onto = self.sum if self.stage >= 2 and out is None else None
        self.begun = True
        yield from reduce_chunk.steps(data, flat, out, onto)
        if self.stage >= 2:
            self.how.ledger.give("buffers", flat.nbytes)
        if final and not self.rest:
            yield from self._complete(whole, [])

    def complete(self) -> Started:
        """Sum over the axes that are not data axes, which must wait until the schedule is over.

        A wait for them within the schedule would deadlock: their ranks are at other actions.
        """
        whole = self.comm.channel(GRADIENTS, self.name)
        rest = [c.channel(GRADIENTS, self.name) for c in self.rest]
        return Started(self._complete(whole, rest), self.comm)

    def _complete(self, whole: Any, rest: list[Any]) -> Steps:
        for axis in rest:
            yield from ring.all_reduce.steps(axis, self.sum)
        if self.stage == 0:
            yield from ring.all_gather.steps(whole, self.grad)

    @property
    def gradient(self) -> Array:
        """The gradient of what this rank updates, once it is reduced."""
        return self.grad if self.stage == 0 else self.sum

    # --- parameters -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Round the masters into the parameters; what other ranks keep is then out of date."""
        if self.weights.dtype != self.stored.dtype:
            self._of_own(self.stored)[...] = down(self.weights, self.stored.dtype)
        self.stale = self.stage in (1, 2) and self.comm.size > 1

    def fetch(self) -> None:
        """Start gathering what is out of date or not here, if anything is."""
        if self.gathering is not None or not (self.stale or self.flat is None):
            return
        if self.flat is None:
            self.flat = self._room()
        channel = self.comm.channel(PARAMETERS, self.name)
        steps = ring.all_gather.steps(channel, self.flat)
        name = f"{self.name} {PARAMETERS}"
        self.gathering = Started(self.watch.ring(name, steps), self.comm)

    def _room(self) -> Array:
        """Return a whole buffer with this rank's chunk in place; on one rank that is all."""
        if self.comm.size == 1:
            return self.stored
        self.how.ledger.take("buffers", self.layout.size * self.stored.dtype.itemsize)
        flat = self.how.xp.empty(self.layout.size, self.stored.dtype)
        flat[self.chunk] = self.stored
        return flat

    def hold(self) -> None:
        """Have the parameters whole and up to date until `release`."""
        self.fetch()
        self.held += 1
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering, self.stale = None, False
            self._show(self.flat)

    def release(self) -> None:
        """At stage 3, free what `hold` gathered, once nobody else holds it."""
        self.held -= 1
        if self.stage < 3 or self.held:
            return
        if self.flat is not self.stored:
            self.how.ledger.give("buffers", self.flat.nbytes)
        self.flat = None
        for p in self.layout.parameters:
            p.data = None

    def _show(self, flat: Array) -> None:
        self.flat = flat
        for p, view in self.layout.views(flat):
            p.data = view
