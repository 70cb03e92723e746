"""Races in a list of accesses: two threads touch one byte, and nothing says who is first.

    thread 7 writes   parts[7]    barriers passed: 1   } ordered by the barrier
    thread 3 reads    parts[7]    barriers passed: 2   }

    thread 7 writes   parts[7]    barriers passed: 1   } a race, in whatever order they came here
    thread 3 reads    parts[7]    barriers passed: 1   }

For each byte the last write and the reads after it are kept; whoever comes is compared with these.
What orders two accesses is told in watching.py.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

WARP = 32


@dataclass(frozen=True)
class Access:
    """One access: whose it is, which bytes, and how many barriers and warp operations before it.

    ``as_one``: atomic or volatile. ``place`` and ``line`` say where, in memory and in the file.
    """

    block: int
    thread: int
    address: int
    size: int
    write: bool
    as_one: bool
    shared: bool
    barriers: int
    exchanges: int
    place: Callable[[], str]
    line: Callable[[], str]

    def __str__(self) -> str:
        does = "writes" if self.write else "reads"
        at = f", at {line}" if (line := self.line()) else ""
        return f"thread {self.thread} of block {self.block} {does} it{at}"


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders; ``first`` came first in the run that was watched."""

    first: Access
    second: Access

    def __str__(self) -> str:
        return f"a race for {self.first.place()}\n  {self.first}\n  {self.second}"


@dataclass
class _Place:
    """What was last done to a byte."""

    write: tuple[int, Access] | None = None
    reads: list[tuple[int, Access]] = field(default_factory=list)


def find_races(accesses: Iterable[Access], most: int) -> list[Race]:
    """Return races among the accesses of one launch, at most so many, one for a byte at most."""
    every = list(accesses)
    atomics: dict[int, list[int]] = {}  # block -> when it has done one
    for when, access in enumerate(every):
        if access.as_one and not access.shared:
            atomics.setdefault(access.block, []).append(when)
    places: dict[tuple[int, int], _Place] = {}
    found: dict[tuple[int, int], Race] = {}
    for when, access in enumerate(every):
        if len(found) >= most:
            break
        owner = access.block if access.shared else -1
        for byte in range(access.address, access.address + access.size):
            place = places.setdefault((owner, byte), _Place())
            before = [place.write] if place.write else []
            before += place.reads if access.write else []
            for then, other in before:
                if not _ordered(then, other, when, access, atomics):
                    key = (owner, byte - byte % access.size)
                    found.setdefault(key, Race(other, access))
            if access.write:
                place.write, place.reads = (when, access), []
            else:
                place.reads.append((when, access))
    return list(found.values())[:most]


def _ordered(
    then: int, first: Access, now: int, second: Access, atomics: dict[int, list[int]]
) -> bool:
    """Whether something orders two accesses, or neither of them minds the other."""
    if first.as_one and second.as_one:
        return True
    if first.block != second.block:
        release, acquire = atomics.get(first.block, []), atomics.get(second.block, [])
        after, before = bisect_right(release, then), bisect_left(acquire, now) - 1
        return after < len(release) and before >= 0 and release[after] < acquire[before]
    if first.thread == second.thread or first.barriers < second.barriers:
        return True
    same_warp = first.thread // WARP == second.thread // WARP
    return same_warp and first.exchanges < second.exchanges
