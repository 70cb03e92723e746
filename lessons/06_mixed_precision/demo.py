"""Lesson 06: what half types lose, what a master keeps, and how all ranks skip a step together.

    python lessons/06_mixed_precision/demo.py                           4 ranks in this process
    minidist launch -n 4 -- python lessons/06_mixed_precision/demo.py   4 MPI ranks

A real training step runs with a gradient that is known beforehand, so the numbers are the same on
every machine. `--figure FILE` draws a weight that does not move.
"""

import argparse
from pathlib import Path

import numpy as np

from minidist.comm import run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.ops.half import down, named, up
from minidist.testing.scaled import kept, training
from minidist.train.precision import LossScale, stalled
from minidist.view import charts

TIMES, STEP = 1000, 0.001
SLOPES = [2.0**-26, 2.0**-24, 2.0**-10, 1.0, 2.0, 16.0, 0.5, 2.0**-20]
STEPS, EVERY = 9, 4
SHOWN = 64  # additions in the figure


def show_stalled():
    print(f"\n1 + {TIMES} x {STEP}   stored in the type   with a float32 master")
    for name in ("bfloat16", "float16", "float32"):
        alone, master = stalled(named(name), TIMES, STEP)
        print(f"{name:16} {alone:18.4f} {master:23.4f}")


def scaled(comm):
    """What each step of a float16 training tells this rank; see `show_scaled`."""
    scale = LossScale(every=EVERY)
    step = training(comm, SLOPES, scale, stage=2, rate=0.01)
    (bucket,) = step.sync.buckets
    found, before = [], kept(step)
    for number in range(STEPS):
        used = scale.scale
        outcome = step(number)
        own = np.isfinite(bucket.sum).all()
        zeros = int((bucket.sum == 0).sum())
        after = kept(step)
        found.append((used, bool(own), zeros, outcome.skipped, after != before, outcome.norm))
        before = after
    return found


def without(comm):
    """How many elements of this rank's chunk of the gradient are 0 without a loss scale."""
    step = training(comm, SLOPES, LossScale.constant(), stage=2)
    step(0)
    (bucket,) = step.sync.buckets
    return int((bucket.sum == 0).sum())


def show_scaled(by_rank, lost):
    ranks = len(by_rank)
    print(
        f"\nfloat16, {len(SLOPES)} gradients from 2**-26 to 16; scale doubled after {EVERY} steps"
    )
    print("step   scale  infinity is seen by  verdict of all  weights and moments   norm")
    for number, rows in enumerate(zip(*by_rank, strict=True)):
        sees = [f"{rank}" for rank, row in enumerate(rows) if not row[1]]
        seen = f"rank {' '.join(sees)} of {ranks}" if sees else "nobody"
        verdicts = {"skip" if row[3] else "update" for row in rows}
        moved = {"moved" if row[4] else "the same bits" for row in rows}
        print(
            f"{number:4}{rows[0][0]:8.0f}  {seen:19}  {' or '.join(sorted(verdicts)):14}  "
            f"{' or '.join(sorted(moved)):20}{rows[0][5]:6.2f}"
        )
    last = sum(row[-1][2] for row in by_rank)
    print(f"gradients that are 0: {last} with the scale, {sum(lost)} without it")


def show_sums():
    """A mean over 8 ranks in float16, in three ways."""
    half = named("float16")
    print("\nmean over 8 ranks in float16   all 10000      all 6e-08")
    for name, way in WAYS.items():
        cells = [f"{way(np.full(8, value, np.float32).astype(half)):15.5g}"
                 for value in (1e4, 6e-8)]  # fmt: skip
        print(f"{name:26}{''.join(cells)}")


def rounded_sum(x):
    """The sum, rounded to the type of x after each addition."""
    total = x[:1]
    for i in range(1, len(x)):
        total = down(up(total) + up(x[i : i + 1]), x.dtype)
    return total


def divided(x, by):
    return down(up(x) / np.float32(by), x.dtype)


WAYS = {
    "sum, then divide": lambda x: float(divided(rounded_sum(x), 8)[0]),
    "divide, then sum": lambda x: float(rounded_sum(divided(x, 8))[0]),
    "sum in float32": lambda x: float(down(up(x).sum(keepdims=True) / np.float32(8), x.dtype)[0]),
}


# --- the figure -----------------------------------------------------------------------------------


def figure():
    """The first additions: the master climbs, its copy takes a stair now and then, alone stays."""
    half, wide = named("bfloat16"), named("float32")
    times = range(SHOWN + 1)
    alone, copy = zip(*(stalled(half, n, STEP) for n in times), strict=True)
    master = [stalled(wide, n, STEP)[0] for n in times]
    words = (
        "The float32 master rises in a straight line. Its bfloat16 copy follows in stairs of "
        "2**-7, about one in eight additions. A bfloat16 number without a master stays at 1."
    )

    def steps(weights):
        return [(w - 1) * 2**7 for w in weights]

    return charts.lines(
        [
            charts.Series("float32 master", times, steps(master), style="line"),
            charts.Series("its bfloat16 copy", times, steps(copy), style="points"),
            charts.Series("bfloat16 alone", times, steps(alone), style="line"),
        ],
        x=charts.Axis("additions", log=False),
        y=charts.Axis("steps of bfloat16 above 1", log=False),
        title=f"1 + {STEP} + {STEP} + ...: the first {SHOWN} of {TIMES} additions",
        words=words,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw the first table as SVG")
    args = parser.parse_args()
    if launched():
        comm = world()
        found, lost = comm.gather_objects(scaled(comm)), comm.gather_objects(without(comm))
        if comm.rank == 0:
            print(demos.counted(comm.size, "MPI rank"))
            show_scaled(found, lost)
        return
    print("4 ranks in this process")
    show_stalled()
    show_scaled(run(scaled, ranks=4), run(without, ranks=4))
    show_sums()
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
