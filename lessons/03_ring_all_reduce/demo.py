"""Lesson 03: what the busiest rank sends in an all-reduce, and how long its wire is busy.

    python lessons/03_ring_all_reduce/demo.py                           ranks 1 to 8, in-process
    minidist launch -n 4 -- python lessons/03_ring_all_reduce/demo.py   4 MPI ranks, counted

Counts and a virtual clock, no stopwatch: the numbers are the same on every machine. M is the size
of the array. `--figure FILE` draws the second table, `--steps FILE` who has summed what in a ring.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minidist.collectives import Collective, costs, halving, ring, server, tree
from minidist.collectives.history import history, states
from minidist.comm import Link, run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.view import charts
from minidist.view.blocks import Cell, Table, blocks

BYTES = 840  # M: a multiple of 1, 2, ... 8, so that the pieces of all rings are equal
RANKS = range(1, 9)
LINK = Link(latency=1e-5, bandwidth=1e9)


class Way(NamedTuple):
    """One way to all-reduce, and its formulas."""

    name: str
    collective: Collective
    cost: Callable[[int, float], costs.Cost]
    sends: Callable[[int], float]  # arrays that the busiest of so many ranks sends


def log2_up(ranks):
    return (ranks - 1).bit_length()


def halving_sends(ranks):
    power, extra = costs.split_ranks(ranks)
    return 2 * (power - 1) / power + (1 if extra else 0)


WAYS = [
    Way("server", server.all_reduce, costs.server_all_reduce, lambda n: n - 1),
    Way("tree", tree.all_reduce, costs.tree_all_reduce, log2_up),
    Way("halving", halving.all_reduce, costs.halving_all_reduce, halving_sends),
    Way("ring", ring.all_reduce, costs.ring_all_reduce, lambda n: 2 * (n - 1) / n),
]


def wires(link):
    """Each rank has one wire out; into rank 0, which is server and root, there is one too."""
    return lambda a, b: link._replace(name=f"into {b}" if b == 0 else f"out of {a}")


def counted(comm, way, nbytes):
    """The bytes that this rank sends in one all-reduce; `nbytes` is the size of the array."""
    before = comm.traffic.bytes
    way.collective(comm, np.zeros(nbytes, np.uint8))
    return comm.traffic.bytes - before


def seconds(way, ranks, nbytes, link):
    """The virtual time of one all-reduce: when the last rank has its result."""

    def program(comm):
        way.collective(comm, np.zeros(nbytes, np.uint8))
        return comm.time

    return max(run(program, ranks=ranks, links=wires(link)))


def sent_by_busiest(way, ranks):
    """In units of M."""
    return max(run(counted, way, BYTES, ranks=ranks)) / BYTES


def wire_busy(way, ranks):
    """Arrays one after the other: the time on wires that carry one M a second without latency."""
    return seconds(way, ranks, BYTES, Link(0.0, BYTES))


def table(title, value, digits=2):
    """Print a value for each way and number of ranks."""
    print(f"\n{title}\n")
    print(f"{'ranks':>8}" + "".join(f"{way.name:>12}" for way in WAYS))
    for ranks in RANKS:
        cells = (f"{value(way, ranks):12.{digits}f}" for way in WAYS)
        print(f"{ranks:8}" + "".join(cells))


def messages_in_a_row(way, ranks):
    """The time on wires that take a second for each message, however long it is."""
    return seconds(way, ranks, BYTES, Link(1.0))


def many_ranks(ranks=1000):
    """The second table for more ranks, by the formulas of minidist/collectives/costs.py alone."""
    cells = (f"{way.cost(ranks, 1).nbytes:12.3f}" for way in WAYS)
    print(f"{ranks:8}{''.join(cells)}    by formula")


def small_and_large(ranks=8):
    """Virtual microseconds of a small and of a large array."""
    print(f"\nvirtual time on {ranks} ranks; a message takes 10 us and 1 us for each 1000 bytes\n")
    print(f"{'bytes':>9}" + "".join(f"{way.name:>12}" for way in WAYS))
    for nbytes in (8, 8_000, 8_000_000):
        cells = (f"{1e6 * seconds(way, ranks, nbytes, LINK):9.0f} us" for way in WAYS)
        print(f"{nbytes:9}" + "".join(cells))


def figure():
    """The second table as a picture."""
    series = [charts.Series(w.name, RANKS, [wire_busy(w, n) for n in RANKS]) for w in WAYS]
    series.append(charts.Series("2 M", RANKS, [2] * len(RANKS), style="line"))
    return charts.lines(
        series,
        x=charts.Axis("ranks N", log=False),
        y=charts.Axis("M through the busiest wire", log=False),
        title="An all-reduce of M bytes: the ring stays under 2 M",
        words="The server's wire carries 2 (N - 1) arrays, 14 with 8 ranks; the ring's wires stay "
        "under 2, however many ranks there are. Halving is as good for 2, 4 and 8 ranks.",
    )


def steps(ranks=4):
    """Who has summed what, after each exchange of the ring."""
    sent = history(ring.all_reduce, ranks)
    tables, before = [], None
    for number, state in enumerate(states(sent, ranks)):
        half = "start" if not number else "reduce-scatter" if number < ranks else "all-gather"
        rows = [
            [
                Cell("".join(map(str, sorted(who))), len(who) / ranks, new=was not in (None, who))
                for who, was in zip(row, old, strict=True)
            ]
            for row, old in zip(state, before or [[None] * ranks] * ranks, strict=True)
        ]
        tables.append(Table(f"{number}  {half}" if number else half, rows))
        before = state
    return blocks(
        tables,
        [f"rank {n}" for n in range(ranks)],
        "ABCDEFG"[:ranks],
        title=f"Whose values each rank has summed, after each of {len(sent)} exchanges",
        words=f"After {ranks - 1} exchanges each rank has one piece with the values of all "
        f"{ranks} ranks; after {ranks - 1} more it has all pieces. An edge marks what has just "
        "come.",
        width=860,
    )


def on_real_ranks(comm):
    """Counted bytes beside the formula, on the ranks that there are."""
    rows = [(w, max(comm.gather_objects(counted(comm, w, BYTES)))) for w in WAYS]
    if comm.rank == 0:
        print(
            f"{demos.counted(comm.size, 'MPI rank')}, M = {BYTES} bytes, divided by {comm.size}: "
            f"{'evenly' if BYTES % comm.size == 0 else 'not evenly'}"
        )
        print(f"{'':10}{'busiest rank sent':>20}{'formula':>12}")
        for way, sent in rows:
            print(f"{way.name:10}{sent:14} bytes{way.sends(comm.size) * BYTES:12g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw the second table as SVG")
    parser.add_argument("--steps", metavar="FILE", type=Path, help="draw a ring, step by step")
    args = parser.parse_args()
    if launched():
        on_real_ranks(world())
        return
    table("bytes sent by the busiest rank, in M", sent_by_busiest)
    table("through the busiest wire, one after the other, in M", wire_busy)
    many_ranks()
    table("messages one after the other", messages_in_a_row, digits=0)
    small_and_large()
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")
    if args.steps:
        charts.write(args.steps, steps())
        print(f"\nsteps: {args.steps}")


if __name__ == "__main__":
    demos.play(main)
