"""Watching a kernel: each access to memory that threads share, what it moves, and who races.

    with cuda.watch() as seen:
        add(grid, block, (out, a, b, n))
    seen.moved()            12 n bytes: between the arrays and the processor
    seen.races()            [] or: two threads touch one place, and nothing says who is first

Two accesses to one byte by two threads race if one of them writes, unless both are atomic, or
something stands between them that orders them:

    in one block            a barrier that both threads have passed
    in one warp             a warp operation (a shuffle, __syncwarp) that both have passed
    in different blocks     an atomic operation of the first block after its access, then one of
                            the second block before its own: "the last block adds up the parts"

It does not matter in which order the threads happen to run: a race is found even where the result
is right by chance. Two simplifications hide some: masks of warp operations are not looked at, nor
which variable blocks use to order themselves. Only the emulator can watch, and only small launches.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from minidist.cuda import faults
from minidist.cuda.arguments import Memory, Value
from minidist.cuda.races import Access, Race, find_races
from minidist.cuda.signature import Signature
from minidist.errors import KernelError

MOST = 1 << 18  # accesses of a launch, of 48 bytes each
SHARED = -2  # MD_SHARED of runtime/abi.h
WRITE, AS_ONE = 1, 2  # md_how
STATIC = 1 << 32  # MD_STATIC: of an address in shared memory

RECORD = np.dtype(
    [
        ("pc", np.uint64),
        ("address", np.uint64),
        ("block", np.uint64),
        ("thread", np.uint32),
        ("size", np.uint32),
        ("argument", np.int32),
        ("how", np.uint32),
        ("barriers", np.uint32),
        ("exchanges", np.uint32),
    ]
)
"""md_access of runtime/abi.h."""


@dataclass(frozen=True)
class Launch:
    """One launch that was watched. ``records``: its accesses, of dtype RECORD, in their order."""

    kernel: Signature
    values: Sequence[Value]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    library: Path
    barriers: int
    records: np.ndarray

    def place(self, argument: int, address: int) -> str:
        """Say where an access goes: "element 3 of argument 0 'out'", "byte 4 of ..."."""
        if argument == SHARED:
            kind = "static" if address >= STATIC else "dynamic"
            return f"byte {address % STATIC} of {kind} shared memory"
        name, value = self.kernel.parameters[argument].name, self.values[argument]
        assert isinstance(value, Memory)
        offset = (address - value.address) // value.itemsize
        what = "element" if value.itemsize > 1 else "byte"
        return f"{what} {offset} of argument {argument} '{name}'"

    def busiest(self) -> int:
        """Return how many times one thread accessed shared memory, of the one that did most."""
        shared = self.records[self.records["argument"] == SHARED]
        _, counts = np.unique(shared[["block", "thread"]], return_counts=True)
        return int(counts.max(initial=0))


class Watch:
    """What has been seen: of all launches in the block of `watch`, or of one with ``launch=i``."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._room = np.empty(0, RECORD)

    def room(self) -> np.ndarray:
        """Return room for MOST accesses; for the emulator."""
        self._room = np.empty(MOST, RECORD)
        return self._room

    def launched(
        self,
        kernel: Signature,
        values: Sequence[Value],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        library: Path,
        outcome: faults.Outcome,
    ) -> None:
        """Take what the emulator has noted. Raises KernelError if the room was not enough."""
        if outcome.accesses > MOST:
            raise KernelError(
                f"{kernel.name}: {outcome.accesses:,} accesses, and {MOST:,} can be watched: "
                "launch it on fewer elements"
            )
        records = self._room[: outcome.accesses].copy()
        barriers = int(outcome.barriers)
        self.launches.append(Launch(kernel, values, grid, block, library, barriers, records))

    def reads(self, name: str | None = None) -> int:
        """Return the bytes read from an argument, by its name; by default from all of them."""
        return self._bytes(name, write=False)

    def writes(self, name: str | None = None) -> int:
        """Return the bytes written to an argument; by default to all of them."""
        return self._bytes(name, write=True)

    def moved(self) -> int:
        """Return the bytes read from and written to all arguments."""
        return self.reads() + self.writes()

    def shared(self) -> int:
        """Return how many times shared memory was accessed."""
        return sum(int((one.records["argument"] == SHARED).sum()) for one in self.launches)

    def barriers(self) -> int:
        """Return how many barriers were passed, summed over blocks."""
        return sum(one.barriers for one in self.launches)

    def writer(self, argument: int, element: int) -> tuple[int, int] | None:
        """Return block and thread that last wrote an element in the last launch; None: nobody."""
        one = self.launches[-1]
        value = one.values[argument]
        assert isinstance(value, Memory)
        at = value.address + element * value.itemsize
        records = one.records
        hit = (records["how"] & WRITE > 0) & (records["address"] <= at)
        hit &= (records["argument"] == argument) & (at < records["address"] + records["size"])
        found = records[hit][-1:]
        return (int(found["block"][0]), int(found["thread"][0])) if found.size else None

    def races(self, most: int = 1) -> list[Race]:
        """Return the first races, of all launches at most so many."""
        found: list[Race] = []
        for one in self.launches:
            found += find_races(_accesses(one), most - len(found))
        return found

    def _bytes(self, name: str | None, write: bool) -> int:
        total = 0
        for one in self.launches:
            records, which = one.records, [p.name for p in one.kernel.parameters]
            hit = (records["how"] & WRITE > 0) == write
            if name is not None:
                argument = which.index(name) if name in which else len(which)
                hit &= records["argument"] == argument
            total += int(records["size"][hit & (records["argument"] >= 0)].sum())
        return total


def _accesses(one: Launch) -> Iterator[Access]:
    """The accesses of a launch, one by one."""
    for (
        pc,
        address,
        block,
        thread,
        size,
        argument,
        how,
        barriers,
        exchanges,
    ) in one.records.tolist():
        yield Access(
            block,
            thread,
            address,
            size,
            bool(how & WRITE),
            bool(how & AS_ONE),
            argument == SHARED,
            barriers,
            exchanges,
            partial(one.place, argument, address),
            partial(faults.line_at, one.library, pc),
        )


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


def current() -> Watch | None:
    """Return who watches here, if anybody does."""
    return _current.get()


@contextmanager
def watch() -> Iterator[Watch]:
    """Watch the launches on NumPy arrays in a `with` block; see `Watch` for what can be asked."""
    token = _current.set(Watch())
    try:
        seen = _current.get()
        assert seen is not None
        yield seen
    finally:
        _current.reset(token)
