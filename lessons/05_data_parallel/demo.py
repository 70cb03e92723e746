"""Lesson 05: many ranks take the step of one, and what the size of buckets does to its time.

    python lessons/05_data_parallel/demo.py                            4 ranks in this process
    minidist launch -n 4 -- python lessons/05_data_parallel/demo.py    4 MPI ranks

Gradients are compared with those of one process; times are those of a virtual clock, so the numbers
are the same on every machine. `--figure FILE` draws the last table as a timeline.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minidist.comm import Link, run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.nn import Parameter
from minidist.parallel.data import DataParallel, ParameterByParameter, mean
from minidist.parallel.mesh import Mesh
from minidist.testing.microsteps import BATCH, differences, on_ranks, one_process
from minidist.train.trace import COMPUTE, Trace
from minidist.view import charts
from minidist.view.lanes import Block, Lane, Mark, lanes
from minidist.view.svg import COLOURS, QUIET

RANKS, PARTS = (1, 2, 3, 4), (1, 2, 3)
UNITS, SECONDS, POLLS = 16, 1e-3, 8  # units of a model, backward of one, polls meanwhile
ELEMENTS, EACH = 1 << 14, 4  # of a unit, in so many parameters: 64 KiB in float32
LINK = Link(latency=5e-5, bandwidth=2.5e8)
OWN = 5e-5  # seconds that a rank itself is busy with a message that it sends
SIZES = (1, 2, 4, 8, 16)  # units in a bucket
BUSY = "busy with messages"


# --- the same step --------------------------------------------------------------------------------


def worst(comm, parts, right):
    """The largest difference to the step of one process, over all ranks."""
    off = max(differences(right, on_ranks(comm, parts)).values())
    return max(comm.gather_objects(off))


def in_words(off):
    return "below 1e-10" if off < 1e-10 else f"{off:.1e}: TOO LARGE"


def show_same_step():
    right = one_process()
    print(f"a batch of {BATCH}: loss and gradients off from those of one process by, at most\n")
    print(f"{'micro-batches':>16}" + "".join(f"{f'{n} ranks':>14}" for n in RANKS[1:]))
    for parts in PARTS:
        cells = (run(worst, parts, right, ranks=n)[0] for n in RANKS[1:])
        print(f"{parts:16}" + "".join(f"{in_words(off):>14}" for off in cells))


def show_means():
    """Three losses of 1 on one rank, one of 9 on the other."""
    have = [(3.0, 3), (9.0, 1)]
    right = run(lambda comm: mean(comm, *have[comm.rank]), ranks=2)[0]
    wrong = sum(total / count for total, count in have) / len(have)
    print("\nlosses 1 1 1 on rank 0, and 9 on rank 1\n")
    print(f"mean by counts         {right:.2f}")
    print(f"mean of the means      {wrong:.2f}")


# --- the size of buckets --------------------------------------------------------------------------


class Unit:
    """Parameters without a layer."""

    def __init__(self, number):
        shape = (ELEMENTS // EACH,)
        self.own = [Parameter(f"unit {number}.{i}", shape, init=1.0) for i in range(EACH)]

    def parameters(self):
        return self.own


class Backward(NamedTuple):
    """What became of one backward pass on a rank; seconds of the virtual clock."""

    total: float
    busy: float  # with messages
    waited: float
    messages: int
    events: list


def backward(comm, size):
    """Backward of 16 units, in buckets of `size` units; 0: each parameter, after backward."""
    units, mesh = [Unit(n) for n in range(UNITS)], Mesh(comm)
    if size:
        sync = DataParallel(units, mesh, np.float32, bucket_bytes=size * ELEMENTS * 4)
    else:
        sync = ParameterByParameter(units, mesh, np.float32)
    comm.barrier()
    start, sent, paid = comm.time, comm.traffic.messages, 0
    trace = Trace(lambda: comm.time, start)

    def pay():
        """A message costs its rank time: for what was sent since the last call."""
        nonlocal paid
        new = comm.traffic.messages - sent - paid
        if new:
            with trace.span(BUSY):
                comm.compute(OWN * new)
            paid += new

    sync.begin(trace)
    for index in reversed(range(UNITS)):
        with trace.span(f"unit {index}"):
            for _ in range(POLLS):
                comm.compute(SECONDS / POLLS)
                sync.poll()
                pay()
        sync.ready(index)
        pay()
    before = comm.time
    sync.finish()
    waited = comm.time - before
    pay()
    return Backward(comm.time - start, OWN * paid, waited, paid, trace.events)


def measured():
    """The slowest rank of each size of bucket."""
    sizes = (0, *SIZES)
    runs = {size: run(backward, size, ranks=4, links=LINK) for size in sizes}
    return {size: max(found, key=lambda one: one.total) for size, found in runs.items()}


def name(size):
    return f"{UNITS // size} x {size * ELEMENTS * 4 // 1024} KiB"


def show_buckets(runs):
    print(
        f"\nbackward of {UNITS} units of {1e3 * SECONDS:g} ms on 4 ranks; a message keeps its rank "
        f"busy for {1e6 * OWN:g} us, travels\n{1e6 * LINK.latency:g} us, and "
        f"{LINK.bandwidth / 1e9:g} GB pass in a second. Milliseconds:\n"
    )
    print(f"{'buckets':>30}{'messages':>10}{'compute':>9}{'busy':>7}{'waits':>8}{'together':>10}")
    for size, one in runs.items():
        title = name(size) if size else "none: 64 rings at the end"
        alone = 1e3 * UNITS * SECONDS
        print(
            f"{title:>30}{one.messages:10}{alone:9.1f}{1e3 * one.busy:7.1f}"
            f"{1e3 * one.waited:8.1f}{1e3 * one.total:10.1f}"
        )
    best = min(runs, key=lambda size: runs[size].total)
    print(f"\nbest: {name(best)}")


# --- the figure -----------------------------------------------------------------------------------

KINDS = {
    "backward of a unit": COLOURS[0],
    BUSY: "#f0b429",
    "waits": QUIET,
    "ring of a bucket": COLOURS[1],
}
WORKS, _, WAITS, TRAVELS = KINDS


def figure(runs):
    """For each size two rows of a rank: what it computes, and which rings are under way."""
    return lanes(
        [lane(size, runs[size]) for size in SIZES],
        KINDS,
        title="The messages of a backward pass, by the size of buckets",
        words=(
            "With 16 buckets the rings travel under the backward pass, but a rank is busy with "
            "their many messages: 21.4 ms. With one bucket nothing travels before the end: 22.8 "
            "ms. With 4 buckets it takes 19.0 ms. Computation alone is 16 ms."
        ),
        mark=Mark(UNITS * SECONDS, "16 ms: computation alone"),
        width=680,
    )


def lane(size, one):
    """What a rank does with buckets of one size."""
    rings = [(e.start, e.stop) for e in one.events if e.name.startswith("all-reduce")]
    begins = max(rings)[0]  # of the last ring: nothing is left to compute
    blocks = [
        *(
            Block(e.start, e.stop, WORKS)
            for e in one.events
            if e.track == COMPUTE and e.name != BUSY
        ),
        Block(begins, begins + one.waited, WAITS),
        *(Block(e.start, e.stop, BUSY) for e in one.events if e.name == BUSY),
    ]
    rows = [blocks, [Block(*times, TRAVELS) for times in rings]]
    return Lane(name(size), rows, end=f"{1e3 * one.total:.1f} ms")


# --- on real ranks --------------------------------------------------------------------------------


def on_real_ranks(comm):
    """The same step by real ranks, and the messages that they count."""
    right = one_process()
    off = [worst(comm, parts, right) for parts in PARTS]
    rows = [(size, *sums_and_messages(comm, size)) for size in (0, *SIZES)]
    if comm.rank == 0:
        print(f"{demos.counted(comm.size, 'MPI rank')}: a batch of {BATCH}, beside one process\n")
        for parts, by in zip(PARTS, off, strict=True):
            print(f"micro-batches {parts}: loss and gradients off by, at most: {in_words(by)}")
        print(f"\n{'buckets':>30}{'messages':>10}{'formula':>9}   sums")
        for size, messages, right_sums in rows:
            title = name(size) if size else "none: 64 rings at the end"
            rings = UNITS // size if size else UNITS * EACH
            formula = 2 * (comm.size - 1) * rings
            print(f"{title:>30}{messages:10}{formula:9}   {'right' if right_sums else 'WRONG'}")


def sums_and_messages(comm, size):
    """Messages of the busiest rank, and whether every rank has the sum."""
    units, mesh = [Unit(n) for n in range(UNITS)], Mesh(comm)
    if size:
        sync = DataParallel(units, mesh, np.float32, bucket_bytes=size * ELEMENTS * 4)
    else:
        sync = ParameterByParameter(units, mesh, np.float32)
    before = comm.traffic.messages
    sync.begin()
    for index in reversed(range(UNITS)):
        for p in units[index].own:
            p.accumulate(np.full(p.local, 1.0 + comm.rank, np.float32))
        sync.ready(index)
        sync.poll()
    sync.finish()
    sent = comm.traffic.messages - before
    want = comm.size * (comm.size + 1) / 2
    good = all(bool((p.grad == want).all()) for p in sync.parameters())
    return max(comm.gather_objects(sent)), all(comm.gather_objects(good))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw the timeline as SVG")
    args = parser.parse_args()
    if launched():
        on_real_ranks(world())
        return
    show_same_step()
    show_means()
    runs = measured()
    show_buckets(runs)
    if args.figure:
        charts.write(args.figure, figure(runs))
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
