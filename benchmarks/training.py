"""A training step: tokens per second, what data parallelism costs, and where the time goes.

    minidist launch -n 2 -- benchmarks/training.py                       together and as copies
    python benchmarks/training.py --width 256 --against torch            beside eager PyTorch

Model, batch and optimiser are those of `minidist train`, and so are the flags. On N ranks two
things are timed in turn:

    together   one model: N slices of a batch, gradients summed by the ring
    copies     N programs that do not know of each other, each with a batch as large as a slice

The copies are what this machine can do with N processes, since they too share its memory and its
cores. `of copies` is the speed of the one, with that of the other as 1, round by round. Both are
timed at two sizes. With `--batch 16` a slice has 16 / N samples (the same batch on any number of
ranks), or 16 (the batch grows with the ranks).

The sampling is explained in `timing`. PyTorch is timed on one rank, with one thread, after losses,
gradients and weights have been compared.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from layer_kinds import average, lines, time_kinds
from table import circumstances, json_file, write_json
from timing import ALLOCATOR, Times, Variant, restart_with, rounds, speed, summary

from minidist.comm import Comm, run, world
from minidist.comm.detect import launched
from minidist.device import Device, choose_device
from minidist.errors import ConfigError
from minidist.launch import THREADS
from minidist.options import add_flags, resolve
from minidist.parallel.mesh import Mesh
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.corpus import Text, read_text
from minidist.train.folder import RunFolder
from minidist.train.trainer import Trainer


@dataclass
class Row:
    """One variant: how long a step takes on the slowest rank, and how fast it is beside another."""

    variant: str
    samples: int
    tokens_per_s: float
    times: Times
    beside: str | None = None
    speed: Times | None = None


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=25, help="samples (25)")
    parser.add_argument("-w", type=int, default=3, help="samples before, not counted (3)")
    parser.add_argument("--against", choices=("torch",), help="on one rank: beside eager PyTorch")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--share-devices", action="store_true")
    parser.add_argument("--untuned", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--json", metavar="FILE", type=json_file)
    add_flags(parser, TrainConfig)
    return parser.parse_args(words)


# --- what is timed ------------------------------------------------------------------------------


class Bench:
    """What all measurements of one rank share."""

    def __init__(self, comm: Comm, args: argparse.Namespace) -> None:
        self.comm, self.args = comm, args
        self.config = resolve(TrainConfig, args)
        self.device: Device = choose_device(args.device, comm, args.share_devices)
        self.text: Text = read_text(self.config.data)

    def trainer(self, comm: Comm, **changes: Any) -> Trainer:
        """Return what `minidist train` would run; the folder is named, and never made."""
        config = replace(self.config, **changes)
        return Trainer(
            Mesh(comm), config, Layout(), Session(), RunFolder("none"), self.text, self.device.xp
        )

    def synchronise(self) -> None:
        """Wait for the device, if it is one that works behind the back of the program."""
        if self.device.kind == "cuda":
            self.device.xp.cuda.get_current_stream().synchronize()

    def slowest(self, seconds: list[float]) -> list[float]:
        """Return the largest of each sample over all ranks."""
        return np.max(self.comm.gather_objects(seconds), axis=0).tolist()

    def time(self, steps: dict[str, Callable[[int], object]]) -> dict[str, list[float]]:
        """Time steps in turn; each is handed its own number."""
        variants = {name: Variant(nothing, self._numbered(step)) for name, step in steps.items()}
        args = self.args
        return rounds(variants, args.n, args.w, self.comm.barrier, self.slowest)

    def _numbered(self, step: Callable[[int], object]) -> Callable[[], None]:
        numbers = iter(range(1 << 30))

        def call() -> None:
            step(next(numbers))
            self.synchronise()

        return call


def nothing() -> None:
    """Prepare nothing."""


def ranks_together(bench: Bench) -> Iterator[Row]:
    """Yield data parallelism and independent copies, with small slices and with large ones."""
    comm, batch = bench.comm, bench.config.batch
    alone = comm.split(comm.rank, name="copy")
    assert alone is not None
    largest_slice = -(-batch // comm.size)
    pairs = [
        (f"together, {batch} in all", f"copies of {largest_slice}", batch, largest_slice),
        (f"together, {batch} a rank", f"copies of {batch}", batch * comm.size, batch),
    ]
    steps, samples = {}, {}
    for together, copies, in_all, each in pairs if comm.size > 1 else [("one rank", "", batch, 0)]:
        steps[together], samples[together] = bench.trainer(comm, batch=in_all).step, in_all
        if copies:
            steps[copies], samples[copies] = bench.trainer(alone, batch=each).step, each * comm.size
    taken = bench.time(steps)
    beside = {together: copies for together, copies, *_ in pairs}
    for name in taken:
        yield row(bench, name, samples[name], taken, beside.get(name))


def row(
    bench: Bench, name: str, samples: int, taken: dict[str, list[float]], beside: str | None
) -> Row:
    times = summary(taken[name])
    tokens = samples * bench.config.context / times.median
    if beside not in taken:
        return Row(name, samples, tokens, times)
    return Row(name, samples, tokens, times, beside, speed(taken[name], taken[beside]))


def beside_torch(bench: Bench) -> Iterator[Row]:
    """Yield our step and that of PyTorch; raise ConfigError if they compute different things."""
    try:
        import torch
        from torch_decoder import TorchStep
    except ImportError:
        raise ConfigError("--against torch needs PyTorch: pip install torch") from None
    config = bench.config
    if bench.comm.size > 1 or bench.device.kind != "cpu":
        raise ConfigError("--against torch compares one rank on the CPU: start no others")
    if config.dropout or config.optimizer != "adamw":
        raise ConfigError("--against torch has no dropout, and AdamW only: leave these flags out")
    torch.set_num_threads(1)
    must_agree(bench, TorchStep)
    ours = bench.trainer(bench.comm)
    taken = bench.time({"minidist": ours.step, "torch": TorchStep(ours)})
    yield row(bench, "minidist", config.batch, taken, "torch")
    yield row(bench, "torch", config.batch, taken, None)


def must_agree(bench: Bench, torch_step: Any) -> None:
    """Compare two steps in float64: loss and gradient norm, then gradients, then weights.

    Not clipped: PyTorch scales by clip / (norm + 1e-6), a millionth of a difference.
    """
    ours = bench.trainer(bench.comm, dtype="float64", clip=0.0)
    theirs = torch_step(ours)
    for step in range(2):
        outcome = ours.step(step)
        close("loss, norm", np.array([outcome.loss, outcome.norm]), np.array(theirs(step)))
        for name, p in theirs.model.named().items():
            mine = next(q for q in ours.sync.parameters() if q.name == name)
            close(f"gradient of {name}", mine.grad, p.grad.numpy())
            close(name, mine.data, p.detach().numpy(), 1e-6)


def close(name: str, mine: np.ndarray, other: np.ndarray, tolerance: float = 1e-10) -> None:
    """Raise ConfigError unless two arrays agree, relative to their largest element.

    Adam divides by the root of the gradient's square, so weights whose gradient is nearly 0 differ
    more than gradients do.
    """
    off = np.abs(mine - other).max() / np.abs(other).max()
    if not off < tolerance:
        raise ConfigError(f"minidist and PyTorch differ in the {name} by {off:.1e}: a bug")


# --- what is printed ----------------------------------------------------------------------------


def header(beside: str | None) -> str:
    """Return the line above the rows, which are compared with something or not."""
    ratio = f"{f'of {beside}':>11}{'low-high':>12}" if beside else ""
    return f"# {'variant':<22}{'samples':>8}{'ms':>9}{'low-high':>15}{'tokens/s':>10}{ratio}"


def line(r: Row) -> str:
    """Return a row of the table; low and high are the borders of the middle eight tenths."""
    ms = f"{r.times.median * 1e3:9.1f}{f'{r.times.low * 1e3:.1f}-{r.times.high * 1e3:.1f}':>15}"
    text = f"  {r.variant:<22}{r.samples:8}{ms}{r.tokens_per_s:10,.0f}"
    if r.speed:
        text += f"{r.speed.median:11.3f}{f'{r.speed.low:.2f}-{r.speed.high:.2f}':>12}"
    return text


def measure(comm: Comm, args: argparse.Namespace) -> int:
    """One rank's part. All ranks call it; rank 0 prints and writes."""
    bench = Bench(comm, args)
    c = bench.config

    def say(text: str) -> None:
        if comm.rank == 0:
            print(text, flush=True)

    say(
        f"# {comm.size} rank{'s' * (comm.size > 1)} on {bench.device}; {c.layers} layers, width "
        f"{c.width}, {c.heads} heads in {c.groups} groups, context {c.context}, {c.dtype}"
    )
    say(
        f"# median of {args.n} steps in turn, slowest rank; allocator "
        f"{'as it is' if args.untuned else 'keeps its memory'}"
    )
    say(header(args.against or ("copies" if comm.size > 1 else None)))
    rows = list(beside_torch(bench) if args.against else ranks_together(bench))
    for r in rows:
        say(line(r))
    mine = time_kinds(bench.trainer(comm), args.n, bench.synchronise)
    kinds = average(comm.gather_objects(mine))
    for text in lines(kinds):
        say(text)
    if args.json and comm.rank == 0:
        about = circumstances(
            ranks=comm.size, device=str(bench.device), config=vars(c), kinds_ms=kinds
        )
        write_json(args.json, about, rows)
    return 0


def main(words: list[str] | None = None) -> int:
    args = arguments(words)
    restart_with(THREADS if args.untuned else {**THREADS, **ALLOCATOR})
    try:
        if launched():
            return measure(world(), args)
        return run(measure, args, ranks=1, stuck_after=600.0)[0]
    except ConfigError as error:
        print(f"training.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
