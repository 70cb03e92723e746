"""The all-reduce that `choose` takes, beside the one that is the fastest by measurement.

    minidist launch -n 4 -- benchmarks/choose.py -b 8 -e 16M -f 4
    python benchmarks/choose.py --nodes 4,4 --inside 1e-6,5e9 --across 20e-6,1.25e9

The first measures all candidates in turn on real ranks (`timing` says how), in place, as gradients
are reduced. `choose` goes by what `minidist measure-links` has kept, so measure first.

The second needs no MPI: ranks inside this process, on nodes with so many ranks each, and the
virtual clock over described links, latency in seconds and bandwidth in bytes per second. The ranks
of a node share its card. Times are exact and sums take none, so two runs print the same.

`chosen/best` is 1 where the fastest was taken; low-high are the quotients of each round. The best
of several noisy medians is a little too good, so 1.05 may mean that two are equally fast.

Exit status 1 if any element is wrong, 2 for a question that has no answer.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from timing import Times, speed, summary, tune_allocator

if __name__ == "__main__" and not {"--untuned", "--nodes"} & set(sys.argv):
    tune_allocator()

import numpy as np
from measuring import Setting
from problems import KINDS, Call, Problem
from table import Parser, at_least, circumstances, fit, json_file, number, sizes, write_json

from minidist.arrays import Array
from minidist.collectives.choose import FLAT, Choice, Network, choose, surroundings, two_levels
from minidist.comm import Comm, Link, by_node, run, world
from minidist.comm.detect import launched
from minidist.device import choose_device
from minidist.errors import ConfigError, DataError
from minidist.network import DEFAULT, load

MODE = "in-place"
NOT_MEASURED = "not measured, round figures: run minidist measure-links"


@dataclass
class Row:
    """One size: seconds of each candidate as predicted and as measured, and how the chosen did.

    ``ratio`` is the time of the chosen one, that of the best as 1.
    """

    size: int
    chosen: str
    best: str
    predicted: dict[str, float]
    measured: dict[str, Times]
    ratio: Times
    wrong: int


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("-b", type=number, default=8, help="smallest size in bytes (8)")
    parser.add_argument("-e", type=number, default=16 << 20, help="largest size (16M)")
    parser.add_argument("-f", type=at_least(2), default=4, help="factor between sizes (4)")
    parser.add_argument("-n", type=at_least(1), default=15, help="samples (15)")
    parser.add_argument("-w", type=at_least(0), default=5, help="samples before, not counted (5)")
    parser.add_argument("--nodes", type=ranks_of, help="in this process: 4,4 is two nodes of four")
    parser.add_argument("--inside", type=link, default=DEFAULT.links["node"], metavar="S,B/S")
    parser.add_argument("--across", type=link, default=DEFAULT.links["network"], metavar="S,B/S")
    parser.add_argument("--untuned", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--json", metavar="FILE", type=json_file)
    return parser.parse_args(words)


def ranks_of(text: str) -> list[int]:
    """Read how many ranks each node has."""
    ranks = [at_least(1)(word) for word in text.split(",")]
    if sum(ranks) > 256:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 256 ranks for one process")
    return ranks


def link(text: str) -> Link:
    """Read latency and bandwidth."""
    try:
        latency, bandwidth = (float(word) for word in text.split(","))
    except ValueError:
        latency = bandwidth = math.nan
    if not (0 <= latency < 1e6 and 1e-3 < bandwidth < 1e18):
        raise argparse.ArgumentTypeError(f"{text!r} is no link: give seconds,bytes/s as 1e-6,5e9")
    return Link(latency, bandwidth)


# --- measuring ------------------------------------------------------------------------------------


def measure(setting: Setting, network: Network, nbytes: int) -> Row:
    """Time all candidates in turn at one size. All ranks call it."""
    comm, dtype = setting.comm, np.dtype(np.float32)
    p = Problem(comm, max(nbytes // dtype.itemsize, 1), dtype)
    size = p.count * dtype.itemsize
    choice: Choice = choose(size, comm, network)
    bodies = {name: FLAT.get(name) or two_levels(comm, network.hosts) for name in choice.candidates}

    def way_of(name: str):
        def way(p: Problem, x: Array, out: Array | None) -> Call:
            return lambda: bodies[name](p.comm, x, out, p.op)

        return way

    ways = {name: way_of(name) for name in bodies}
    seconds, wrong = setting.take(KINDS["all_reduce"], p, ways, modes=[MODE])
    taken = {name: seconds[name, MODE] for name in ways}
    times = {name: summary(samples) for name, samples in taken.items()}
    best = min(times, key=lambda name: times[name].median)
    ratio = speed(taken[best], taken[choice.name])
    total = sum(wrong.values())
    return Row(size, choice.name, best, dict(choice.candidates), times, ratio, total)


def header() -> str:
    """Return the two lines above the rows."""
    both = f"{'chosen':<14}{'time':>9}{'expected':>10}  {'best':<14}{'time':>9}"
    units = f"{'':<14}{'(us)':>9}{'(us)':>10}  {'':<14}{'(us)':>9}"
    return f"# {'size':>11}  {both}  {'chosen/best':>11}  low-high\n# {'(B)':>11}  {units}"


def line(row: Row) -> str:
    """Return a row of the table."""
    chosen, best = (fit(row.measured[n].median * 1e6, 8) for n in (row.chosen, row.best))
    expected = fit(row.predicted[row.chosen] * 1e6, 8)
    both = f"{row.chosen:<14}{chosen:>9}{expected:>10}  {row.best:<14}{best:>9}"
    return (
        f"{row.size:13}  {both}  {row.ratio.median:11.2f}  {row.ratio.low:.2f}-{row.ratio.high:.2f}"
    )


def summed_up(rows: list[Row]) -> str:
    """Return what all rows together say."""
    worst = max(rows, key=lambda row: row.ratio.median)
    mean = math.exp(sum(math.log(row.ratio.median) for row in rows) / len(rows))
    hits = sum(row.chosen == row.best for row in rows)
    return (
        f"# chosen / best: {mean:.2f} in the geometric mean, {worst.ratio.median:.2f} at worst "
        f"({worst.size} B); the best itself at {hits} of {len(rows)} sizes"
    )


def describe(setting: Setting, network: Network, args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines above the table."""
    comm, nodes = setting.comm, len(network.sizes)
    yield f"# {comm.size} ranks on {nodes} node{'s' * (nodes > 1)}, all-reduce of float in place"
    for name in ("inside", "across") if nodes > 1 else ("inside",):
        there = getattr(network, name)
        where = "inside a node" if name == "inside" else "across nodes"
        yield f"# {where}: {there.latency * 1e6:.2f} us, {there.bandwidth / 1e9:.2f} GB/s"
    if setting.real:
        yield f"# links {'as measured' if args.kept else NOT_MEASURED}"
        yield f"# median of {args.n} samples in turn, time of the slowest rank"
    else:
        yield "# on the virtual clock, time of the slowest rank; sums take no time"


