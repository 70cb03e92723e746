"""Collectives by hand, beside MPI's own, and beside gloo or NCCL where PyTorch is installed.

    minidist launch -n 4 -- benchmarks/collectives.py                      the all-reduces
    minidist launch -n 4 -- benchmarks/collectives.py all_gather broadcast -b 1K -e 1M
    minidist launch -n 4 -- benchmarks/collectives.py all --against gloo --json all.json
    srun -n 8 python -m mpi4py benchmarks/collectives.py --device cuda --against nccl

The columns are those of nccl-tests (`table`), sizes and counts those of the whole array; the
sampling is explained in `timing`, and what must come out in `problems`. `copy` is the limit of the
machine: every rank copies the whole array once, at the same time as all others. An all-reduce of n
ranks moves each byte through memory several times more often, so on one node, where messages are
copies, no algorithm comes near it with many ranks.

Exit status 1 if any element is wrong, 2 for a question that has no answer.
"""

import argparse
import platform
import sys
from collections.abc import Iterator

from timing import Variant, speed, summary, tune_allocator

if __name__ == "__main__" and "--untuned" not in sys.argv:
    tune_allocator()

import ml_dtypes
import numpy as np
from measuring import MODES, Setting
from mpi4py import MPI
from mpi4py import __version__ as MPI4PY
from problems import KINDS, Problem, Way
from table import (
    Cell,
    Parser,
    Row,
    at_least,
    circumstances,
    header,
    json_file,
    line,
    number,
    quotients,
    sizes,
    write_json,
)
from torch_ways import torch_ways
from ways import MPIS, OPS, OURS

from minidist.collectives import hierarchical
from minidist.comm import Comm, world
from minidist.comm.mpi import leave
from minidist.comm.staging import Direct
from minidist.device import choose_device
from minidist.errors import ConfigError, DeviceError

DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
}


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "collectives", nargs="*", metavar="COLLECTIVE", help=f"{', '.join(KINDS)}, or all"
    )
    parser.add_argument("-b", type=number, default=1 << 10, help="smallest size in bytes (1K)")
    parser.add_argument("-e", type=number, default=64 << 20, help="largest size (64M)")
    parser.add_argument("-f", type=at_least(2), default=4, help="factor between sizes (4)")
    parser.add_argument("-n", type=at_least(1), default=15, help="samples (15)")
    parser.add_argument("-w", type=at_least(0), default=5, help="samples before, not counted (5)")
    parser.add_argument("-d", choices=DTYPES, default="float", help="type")
    parser.add_argument("-o", choices=OPS, default="sum", help="operation")
    parser.add_argument("-r", type=int, default=0, help="root (0)")
    parser.add_argument("-c", type=int, choices=(0, 1), default=1, help="check the results (1)")
    parser.add_argument("--ways", type=lambda text: text.split(","), help="only these: ring,mpi")
    parser.add_argument("--per-node", type=at_least(1), help="take so many ranks for a node")
    parser.add_argument("--against", choices=("gloo", "nccl"), action="append", default=[])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--share-devices", action="store_true")
    parser.add_argument("--untuned", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--json", metavar="FILE", type=json_file)
    args = parser.parse_args(words)
    args.collectives = list(dict.fromkeys(args.collectives)) or ["all_reduce"]
    if "all" in args.collectives:
        args.collectives = list(KINDS)
    if unknown := [name for name in args.collectives if name not in KINDS]:
        raise ConfigError(f"no collective {unknown[0]!r}: there are {', '.join(KINDS)}, and all")
    return args


class Bench(Setting):
    """What all measurements of one rank share, and what there is to measure."""

    def __init__(self, comm: Comm, args: argparse.Namespace) -> None:
        if not 0 <= args.r < comm.size:
            raise ConfigError(f"-r {args.r}: the root is one of the ranks 0 to {comm.size - 1}")
        self.args, self.sizes = args, sizes(args.b, args.e, args.f)
        device = choose_device(args.device, comm, args.share_devices)
        super().__init__(comm, device, args.n, args.w, check=bool(args.c))
        hosts = comm.gather_objects(platform.node())
        if args.per_node:
            hosts = [r // args.per_node for r in range(comm.size)]
        self.nodes = hierarchical.nodes(comm, hosts)
        self.ways = dict(self._chosen())

    def problem(self, nbytes: int) -> Problem:
        """Return the problem of this size, of at least one element."""
        dtype, args = np.dtype(DTYPES[self.args.d]), self.args
        count = max(nbytes // dtype.itemsize, 1)
        return Problem(self.comm, count, dtype, args.o, args.r, self.nodes)

    def _chosen(self) -> Iterator[tuple[str, dict[str, Way]]]:
        """Yield the ways of each collective that is asked for."""
        known = {name: dict(OURS[name]) for name in self.args.collectives}
        for way, found in self._foreign():
            for name in known:
                known[name][way] = found[name]
        there = list(dict.fromkeys(way for ways in known.values() for way in ways))
        wanted = self.args.ways or there
        if unknown := [way for way in wanted if way not in there]:
            raise ConfigError(f"--ways: no way {unknown[0]!r} here, only {', '.join(there)}")
        for name, ways in known.items():
            yield name, {way: ways[way] for way in ways if way in wanted}

    def _foreign(self) -> Iterator[tuple[str, dict[str, Way]]]:
        """Yield the ways of others, and say which are left out, and why."""
        if self.args.d == "bfloat16":
            self.say("# MPI has no bfloat16: its own collectives are left out")
        elif self.device.kind == "cuda" and not self._takes_pointers():
            self.say("# this MPI takes no device pointers: its own collectives are left out")
        else:
            yield "mpi", MPIS
        for backend in dict.fromkeys(self.args.against):
            try:
                yield backend, torch_ways(backend, self.comm, self.device)
            except ConfigError as error:
                self.say(f"# {error}")

    def _takes_pointers(self) -> bool:
        staging = self.comm.transport.staging
        return isinstance(staging.way(self.device.xp.zeros(1)), Direct)


# --- what is printed ------------------------------------------------------------------------------


def measure(bench: Bench, name: str, nbytes: int) -> Iterator[Row]:
    """Yield a row per way of a collective, and one for the plain copy, at one size."""
    args, kind, p, xp = bench.args, KINDS[name], bench.problem(nbytes), bench.device.xp
    source, target = xp.ones(p.count, p.dtype), xp.zeros(p.count, p.dtype)
    copy = Variant(bench.synchronise, bench.over(lambda: xp.copyto(target, source)))
    ways = bench.ways[name]
    taken, wrong = bench.take(kind, p, ways, beside={("copy", "out-of-place"): copy})

    def cell(way: str, mode: str, share: float) -> Cell | None:
        if (way, mode) not in taken:
            return None
        mine, theirs = taken[way, mode], taken.get(("mpi", mode))
        found = Cell.of(summary(mine), source.nbytes, share, wrong.get((way, mode)))
        if theirs and way not in ("mpi", "copy"):
            found.speed = speed(mine, theirs)
        return found

    redop, root = args.o if kind.reduces else "none", args.r if kind.rooted else -1
    for way in dict.fromkeys(way for way, _ in taken):
        options = ("none", -1, 1.0) if way == "copy" else (redop, root, kind.share(p.comm.size))
        cells = (cell(way, mode, options[2]) for mode in MODES)
        yield Row(name, way, source.nbytes, p.count, args.d, *options[:2], *cells)


def report(bench: Bench) -> int:
    """Measure and print everything; return 1 if something is wrong. All ranks call it."""
    args, comm, say = bench.args, bench.comm, bench.say
    library = MPI.Get_library_version().splitlines()[0].strip("\0 ,")
    say(f"# {comm.size} ranks on {bench.device}, {library.split(',')[0]}")
    say(f"# median of {args.n} samples in turn, time of the slowest rank; allocator "
        f"{'as it is' if args.untuned else 'keeps its memory'}")  # fmt: skip
    rows: list[Row] = []
    for name in args.collectives:
        say(f"#\n# {name}\n{header()}")
        for nbytes in bench.sizes:
            for row in measure(bench, name, nbytes):
                rows.append(row)
                say(line(row))
        for text in quotients([row for row in rows if row.collective == name]):
            say(text)
    bad = sum(cell.wrong or 0 for row in rows for cell in row.cells())
    say(f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    if args.json and comm.rank == 0:
        about = circumstances(ranks=comm.size, device=str(bench.device), mpi=library, mpi4py=MPI4PY)
        write_json(args.json, about, rows)
    return 1 if bad else 0


def main(words: list[str] | None = None) -> int:
    comm = world()
    try:
        bench = Bench(comm, arguments(words))
    except (ConfigError, DeviceError) as error:  # on all ranks alike
        if comm.rank == 0:
            print(f"collectives.py: {error}", file=sys.stderr)
        leave()
        return 2
    return report(bench)


if __name__ == "__main__":
    sys.exit(main())
