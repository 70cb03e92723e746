"""The end of a run in bytes: what each kind of memory should take, what it took, and at most.

The formulas know the sizes of the buckets, the ranks and the types; what was held is what the
ledger booked when arrays were made. State is exact. Activations and buffers come and go, so there
the table has the most that was held at once.
"""

from minidist.nn import DATA
from minidist.parallel.ledger import KINDS
from minidist.parallel.zero import Zero
from minidist.plan.memory import State


def state_bytes(sync: Zero) -> dict[str, int]:
    """Return what this rank should keep of each kind, by the formulas of `minidist.plan.memory`."""
    data, how = sync.mesh.comm(*DATA), sync.how
    optimizer = "adamw" if sync.optimizer.slots else "sgd"
    state = State(how.dtype.name, how.grad_dtype.name, optimizer)
    sizes = [b.layout.size for b in sync.buckets if b.trainable]
    frozen = [b.layout.size for b in sync.buckets if not b.trainable]
    return state.held(sync.stage, data.size, data.rank, sizes, frozen)


def memory_report(sync: Zero) -> str:
    """Return the table of this rank. Local."""
    wanted, ledger = state_bytes(sync), sync.ledger
    elements = sum(b.layout.size for b in sync.buckets)
    lines = [
        f"memory of rank {ledger.rank}: {elements:,} parameters, ZeRO stage {sync.stage}, "
        f"{sync.mesh.comm(*DATA).size} ranks; bytes",
        f"  {'':12}{'formula':>16}{'held':>16}{'at most':>16}",
    ]
    for kind in KINDS:
        held, peak = ledger.held[kind], ledger.peak[kind]
        if kind in wanted:
            told = "exactly" if held == wanted[kind] else f"NOT equal, by {held - wanted[kind]:,}"
            lines.append(f"  {kind:12}{wanted[kind]:16,}{held:16,}{peak:16,}  {told}")
        else:
            lines.append(f"  {kind:12}{'':16}{held:16,}{peak:16,}")
    lines.append(
        f"  {'together':12}{sum(wanted.values()):16,}{ledger.total:16,}{ledger.peak_total:16,}"
    )
    return "\n".join(lines)
