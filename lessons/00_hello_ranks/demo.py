"""Lesson 00: one program on several ranks. Who is where, who owns what, and does it add up?

    python lessons/00_hello_ranks/demo.py                            4 ranks in one process
    ./run launch -n 4 -- python lessons/00_hello_ranks/demo.py       4 ranks, each a process

The function `hello` is the program; every rank runs it. `--figure FILE` draws who owns what.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from minidist.bounds import bounds, share
from minidist.comm import run, world
from minidist.comm.detect import launched
from minidist.device import choose_device
from minidist.learn.demos import counted, play
from minidist.roster import roster, table
from minidist.view import charts

RANKS, N = 4, 10


def hello(comm, n):
    """What every rank does; rank 0 also prints."""
    rows = roster(comm, str(choose_device("auto", comm, share=True)))
    start, stop = share(comm, n)
    part = sum(range(start, stop))  # this rank adds up the numbers that it owns, and no others
    parts = comm.gather_objects((start, stop, part))
    if comm.rank == 0:
        print(
            f"{counted(comm.size, 'rank')} in {counted(len({r.process for r in rows}), 'process')}"
        )
        print(table(rows))
        numbers = {0: "no numbers", 1: "the number 0"}.get(n, f"the numbers 0 to {n - 1}")
        print(f"\n{numbers}, and who adds up which of them")
        for rank, (start, stop, part) in enumerate(parts):
            owned = "+".join(map(str, range(start, stop))) or "nothing"
            print(f"   rank {rank}  [{start}:{stop}]  {owned} = {part}")
        print(f"   all parts  {sum(part for _, _, part in parts)}")
        print(f"   the whole  {sum(range(n))}")


def lengths(offsets):
    return [stop - start for start, stop in pairwise(offsets)]


def figure(n=N, ranks=RANKS):
    """Two ways to cut, one of them wrong: the bars of a right one add up to n."""
    cuts = {"bounds": bounds(n, ranks), "n // ranks": [i * (n // ranks) for i in range(ranks + 1)]}
    return charts.bars(
        [str(rank) for rank in range(ranks)],
        {f"{name}, {sum(lengths(cut))} in all": lengths(cut) for name, cut in cuts.items()},
        x="rank",
        y=charts.Axis("elements that a rank owns", log=False),
        title=f"Who owns what: {n} elements on {ranks} ranks",
        words="bounds cuts 10 elements into 3, 3, 2 and 2. With n // ranks every rank has 2, which "
        "makes 8: two elements belong to nobody.",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=RANKS, help="ranks inside this process")
    parser.add_argument("--n", type=int, default=N, help="how many numbers there are to add")
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw who owns what as SVG")
    args = parser.parse_args()
    if launched():
        hello(world(), args.n)
        return
    run(hello, args.n, ranks=args.ranks)
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    play(main)
