"""Bytes and seconds of the memory wall: ZeRO stages, recomputation, half types, side by side.

    python benchmarks/memory_wall.py --ranks 4                 ranks of this process, one at a time
    minidist launch -n 4 -- benchmarks/memory_wall.py          MPI ranks

All variants take the same training step, in turn, in one run; `step` is the median of the quotients
with the first variant of the table, and low-high their middle eight tenths. `peak` is the most
bytes that a rank held at once, as the ledger has booked them: state, activations and buffers.
`copied` are bytes that a step moves from one array to another of this rank besides what layers,
messages and sums do: a chunk put into a gathered buffer, a gradient or a master converted.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from table import circumstances, json_file, write_json
from timing import ALLOCATOR, Times, Variant, restart_with, rounds, speed, summary

from minidist.comm import Comm, run, world
from minidist.comm.detect import launched
from minidist.launch import THREADS
from minidist.nn import build_decoder
from minidist.options import add_flags, resolve
from minidist.parallel.bucket import Bucket
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.config import Layout, TrainConfig
from minidist.train.corpus import Corpus, Text, read_text
from minidist.train.precision import Precision
from minidist.train.step import Step

TABLES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "ZeRO stages, float32": [(f"stage {n}", {"zero": n}) for n in range(4)],
    "ZeRO stages, bfloat16": [
        (f"stage {n}", {"zero": n, "dtype": "bfloat16", "grad_dtype": "bfloat16"}) for n in range(4)
    ],
    "recomputation, stage 0": [
        (name, {"recompute": name}) for name in ("none", "attention", "unit")
    ],
    "micro-batches, stage 2": [
        (f"{m} micro-batches", {"zero": 2, "micro_batches": m}) for m in (1, 2, 4)
    ],
    "types, stage 0": [(name, {"dtype": name}) for name in ("float32", "bfloat16", "float16")],
}


@dataclass
class Row:
    """One variant."""

    table: str
    variant: str
    times: Times
    beside_first: Times
    peak: int
    state: int
    copied: int


class Counting(Bucket):
    """Counts what buckets copy within a rank."""

    copied = 0

    def _room(self) -> Any:
        flat = super()._room()
        if flat is not self.stored:
            self.copied += self.stored.nbytes
        return flat

    def refresh(self) -> None:
        super().refresh()
        if self.weights.dtype != self.stored.dtype:
            self.copied += self.weights.nbytes


def converted(sync: Zero) -> int:
    """Return the bytes of gradient that an update converts to the type of the masters."""
    if sync.how.grad_dtype == sync.how.master:
        return 0
    return sum(b.gradient.nbytes for b in sync.buckets if b.trainable)


def build(mesh: Mesh, config: TrainConfig, text: Text, changes: dict[str, Any]) -> Step:
    """Return the step that `minidist train` would take."""
    layout = Layout(**{k: v for k, v in changes.items() if k not in ("dtype", "grad_dtype")})
    precision = Precision(changes.get("dtype", config.dtype), changes.get("grad_dtype"))
    corpus = Corpus(text, config.context, config.seed)
    sync = Zero(
        build_decoder(config.decoder(), corpus.labels, layout.recompute),
        config.make_optimizer(),
        mesh,
        layout.zero,
        dtype=precision.dtype,
        grad_dtype=precision.grad_dtype,
    )
    return Step(
        sync,
        corpus,
        batch=config.batch,
        learning_rate=config.learning_rate,
        micro_batches=layout.micro_batches,
        loss_scale=precision.loss_scale(),
    )


def numbered(step: Step) -> Callable[[], None]:
    """Return the step as a call, each with the next number."""
    numbers = iter(range(1 << 30))

    def call() -> None:
        step(next(numbers))

    return call


def measure(comm: Comm, args: argparse.Namespace) -> int:
    """One rank's part. All ranks call it; rank 0 prints and writes."""
    config = resolve(TrainConfig, args)
    text, mesh, rows = read_text(config.data), Mesh(comm), []
    for name, variants in TABLES.items():
        if args.only and not name.startswith(args.only):
            continue
        found = table(comm, mesh, config, text, name, variants, args)
        rows += found
        if comm.rank == 0:
            print("\n".join(lines(name, found)), flush=True)
    if args.json and comm.rank == 0:
        write_json(args.json, circumstances(ranks=comm.size, config=vars(config)), rows)
    return 0


def table(
    comm: Comm,
    mesh: Mesh,
    config: TrainConfig,
    text: Text,
    name: str,
    variants: list[tuple[str, dict[str, Any]]],
    args: argparse.Namespace,
) -> list[Row]:
    """Return the rows of one table. All ranks call it."""
    steps = {label: build(mesh, config, text, changes) for label, changes in variants}
    copied = {label: copies(step) for label, step in steps.items()}

    def slowest(seconds: list[float]) -> list[float]:
        return np.max(comm.gather_objects(seconds), axis=0).tolist()

    calls = {label: Variant(lambda: None, numbered(step)) for label, step in steps.items()}
    taken = rounds(calls, args.n, args.w, comm.barrier, slowest)
    first = taken[variants[0][0]]
    rows = []
    for label, step in steps.items():
        ledger = step.sync.ledger
        relative = speed(first, taken[label])  # seconds of this one, with the first as 1
        state = sum(ledger.held.values())
        rows.append(
            Row(
                name,
                label,
                summary(taken[label]),
                relative,
                ledger.peak_total,
                state,
                copied[label],
            )
        )
    return rows


def copies(step: Step) -> int:
    """Return the bytes that the second step copies; the first has nothing to gather yet."""
    step(0)
    for b in step.sync.buckets:
        b.__class__, b.copied = Counting, 0
    step(1)
    total = converted(step.sync)
    for b in step.sync.buckets:
        total += b.copied
        b.__class__ = Bucket
    return total


def lines(name: str, rows: list[Row]) -> list[str]:
    """Return the rows as a table."""
    head = f"# {name:<24}{'ms':>9}{'step':>8}{'low-high':>12}{'peak MB':>10}{'state MB':>10}"
    text = [head + f"{'copied MB':>11}"]
    for r in rows:
        beside = r.beside_first
        text.append(
            f"  {r.variant:<24}{r.times.median * 1e3:9.1f}{beside.median:8.3f}"
            f"{f'{beside.low:.2f}-{beside.high:.2f}':>12}{r.peak / 1e6:10.3f}{r.state / 1e6:10.3f}"
            f"{r.copied / 1e6:11.3f}"
        )
    return text


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="ranks of this process (2)")
    parser.add_argument("-n", type=int, default=15, help="samples (15)")
    parser.add_argument("-w", type=int, default=2, help="samples before, not counted (2)")
    parser.add_argument("--only", default="", help="tables whose name begins so")
    parser.add_argument("--json", metavar="FILE", type=json_file)
    add_flags(parser, TrainConfig)
    args = parser.parse_args(words)
    restart_with({**THREADS, **ALLOCATOR})
    if launched():
        return measure(world(), args)
    return run(measure, args, ranks=args.ranks, stuck_after=600.0)[0]


if __name__ == "__main__":
    sys.exit(main())
