"""Lesson 07: what each rank keeps and sends at each ZeRO stage, counted and by formula.

    python lessons/07_zero12/demo.py                           4 ranks in this process
    minidist launch -n 4 -- python lessons/07_zero12/demo.py   4 MPI ranks

A small decoder is trained for three steps at each stage; then the same formulas are used for a
model of 7.5 billion parameters on 64 ranks. Counts and no stopwatch: the numbers are the same on
every machine. `--figure FILE` draws the second table.
"""

import argparse
from pathlib import Path

from minidist.comm import run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.nn import DecoderConfig, build_decoder
from minidist.ops.half import named
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan.memory import CUT_FROM, State, sent
from minidist.train.corpus import Corpus, Text
from minidist.train.optimizer import AdamW
from minidist.train.step import Step
from minidist.view import charts
from minidist.view.svg import COLOURS, PAPER, Picture

STATE = State("bfloat16", "bfloat16")
STAGES = {0: "data parallel", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3"}
MODEL, RANKS = 7.5e9, 64
CORPUS = Corpus(Text("numbers", bytes(i * i % 251 for i in range(900))), 8, 1)
STEPS = 3


def trained(comm, stage):
    """Train three steps. Return (parameters, bytes of state, elements sent in a step, weights)."""
    units = build_decoder(DecoderConfig(layers=2, width=48, heads=4, groups=2), CORPUS.labels)
    dtype = named(STATE.dtype)
    zero = Zero(units, AdamW(), Mesh(comm), stage, dtype=dtype, grad_dtype=dtype)
    step = Step(zero, CORPUS, batch=4, learning_rate=lambda step: 0.01, clip=1.0)
    for number in range(STEPS):
        before = counted(comm)
        step(number)
    moved = counted(comm) - before
    state = sum(zero.ledger.held[kind] for kind in CUT_FROM)
    weights = b"".join(b.flat.tobytes() for b in zero.gathered())
    return sum(b.layout.size for b in zero.buckets), state, moved / dtype.itemsize, weights


def counted(comm):
    """The bytes of gradients and parameters that this rank has sent so far."""
    return sum(comm.traffic.by[kind].bytes for kind in (GRADIENTS, PARAMETERS))


def table(ranks, runs):
    """Print what was counted beside the formulas; `runs` are the results of all ranks by stage."""
    size, _, _, right = runs[0][0]
    print(
        f"{size:,} parameters in {STATE.dtype}, AdamW; a step of one micro-batch, per parameter\n"
    )
    print(f"{'':16}{'bytes kept':>12}{'formula':>9}{'sent':>8}{'formula':>9}  weights in the end")
    for stage, name in STAGES.items():
        kept = max(state for _, state, _, _ in runs[stage]) / size
        moved = max(elements for _, _, elements, _ in runs[stage]) / size
        same = all(weights == right for *_, weights in runs[stage])
        print(
            f"{name:16}{kept:12.2f}{float(STATE.ideal(stage, ranks)):9.2f}{moved:8.2f}"
            f"{float(sum(sent(stage, ranks))):9.2f}  {'the same bits' if same else 'OTHERS'}"
        )


def large():
    """The four stages of the large model: GB by kind, and together."""
    for stage, name in STAGES.items():
        parts = {
            kind: MODEL * n / (RANKS if stage >= CUT_FROM[kind] else 1) / 1e9
            for kind, n in STATE.bytes().items()
        }
        yield stage, name, parts, float(STATE.ideal(stage, RANKS)) * MODEL / 1e9


def show_large():
    print(f"\n{MODEL / 1e9:g}e9 parameters on {RANKS} ranks, by formula: GB on each rank\n")
    kinds = list(STATE.bytes())
    print(f"{'':16}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'together':>12}{'sent':>12}")
    for stage, name, parts, together in large():
        cells = "".join(f"{short(parts[kind]):>12}" for kind in kinds)
        print(f"{name:16}{cells}{short(together):>12}{moved_units(stage):>12}")


def short(value):
    """120, 31.4, 1.9"""
    return f"{value:.1f}".removesuffix(".0")


def moved_units(stage):
    """Elements sent for each parameter, without the factor (N - 1) / N."""
    return f"{sum(sent(stage, RANKS)) * RANKS / (RANKS - 1)} Psi"


# --- the figure -----------------------------------------------------------------------------------

LEFT, TOP, ROW, BAR, RIGHT = 122, 76, 54, 30, 645
SCALE = 400 / 120  # units of the picture for a GB


def figure():
    """Stacked bars: GB of each kind on a rank, by stage."""
    picture = Picture(
        660,
        "7.5 billion parameters, 64 ranks: what each rank keeps",
        "Data parallelism keeps 120 GB on each rank, of which 90 GB are masters and moments. "
        "ZeRO-1 cuts those: 31.4 GB. ZeRO-2 cuts the gradients too: 16.6 GB. Both send as much as "
        "data parallelism, 2 Psi. ZeRO-3 cuts the parameters too, 1.9 GB, and sends 3 Psi.",
    )
    picture.text(10, 24, picture.title, size=15, bold=True)
    picture.legend(LEFT, 53, dict(zip(STATE.bytes(), COLOURS, strict=False)))
    picture.text(RIGHT, 66, "sent", anchor="end")
    for row, (stage, name, kinds, together) in enumerate(large()):
        y = TOP + row * ROW
        picture.text(LEFT - 10, y + 20, name, anchor="end", size=14)
        bar(picture, y, kinds)
        end = LEFT + together * SCALE
        picture.text(end + 8, y + 20, f"{short(together)} GB", bold=True, size=14)
        sends = moved_units(stage).replace("Psi", "Ψ")
        picture.text(RIGHT, y + 20, sends, anchor="end", size=14)
    return picture.svg(TOP + len(STAGES) * ROW + 4)


def bar(picture, y, kinds):
    """The rectangles of one bar, with the value inside where it fits."""
    x = LEFT
    for colour, (kind, value) in zip(COLOURS, kinds.items(), strict=False):
        width = value * SCALE
        told = f"{kind} {short(value)} GB"
        picture.rect(x, y, width, BAR, colour, edge=PAPER, told=told)
        if width > 30:
            middle = x + width / 2
            picture.text(middle, y + 20, short(value), size=12, anchor="middle", fill=PAPER)
        x += width


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw the second table as SVG")
    args = parser.parse_args()
    if launched():
        comm = world()
        runs = [comm.gather_objects(trained(comm, stage)) for stage in STAGES]
        if comm.rank == 0:
            print(demos.counted(comm.size, "MPI rank"), end=": ")
            table(comm.size, runs)
        return
    print("4 ranks in this process", end=": ")
    table(4, [run(trained, stage, ranks=4) for stage in STAGES])
    show_large()
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