def report(setting: Setting, network: Network, args: argparse.Namespace) -> int:
    """Measure and print everything; return 1 if something is wrong. All ranks call it."""
    for text in describe(setting, network, args):
        setting.say(text)
    setting.say(header())
    rows = []
    for nbytes in sizes(args.b, args.e, args.f):
        rows.append(measure(setting, network, nbytes))
        setting.say(line(rows[-1]))
    setting.say(summed_up(rows))
    bad = sum(row.wrong for row in rows)
    setting.say(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    if args.json and setting.comm.rank == 0:
        clock = "real" if setting.real else "virtual"
        about = circumstances(ranks=setting.comm.size, clock=clock, network=asdict(network))
        write_json(args.json, about, rows)
    return 1 if bad else 0


# --- two worlds -----------------------------------------------------------------------------------


def described(args: argparse.Namespace) -> int:
    """Ranks inside this process, on described links."""
    hosts = [node for node, ranks in enumerate(args.nodes) for _ in range(ranks)]
    network = Network(hosts, args.inside, args.across)

    def program(comm: Comm) -> int:
        device = choose_device("cpu", comm)
        return report(Setting(comm, device, 1, 0, clock=lambda: comm.time), network, args)

    links = by_node(args.nodes, args.inside, args.across, shared_card=True)
    return run(program, ranks=len(hosts), links=links, stuck_after=600.0)[0]


def real(comm: Comm, args: argparse.Namespace) -> int:
    """Ranks that are processes, on the links that there are."""
    network = surroundings(comm)
    device = choose_device("cpu", comm)
    return report(Setting(comm, device, args.n, args.w), network, args)


def kept() -> bool:
    """Say whether links have been measured here. Raises ConfigError for a damaged file."""
    try:
        return load() is not None
    except DataError as error:
        raise ConfigError(str(error)) from error


def ask(words: list[str] | None, ranks: bool) -> argparse.Namespace:
    """Return the flags. Raises ConfigError for what cannot be measured."""
    args = arguments(words)
    sizes(args.b, args.e, args.f)
    if args.nodes == [1]:
        raise ConfigError("--nodes 1: one rank has nothing to reduce; describe two or more")
    if ranks and args.nodes:
        raise ConfigError("--nodes describes ranks inside one process: start no others")
    if not ranks and not args.nodes:
        raise ConfigError(
            "start ranks (minidist launch -n 4 -- benchmarks/choose.py), or describe some: "
            "--nodes 4,4"
        )
    return args


def main(words: list[str] | None = None) -> int:
    if not launched():
        try:
            return described(ask(words, ranks=False))
        except ConfigError as error:
            print(f"choose.py: {error}", file=sys.stderr)
            return 2
    comm = world()
    args, refusal = None, ""
    if comm.rank == 0:
        try:
            args = ask(words, ranks=True)
            args.kept = kept()
        except ConfigError as error:
            refusal = str(error)
            print(f"choose.py: {error}", file=sys.stderr)
    args, refusal = comm.bcast_object((args, refusal))
    status = 2 if refusal else real(comm, args)
    from minidist.comm.mpi import leave

    leave()
    return status


if __name__ == "__main__":
    sys.exit(main())
