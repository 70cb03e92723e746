"""`minidist memory`: what the state of a model takes on each rank, before there is one.

    minidist memory --params 7.5e9 --ranks 64 --zero 2      one cell of ZeRO's table 1: 16.6 GB
    minidist memory --table                                 the whole table

GB are 1e9 bytes. Activations and buffers come on top: `minidist train` prints what it held.
"""

import argparse
from collections.abc import Iterator
from fractions import Fraction
from math import isfinite

from minidist.errors import ConfigError
from minidist.plan.memory import BYTES, CUT_FROM, SLOTS, State, sent

NAMES = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")
MODELS = {"7.5B": 7.5e9, "128B": 128e9}
RANKS = (1, 4, 16, 64, 256, 1024)
"""Of table 1 in the paper."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("--params", type=float, default=7.5e9, help="parameters (7.5e9)")
    parser.add_argument("--ranks", type=int, default=64, help="data-parallel ranks (64)")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="the stage to mark")
    parser.add_argument("--dtype", choices=tuple(BYTES), default="bfloat16")
    parser.add_argument(
        "--grad-dtype", choices=("float32", "bfloat16"), help="of gradients (that of --dtype)"
    )
    parser.add_argument("--optimizer", choices=tuple(SLOTS), default="adamw")
    parser.add_argument("--micro-batches", type=int, default=1, help="of a step (1)")
    parser.add_argument("--table", action="store_true", help="ZeRO's table 1")


def main(args: argparse.Namespace) -> int:
    """Print the table, or one model's memory by stage."""
    check(args)
    state = State(args.dtype, args.grad_dtype or args.dtype, args.optimizer)
    print("\n".join(paper() if args.table else model(args, state)))
    return 0


def check(args: argparse.Namespace) -> None:
    """Raise ConfigError for numbers that mean nothing, and flags that `--table` does not use."""
    usual = argparse.ArgumentParser()
    configure(usual)
    changed = [name for name in vars(args) if getattr(args, name) != usual.get_default(name)]
    others = [name.replace("_", "-") for name in changed if name not in ("table", "main")]
    if args.table and others:
        raise ConfigError(f"--table is the published one: leave out --{', --'.join(others)}")
    if args.dtype == "float64" and args.grad_dtype:
        raise ConfigError(
            f"--grad-dtype {args.grad_dtype}: gradients of float64 are float64; leave it out"
        )
    if not (isfinite(args.params) and args.params > 0):
        raise ConfigError(f"--params {args.params:g}: give a number of parameters above 0")
    for flag in ("ranks", "micro_batches"):
        if getattr(args, flag) < 1:
            name = flag.replace("_", "-")
            raise ConfigError(f"--{name} {getattr(args, flag)}: must be at least 1")


def gigabytes(x: float) -> str:
    """Write bytes as GB with three figures, or as many decimals as matter."""
    gb = x / 1e9
    return f"{gb:.3g}" if gb < 100 else f"{gb:.0f}"


def model(args: argparse.Namespace, state: State) -> Iterator[str]:
    """Yield the lines for one model: bytes by kind, and what a step sends, for each stage."""
    kinds = [kind for kind, n in state.bytes().items() if n]
    grads = args.grad_dtype or args.dtype
    yield (
        f"{args.params:.4g} parameters in {args.dtype}, gradients in {grads}, {args.optimizer}, "
        f"{args.ranks} ranks: GB on each rank"
    )
    yield f"  {'':14}" + "".join(f"{k:>12}" for k in kinds) + f"{'together':>12}{'sent a step':>13}"
    for stage, name in enumerate(NAMES):
        each = state.bytes()
        parts = [args.params * each[k] / (args.ranks if stage >= CUT_FROM[k] else 1) for k in kinds]
        gradients, parameters = sent(stage, args.ranks, args.micro_batches)
        moved = args.params * float(gradients * each["gradients"] + parameters * each["parameters"])
        columns = "".join(f"{gigabytes(x):>12}" for x in [*parts, sum(parts)])
        mark = ">" if stage == args.zero else " "
        yield f"{mark} {name:14}{columns}{gigabytes(moved):>13}"


def paper() -> Iterator[str]:
    """Yield table 1 of the paper. It prints large numbers cut off, not rounded: 513 for 513.5."""
    state = State("float16", "float16")
    yield "GB on each rank (Rajbhandari et al., 2020, table 1: 16 bytes a parameter)"
    yield f"  {'':6}" + "".join(f"{name:^27}" for name in MODELS)
    yield f"  {'ranks':6}" + f"{'ZeRO-1':>9}{'ZeRO-2':>9}{'ZeRO-3':>9}" * 2
    for ranks in RANKS:
        cells = (
            Fraction(psi) * state.ideal(stage, ranks) / 10**9
            for psi in MODELS.values()
            for stage in (1, 2, 3)
        )
        yield f"  {ranks:<6}" + "".join(f"{_cell(gb):>9}" for gb in cells)


def _cell(gb: Fraction) -> str:
    if gb >= 100:
        return str(int(gb))
    digits = 2 if gb < 10 else 1
    return f"{int(gb * 10**digits + Fraction(1, 2)) / 10**digits:.{digits}f}"  # halves go up
