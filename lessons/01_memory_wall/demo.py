"""Lesson 01: what a model keeps and computes, counted on a toy, and then by formula for large ones.

    python lessons/01_memory_wall/demo.py                            one process
    minidist launch -n 4 -- python lessons/01_memory_wall/demo.py    4 ranks: what each keeps

No stopwatch: bytes are those of allocated arrays, operations those of computed products.
`--figure FILE` draws bytes against parameters.
"""

import argparse
from pathlib import Path

import numpy as np

from minidist.comm import run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.nn import At, DecoderConfig, allocate, build_decoder
from minidist.ops.half import named
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan.compute import (
    decoder_parameters,
    multiplying,
    training_days,
    training_flops,
)
from minidist.plan.memory import State
from minidist.testing.flops import counted_products
from minidist.train.optimizer import AdamW
from minidist.view import charts

TOY = DecoderConfig(layers=2, width=48, heads=4, groups=2, vocabulary=256)
BATCH, POSITIONS = 2, 16
MIXED = State("bfloat16", "bfloat16")
WAYS = {
    "float32": State("float32"),
    "bfloat16": MIXED,
    "bfloat16, float32 gradients": State("bfloat16", "float32"),
}
DEVICE = 80e9  # bytes of memory of an A100 or an H100
RATE = 400e12  # operations a second that a training run may get out of an H100: 40 % of its 989e12
MODELS = {"7.5B": 7.5e9, "70B": 70e9, "175B": 175e9}
TOKENS_EACH = 20  # tokens for each parameter (Hoffmann et al., 2022)
YEAR = 365.25


def toy_state(comm):
    """A toy decoder's state as data parallelism keeps it: bytes by kind, as they were allocated."""
    ledger, bf16 = Ledger(comm.rank), named("bfloat16")
    units = build_decoder(TOY)
    Zero(units, AdamW(), Mesh(comm), 0, dtype=bf16, grad_dtype=bf16, ledger=ledger)
    size = sum(p.size for p in dict.fromkeys(p for unit in units for p in unit.parameters()))
    return size, {kind: n for kind, n in ledger.held.items() if n}


def toy_products():
    """Operations of all products with weights in a real step: those of forward, of backward."""
    labels = np.arange(BATCH * POSITIONS).reshape(BATCH, POSITIONS)
    units = build_decoder(TOY, lambda at: labels)
    allocate((p for unit in units for p in unit.parameters()), np.float32, gradients=True)
    at, contexts, x = At(0, True, np.arange(BATCH), np.arange(POSITIONS)), [], labels
    with counted_products() as forward:
        for unit in units:
            x, context = unit.forward(x, at)
            contexts.append(context)
    dy = 1.0 / labels.size
    with counted_products() as backward:
        for unit in reversed(units):
            dy = unit.backward(contexts.pop(), dy)
    return sum(forward), sum(backward)


def show_bytes():
    print("\nbytes a parameter, with AdamW\n")
    kinds = list(MIXED.bytes())
    print(f"{'':29}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'together':>12}")
    for name, state in WAYS.items():
        each = state.bytes()
        print(f"{name:29}" + "".join(f"{each[k]:12}" for k in kinds) + f"{sum(each.values()):12}")


def show_toy(size, held):
    print("\na toy decoder in bfloat16: allocated, and by formula\n")
    print(f"{'elements':12}{size:12,}{decoder_parameters(TOY):12,}")
    for kind, each in MIXED.bytes().items():
        print(f"{kind:12}{held[kind]:12,}{each * size:12,} bytes")
    total = sum(held.values())
    print(f"{'together':12}{total:12,}{16 * size:12,} bytes, {total / size:g} a parameter")


def show_products():
    each = multiplying(TOY) * BATCH * POSITIONS
    forward, backward = toy_products()
    print(f"\none step of it on {BATCH * POSITIONS} tokens: operations of products with weights\n")
    for name, flops in {
        "forward": forward,
        "backward": backward,
        "together": forward + backward,
    }.items():
        print(f"{name:12}{flops:12,}{flops / each:8.3f} for each weight and token")


def show_walls():
    print("\nby formula: 16 bytes a parameter, 6 operations for each parameter and token\n")
    print(
        f"{'':8}{'state, GB':>12}{'devices to hold it':>20}{'tokens':>10}{'operations':>12}"
        f"{'one device, years':>19}{'1000 devices, days':>20}"
    )
    for name, size in MODELS.items():
        state, tokens = 16 * size, TOKENS_EACH * size
        flops = training_flops(size, tokens)
        days = training_days(flops, 1, RATE)
        print(
            f"{name:8}{state / 1e9:12.0f}{-(-state // DEVICE):20.0f}{tokens:10.2g}{flops:12.3g}"
            f"{days / YEAR:19.1f}{days / 1000:20.1f}"
        )
    print(
        f"\n70B: {16 * 70e9 / 1e12:.2f} TB. A device has {DEVICE / 1e9:.0f} GB and does "
        f"{RATE / 1e12:.0f}e12 operations a second."
    )
    gpt3 = training_days(training_flops(175e9, 300e9, recompute=True), 1024, 140e12)
    print(f"GPT-3 on 1024 devices at 140e12, recomputed: {gpt3:.1f} days; published 34")


def figure():
    """Bytes against parameters, beside what a device has."""
    sizes = [1e8, 1e12]
    series = [
        charts.Series("state: 16 bytes a parameter", sizes, [16 * n / 1e9 for n in sizes], "line"),
        charts.Series("parameters alone: 2 bytes", sizes, [2 * n / 1e9 for n in sizes], "line"),
        charts.Series("one device: 80 GB", sizes, [DEVICE / 1e9] * 2, "line"),
    ]
    full = DEVICE / 16
    return charts.lines(
        series,
        x=charts.Axis("parameters"),
        y=charts.Axis("GB"),
        title="Mixed precision with Adam: 16 bytes a parameter",
        words="A device of 80 GB is full at 5 billion parameters. With 70 billion the state is "
        "1.12 TB, which 14 devices hold; the parameters alone would be 140 GB.",
        marks=[
            charts.Mark(full, DEVICE / 1e9, "full at 5 billion"),
            charts.Mark(70e9, 16 * 70, "70 billion: 1.12 TB"),
        ],
    )


def on_real_ranks(comm):
    """What each rank keeps: data parallelism divides the work, and no state."""
    size, held = toy_state(comm)
    rows = comm.gather_objects(sum(held.values()))
    if comm.rank == 0:
        print(f"{demos.counted(comm.size, 'MPI rank')}, data parallel, {size:,} parameters\n")
        for rank, nbytes in enumerate(rows):
            print(f"rank {rank}: {nbytes:12,} bytes allocated, {nbytes / size:g} a parameter")
        print(f"together {sum(rows):11,} bytes: {comm.size} times the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw bytes against parameters")
    args = parser.parse_args()
    if launched():
        on_real_ranks(world())
        return
    print("1 process: what is counted is counted here")
    show_bytes()
    show_toy(*run(toy_state, ranks=1)[0])
    show_products()
    show_walls()
    if args.figure:
        charts.write(args.figure, figure())
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
