"""What a rank holds, by kind, in bytes: every allocation of a step is booked here.

    parameters    as layers read them              activations   for backward
    gradients     kept until the update            buffers       lent gradients, gathered units
    masters       float32 copies of half types
    moments       of the optimiser

A number in a formula is then beside a number that was counted, and a limit can stop a rank before
the machine does. What is not booked: one layer's temporary arrays, and the two pieces with which a
ring works, which the end of a run tells (`minidist.comm.scratch`). An allocator's own reserve is
not seen either; PyTorch reports both, as "allocated" and "reserved".
"""

from minidist.errors import MemoryLimitError

KINDS = ("parameters", "gradients", "masters", "moments", "activations", "buffers")


class Ledger:
    """Bytes by kind: ``held`` now, ``peak`` of each kind, ``at_peak`` when the total was highest.

    ``limit``: bytes that this rank may hold, 0 for any.
    """

    def __init__(self, rank: int = 0, limit: int = 0) -> None:
        self.rank, self.limit = rank, limit
        self.held = dict.fromkeys(KINDS, 0)
        self.peak = dict.fromkeys(KINDS, 0)
        self.at_peak = dict.fromkeys(KINDS, 0)

    @property
    def total(self) -> int:
        """Bytes held now."""
        return sum(self.held.values())

    @property
    def peak_total(self) -> int:
        """The most bytes that were held at once."""
        return sum(self.at_peak.values())

    def take(self, kind: str, nbytes: int) -> None:
        """Book bytes. Raises MemoryLimitError if they do not fit; they are not booked then."""
        if self.limit and self.total + nbytes > self.limit:
            raise MemoryLimitError(
                f"rank {self.rank}: {nbytes:,} bytes of {kind} more than the limit of "
                f"{self.limit:,} bytes allows; the rank holds\n{self.table()}\nhold less with a "
                "higher --zero stage on more ranks, --recompute unit or more --micro-batches, or "
                "raise --memory-limit"
            )
        self.held[kind] += nbytes
        self.peak[kind] = max(self.peak[kind], self.held[kind])
        if self.total > self.peak_total:
            self.at_peak = dict(self.held)

    def give(self, kind: str, nbytes: int) -> None:
        """Take bytes off the book again. More than is held is a bug of the caller: ValueError."""
        if nbytes > self.held[kind]:
            raise ValueError(
                f"rank {self.rank}: {nbytes:,} bytes of {kind} given back, {self.held[kind]:,} held"
            )
        self.held[kind] -= nbytes

    def table(self) -> str:
        """Return a line for each kind: bytes now and at most."""
        lines = [f"  {'':12}{'bytes':>16}{'at most':>16}"]
        lines += [f"  {kind:12}{self.held[kind]:16,}{self.peak[kind]:16,}" for kind in KINDS]
        lines.append(f"  {'together':12}{self.total:16,}{self.peak_total:16,}")
        return "\n".join(lines)
