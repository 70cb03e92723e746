"""Lesson 09: memory for work. What is alive at most, by the length of what is computed again.

    python lessons/09_recompute/demo.py                           4 ranks in this process
    minidist launch -n 4 -- python lessons/09_recompute/demo.py   4 MPI ranks

First 16 plain layers, each of which keeps its input and no more; then a decoder with dropout that
trains for three steps on all ranks. Bytes and operations are counted, and no stopwatch is used, so
the numbers are the same on every machine. `--figure FILE` draws the first table.
"""

import argparse
from pathlib import Path

import numpy as np

from minidist.bounds import bounds
from minidist.comm import run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.nn import (
    RECOMPUTE,
    At,
    DecoderConfig,
    Layer,
    Linear,
    Parameter,
    allocate,
    build_decoder,
    segments,
)
from minidist.nn.activations import alive
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan.activations import Activations, best_length, segmented
from minidist.train.corpus import Corpus, Text
from minidist.train.optimizer import AdamW
from minidist.train.step import Step
from minidist.view import charts

LAYERS, WIDTH, ROWS = 16, 8, 4
SHOWN = (1, 2, 3, 4, 8, 16)


class Counted(Layer):
    """A linear layer that counts its operations: 2 for each weight and row in a product."""

    def __init__(self, number, count):
        self.linear = Linear(Parameter(f"layer {number}", (WIDTH, WIDTH), init=0.3))
        self.count = count

    def forward(self, x, at):
        self.count["forward"] += 1
        self.count["operations"] += 2 * x.size * WIDTH
        return self.linear.forward(x, at)

    def backward(self, ctx, dy, later=None):
        self.count["operations"] += 4 * dy.size * WIDTH
        return self.linear.backward(ctx, dy, later)


def walk(length):
    """Forward and backward with segments of this length; None: nothing is computed again.

    Return (inputs alive after forward, inputs alive at most, forward runs, operations, gradients).
    """
    count, again = {"forward": 0, "operations": 0}, []
    layers = [Counted(n, count) for n in range(LAYERS)]
    weights = [p for layer in layers for p in layer.parameters()]
    allocate(weights, np.float64, gradients=True)
    at = At(0, True, np.arange(ROWS), np.arange(1), recomputed=lambda *both: again.append(both[0]))
    units = layers if length is None else segments(layers, length)
    y, contexts = np.random.default_rng(0).normal(size=(ROWS, 1, WIDTH)), []
    for unit in units:
        y, ctx = unit.forward(y, at)
        contexts.append(ctx)
    kept = most = alive(*contexts)
    dy = np.ones_like(y)
    for unit in reversed(units):
        dy = unit.backward(contexts[-1], dy)
        most = max(most, alive(*contexts, *again))
        contexts.pop()
        again.clear()
    bits = b"".join(p.grad.tobytes() for p in weights)
    return kept // y.nbytes, most // y.nbytes, count["forward"], count["operations"], bits


def show_walks():
    print(f"\n{LAYERS} layers that keep their input; memory in inputs of a layer\n")
    print("recomputed       after forward  at most  formula  forward runs   work  gradients")
    *_, plain, right = walk(None)
    for length in (None, *SHOWN):
        kept, most, runs, operations, bits = walk(length)
        name = "nothing" if length is None else f"segments of {length}"
        formula = LAYERS if length is None else segmented(LAYERS, length, 1, 1)
        same = "the same bits" if bits == right else "OTHERS"
        print(f"{name:16}{kept:14}{most:9}{formula:9}{runs:14}{operations / plain:7.2f}  {same}")
    print("\nbest length, if a layer keeps    1 input       4 inputs        17 inputs")
    for layers in (16, 64, 100):
        cells = [best(layers, whole) for whole in (1, 4, 17)]
        print(f"{layers:3} layers      {cells[0]:>27}{cells[1]:>15}{cells[2]:>17}")


def best(layers, whole):
    """'4 (31 of 256)': the best length, its peak, and that without recomputation."""
    length = best_length(layers, 1, whole)
    return f"{length} ({segmented(layers, length, 1, whole)} of {layers * whole})"


# --- a decoder on all ranks -----------------------------------------------------------------------

CORPUS = Corpus(Text("numbers", bytes(i * i % 251 for i in range(900))), 16, 1)
DECODER = DecoderConfig(layers=8, width=48, heads=4, groups=4, dropout=0.2)
BATCH, STEPS = 4, 3


def trained(comm, recompute):
    """Three steps with dropout: (the most bytes of activations, all weights)."""
    units = build_decoder(DECODER, CORPUS.labels, recompute)
    zero = Zero(units, AdamW(), Mesh(comm), 0, dtype=np.float32)
    step = Step(zero, CORPUS, batch=BATCH, learning_rate=lambda step: 0.01, clip=1.0)
    for number in range(STEPS):
        step(number)
    return zero.ledger.peak["activations"], b"".join(b.flat.tobytes() for b in zero.gathered())


def planned(ranks, recompute):
    """The formula for the rank with the most samples."""
    cut = bounds(BATCH, ranks)
    return Activations(
        cut[1] - cut[0], CORPUS.length, DECODER.width, DECODER.heads, DECODER.groups, DECODER.head,
        DECODER.inner, DECODER.vocabulary, DECODER.layers, dropout=True, recompute=recompute,
    )  # fmt: skip


def show_trained(runs):
    """`runs` are the results of all ranks, by kind."""
    ranks = len(runs["none"])
    shape = planned(ranks, "none")
    print(f"\na decoder of {DECODER.layers} blocks, dropout {DECODER.dropout}, {STEPS} steps")
    print(f"a block keeps {shape.whole_block / shape.stream:.1f} times its input\n")
    print("recomputed      bytes at most   formula  weights in the end")
    right = runs["none"][0][1]
    for kind, results in runs.items():
        most = max(nbytes for nbytes, _ in results)
        same = all(weights == right for _, weights in results)
        print(
            f"{kind:16}{most:13,}{planned(ranks, kind).peak:10,}  "
            f"{'the same bits' if same else 'OTHERS'}"
        )


# --- the figure -----------------------------------------------------------------------------------


def figure():
    """Counted peaks on the formula, for every segment length."""
    lengths = range(1, LAYERS + 1)
    counted = [walk(n)[1] for n in lengths]
    words = (
        "With segments of one layer 16 inputs are alive at most, as many as without recomputation. "
        "The curve falls to 7 at lengths 3 to 6, around the square root of 16, and rises again to "
        "16 where the whole model is one segment. The work is 4/3 everywhere."
    )
    root = [n + LAYERS / n - 1 for n in lengths]
    return charts.lines(
        [
            charts.Series("at most, counted", lengths, counted, style="points"),
            charts.Series("at most, 16 / n + n - 1", lengths, root, style="line"),
            charts.Series("nothing recomputed", lengths, [LAYERS] * LAYERS, style="line"),
            charts.Series("kept after forward", lengths, [-(-LAYERS // n) for n in lengths]),
        ],
        x=charts.Axis("layers in a segment, n", log=False),
        y=charts.Axis("inputs alive", log=False),
        title=f"Segments computed again: memory of {LAYERS} layers",
        words=words,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw the first table as SVG")
    args = parser.parse_args()
    if launched():
        comm = world()
        runs = {kind: comm.gather_objects(trained(comm, kind)) for kind in RECOMPUTE}
        if comm.rank == 0:
            print(demos.counted(comm.size, "MPI rank"))
            show_trained(runs)
        return
    print("4 ranks in this process")
    show_walks()
    show_trained({kind: run(trained, kind, ranks=4) for kind in RECOMPUTE})
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
