"""What communication costs beside computation, on the virtual clock: the same numbers every time.

    python benchmarks/overlap.py              both tables
    python benchmarks/overlap.py --ranks 8

Ranks of this process take a training step of stub units, which hold parameters and stand for a
time. Gradients and parameters really travel, by the code that trains, over links with a latency and
a bandwidth; nothing is measured by a clock of this machine.

    step      the whole step, computation alone = 1
    hidden    the share of the communication that costs nothing, against all of it alone
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from minidist.comm import Comm, Link, run
from minidist.nn import At, Parameter
from minidist.parallel.data import ParameterByParameter
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.optimizer import SGD

FORWARD, BACKWARD = 1e-3, 2e-3
"""Seconds of a unit."""
LAYERS = 8
"""Layers of a unit: so many times it lets messages advance."""


class Stub:
    """A unit with four parameters that computes for a while, layer by layer."""

    def __init__(self, comm: Comm, number: int, elements: int) -> None:
        self.comm, quarter = comm, elements // 4
        self.own = [Parameter(f"unit {number}.{i}", (quarter,), init=1.0) for i in range(4)]

    def parameters(self) -> list[Parameter]:
        return self.own

    def work(self, seconds: float, at: At) -> None:
        for _ in range(LAYERS):
            self.comm.compute(seconds / LAYERS)
            at.progress()

    def forward(self, x: float, at: At) -> tuple[float, At]:
        self.work(FORWARD * x, at)
        return x, at

    def backward(self, ctx: At, dy: float, later: object = None) -> float:
        for p in self.own:
            p.accumulate(np.full(p.local, 1.0 + self.comm.rank, np.float32))
        self.work(BACKWARD * dy, ctx)
        return dy


@dataclass
class Row:
    """One way to take a step."""

    variant: str
    link: str
    step: float
    hidden: float
    messages: int


def seconds(comm: Comm, make: Callable[..., Zero], busy: float, micro_batches: int) -> float:
    """Return the seconds of the second step; `busy` 0 leaves the computation out.

    Two steps, since stages 1 and 2 gather in the second what the first has updated.
    """
    sync = make(comm)
    units = getattr(sync, "units", None) or sync.stubs  # type: ignore[attr-defined]
    start = 0.0
    for _ in range(2):
        comm.barrier()
        start = comm.time
        step(comm, sync, units, busy, micro_batches)
    return max(comm.gather_objects(comm.time)) - start


def step(comm: Comm, sync: Zero, units: list[Stub], busy: float, micro_batches: int) -> None:
    """Do one training step as `minidist.train.step` does."""
    at = At(0, True, np.arange(1), np.arange(1), sync.poll)
    sync.begin()
    if isinstance(sync, Zero):
        sync.fetch(0)
    for left in reversed(range(micro_batches)):
        contexts = [unit.forward(busy / micro_batches, at)[1] for unit in units]
        for index in reversed(range(len(units))):
            units[index].backward(contexts.pop(), busy / micro_batches)
            sync.ready(index, left == 0)
    sync.finish()
    if isinstance(sync, Zero):
        sync.update(0.01, 1)


def zero(stage: int, units: int, elements: int, bucket_bytes: float = 0) -> Callable[[Comm], Zero]:
    """Return what builds stub units under a stage of ZeRO."""

    def make(comm: Comm) -> Zero:
        stubs = [Stub(comm, n, elements) for n in range(units)]
        how = {"dtype": np.float32, "bucket_bytes": bucket_bytes}
        return Zero(stubs, SGD(), Mesh(comm), stage, **how)

    return make


def naive(units: int, elements: int) -> Callable[[Comm], ParameterByParameter]:
    """Return what builds stub units whose gradients are summed after backward."""

    def make(comm: Comm) -> ParameterByParameter:
        stubs = [Stub(comm, n, elements) for n in range(units)]
        sync = ParameterByParameter(stubs, Mesh(comm), np.float32)
        sync.stubs = stubs  # type: ignore[attr-defined]
        return sync

    return make


def measure(
    name: str,
    make: Callable[..., object],
    link: tuple[float, float],
    units: int,
    ranks: int,
    micro_batches: int = 1,
) -> Row:
    """Return the row of one way and one link, (latency in s, bytes per s)."""

    def links(a: int, b: int) -> Link:
        return Link(*link)

    def program(comm: Comm) -> tuple[float, float, int]:
        whole = seconds(comm, make, 1.0, micro_batches)
        messages = comm.traffic.messages // 2
        return whole, seconds(comm, make, 0.0, micro_batches), messages

    whole, alone, messages = run(program, ranks=ranks, links=links)[0]
    compute = units * (FORWARD + BACKWARD)
    hidden = 1 - (whole - compute) / alone if alone else 0.0
    text = f"{link[0] * 1e6:g} us, {link[1] / 1e9:g} GB/s"
    return Row(name, text, whole / compute, hidden, messages)


def stages(ranks: int, micro_batches: int) -> Iterator[Row]:
    """Yield each stage under three links, with gradients summed naively before them."""
    units, elements = 8, 1 << 16
    for link in ((5e-6, 2e9), (5e-6, 5e8), (5e-6, 1.25e8)):
        yield measure("after backward", naive(units, elements), link, units, ranks)
        for stage in range(4):
            make = zero(stage, units, elements)
            yield measure(f"stage {stage}", make, link, units, ranks, micro_batches)


def buckets(ranks: int) -> Iterator[Row]:
    """Yield sizes of buckets, from a unit to the whole model, with and without latency."""
    units, elements = 16, 1 << 14
    for link in ((0.0, 5e8), (2e-4, 5e8)):
        for size in (1, 2, 4, 8, 16):
            make = zero(0, units, elements, bucket_bytes=size * elements * 4 - 1)
            name = f"{size * elements * 4 // 1024} KiB, {units // size} buckets"
            yield measure(name, make, link, units, ranks)


def lines(rows: list[Row]) -> Iterator[str]:
    """Yield the rows as a table."""
    yield f"# {'variant':<22}{'link':<20}{'step':>8}{'hidden':>9}{'messages':>10}"
    last = rows[0].link
    for r in rows:
        if r.link != last:
            yield "#"
        last = r.link
        yield f"  {r.variant:<22}{r.link:<20}{r.step:8.3f}{r.hidden:9.2f}{r.messages:10}"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="ranks of this process (4)")
    parser.add_argument("--micro-batches", type=int, default=1, help="of a step (1)")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(words)
    by_stage = list(stages(args.ranks, args.micro_batches))
    by_bucket = list(buckets(args.ranks))
    print(f"# stages under three links: {args.ranks} ranks, 8 units of 256 KiB, 3 ms each")
    print("\n".join(lines(by_stage)))
    print(f"# size of buckets, stage 0: {args.ranks} ranks, 16 units of 64 KiB, 3 ms each")
    print("\n".join(lines(by_bucket)))
    if args.json:
        rows = {"stages": by_stage, "buckets": by_bucket}
        text = {name: [asdict(row) for row in part] for name, part in rows.items()}
        Path(args.json).write_text(json.dumps(text, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
