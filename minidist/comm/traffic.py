"""Counts of what a rank sends: the measured side of every formula in the lessons.

Only payload counts, on the sending side: headers that check messages, and control objects, are not
traffic. A sub-communicator counts for itself and into the communicator that it was split from.
"""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Count:
    """Messages and bytes sent."""

    messages: int = 0
    bytes: int = 0

    def add(self, nbytes: int) -> None:
        """Count one message."""
        self.messages += 1
        self.bytes += nbytes


@dataclass
class Traffic:
    """Totals of this rank on one communicator, and the same per operation name in ``by``."""

    parent: "Traffic | None" = None
    total: Count = field(default_factory=Count)
    by: defaultdict[str, Count] = field(default_factory=lambda: defaultdict(Count))

    @property
    def messages(self) -> int:
        """Messages that this rank has sent."""
        return self.total.messages

    @property
    def bytes(self) -> int:
        """Payload bytes that this rank has sent."""
        return self.total.bytes

    def add(self, op: str, nbytes: int) -> None:
        """Count one message of ``nbytes`` for operation ``op``, here and in every parent."""
        self.total.add(nbytes)
        self.by[op].add(nbytes)
        if self.parent is not None:
            self.parent.add(op, nbytes)
