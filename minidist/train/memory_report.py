"""The end of a run in bytes: what each kind of memory should take, what it took, and at most.

The formulas know the sizes of the buckets, the ranks, the types and the shape of the model; what
was held is what the ledger booked when arrays were made. State and activations are exact. Buffers
come and go with the messages, so their formula is the most there may be at once.
"""

from typing import NamedTuple

from minidist.nn import DATA
from minidist.parallel.ledger import KINDS
from minidist.parallel.zero import LENT, Zero
from minidist.plan.activations import Activations
from minidist.plan.buffers import Sized, gathered, lent
from minidist.plan.memory import State


def state_bytes(sync: Zero) -> dict[str, int]:
    """Return what this rank should keep of each kind, by the formulas of `minidist.plan.memory`."""
    data, how = sync.mesh.comm(*DATA), sync.how
    optimizer = "adamw" if sync.optimizer.slots else "sgd"
    state = State(how.dtype.name, how.grad_dtype.name, optimizer)
    sizes = [b.layout.size for b in sync.buckets if b.trainable]
    frozen = [b.layout.size for b in sync.buckets if not b.trainable]
    return state.held(sync.stage, data.size, data.rank, sizes, frozen)


def buffer_bytes(sync: Zero) -> int:
    """Return what lent gradients and gathered units may take at once, by `minidist.plan.buffers`.

    Exact at stages 0 and 1, where it is nothing; else a bound.
    """
    ranks, how = sync.mesh.comm(*DATA).size, sync.how
    sized = [Sized(b.users, b.layout.size, b.trainable) for b in sync.buckets]
    parameters: int = gathered(sync.stage, ranks, sized) * how.dtype.itemsize
    gradients: int = lent(sync.stage, sized, LENT) * how.grad_dtype.itemsize
    return parameters + gradients


class Row(NamedTuple):
    """One kind of memory on this rank, in bytes."""

    kind: str
    formula: int
    held: int
    """Now."""
    peak: int
    """The most at once."""

    @property
    def told(self) -> str:
        """The comparison in words. Only for buffers is the formula a bound."""
        if self.peak == self.formula:
            return "exactly"
        if self.kind == "buffers" and self.peak < self.formula:
            return "below the bound"
        return f"NOT equal, by {self.peak - self.formula:,}"


def memory_rows(sync: Zero, activations: Activations) -> list[Row]:
    """Return each kind, for micro-batches of at most this shape. Local."""
    ledger = sync.ledger
    wanted = {**state_bytes(sync), "activations": activations.peak, "buffers": buffer_bytes(sync)}
    return [Row(kind, wanted[kind], ledger.held[kind], ledger.peak[kind]) for kind in KINDS]


def memory_report(sync: Zero, activations: Activations) -> str:
    """Return the table of this rank, as text. Local."""
    ledger, rows = sync.ledger, memory_rows(sync, activations)
    elements = sum(b.layout.size for b in sync.buckets)
    lines = [
        f"memory of rank {ledger.rank}: {elements:,} parameters, ZeRO stage {sync.stage}, "
        f"{sync.mesh.comm(*DATA).size} ranks; bytes",
        f"  {'':12}{'formula':>16}{'held':>16}{'at most':>16}",
        *(f"  {r.kind:12}{r.formula:16,}{r.held:16,}{r.peak:16,}  {r.told}" for r in rows),
        f"  {'together':12}{sum(r.formula for r in rows):16,}{ledger.total:16,}"
        f"{ledger.peak_total:16,}",
    ]
    work = sync.mesh.world.state.scratch.nbytes
    lines.append(f"  {'':12}{'':16}{work:16,}  more: work pieces of rings, kept for the next step")
    return "\n".join(lines)
