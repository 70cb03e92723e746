"""Which kind of link two ranks have: it goes by where they run.

process    two in-process ranks: a copy in memory
node       two processes on one machine: shared memory
network    two machines: a wire
"""

import os
import platform
from typing import TypeAlias

LEVELS = ("process", "node", "network")

Place: TypeAlias = tuple[str, int]  # name of the node, number of the process


def place() -> Place:
    """Return where this rank runs. Ranks of one process have equal places."""
    return platform.node(), os.getpid()


def level(a: Place, b: Place) -> str:
    """Return the kind of link between two ranks at these places."""
    if a[0] != b[0]:
        return "network"
    return "process" if a == b else "node"
