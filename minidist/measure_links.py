"""`minidist measure-links`: latency and bandwidth of each kind of link that can be reached.

    minidist measure-links                                     this process, and two MPI ranks here
    minidist launch -n 2 -- minidist measure-links             the same, as ranks that run already
    srun -N 2 -n 4 python -m mpi4py -m minidist measure-links  also between two nodes

What is found is kept for `minidist.collectives.choose`, one file a host; a kind of link that could
not be measured this time stays as it was. `--figure` draws the times on two log axes: flat while
the latency counts, rising in proportion to the size where the bandwidth does, and the knee between.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from minidist import processes
from minidist.comm import Comm
from minidist.comm.detect import launched
from minidist.errors import ConfigError, MinidistError
from minidist.files import replace_file
from minidist.network import LEVELS, place
from minidist.network.levels import Place
from minidist.network.report import Report, draw, keep, show
from minidist.network.survey import Table, adding, between, in_process, pairs
from minidist.view.charts import write

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(word: str) -> int:
    """Read a number of bytes: 8, 64K, 16M, 1G (powers of 1024)."""
    digits, unit = (word[:-1], UNITS[word[-1].upper()]) if word[-1:].upper() in UNITS else (word, 1)
    if not digits.isdecimal() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no size: give bytes, as in 8, 64K or 16M")
    return int(digits) * unit


def count(word: str) -> int:
    """Read a number that is 1 or more."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no number from 1 up")
    return int(word)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("-b", type=size, default=8, metavar="BYTES", help="smallest message (8)")
    parser.add_argument("-e", type=size, default=8 << 20, metavar="BYTES", help="largest (8M)")
    parser.add_argument("-f", type=count, default=4, metavar="FACTOR", help="between sizes (4)")
    parser.add_argument("-n", type=count, default=10, metavar="ROUNDS", help="over all sizes (10)")
    parser.add_argument(
        "--level", action="append", choices=LEVELS, help="only this kind of link; may come again"
    )
    parser.add_argument("--dry-run", action="store_true", help="measure and show, keep nothing")
    parser.add_argument("--figure", metavar="FILE.svg", help="draw the times and the lines")
    parser.add_argument("--json", metavar="FILE", help="write the times and the lines")


def check(args: argparse.Namespace) -> list[int]:
    """Return the sizes to measure. Raises ConfigError for flags that give fewer than two."""
    if args.f < 2 or args.b * args.f > args.e:
        raise ConfigError(
            f"-b {args.b} -e {args.e} -f {args.f}: a line needs two sizes or more, so a factor "
            "from 2 up and an end at least so many times the beginning"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * args.e > memory:
        raise ConfigError(f"-e {args.e}: four such arrays do not fit into {memory} bytes of memory")
    sizes = [args.b]
    while sizes[-1] * args.f <= args.e:
        sizes.append(sizes[-1] * args.f)
    return sizes


def main(args: argparse.Namespace) -> int:
    """Measure, print, keep; return 0, or 1 if nothing was measured or kept."""
    check(args)
    if not launched():
        return finish(alone(args), args)
    from minidist.comm.mpi import leave, world

    comm = world()
    report = among_ranks(comm, args)
    status = comm.bcast_object(finish(report, args) if comm.rank == 0 else None)
    leave()
    return int(status)


def finish(report: Report, args: argparse.Namespace) -> int:
    """Print what was measured, and put it where it is asked for. One process calls it."""
    print("\n".join(show(report)), flush=True)
    if not report.tables:
        return 1
    try:
        if not args.dry_run:
            print(f"kept in {keep(report)}, where `choose` looks", flush=True)
        if args.json:
            write_json(Path(args.json), report)
        if args.figure:
            write(Path(args.figure), draw(report))
    except MinidistError as error:  # among ranks, too, this is one sentence and no traceback
        print(f"minidist measure-links: {error}", file=sys.stderr)
        return 1
    return 0


def write_json(path: Path, report: Report) -> None:
    """Put the times into a file, whole or not at all."""
    try:
        replace_file(path, json.dumps(report.as_json(), indent=1).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


# --- where the times come from --------------------------------------------------------------------


def alone(args: argparse.Namespace) -> Report:
    """Measure as one process: inside it, and between two ranks that it starts."""
    sizes, report = check(args), Report(adding(args.n))
    wanted = args.level or LEVELS
    if "process" in wanted:
        report.add_table("process", in_process(sizes, args.n))
    if "node" in wanted:
        try:
            report.add_table("node", between_started_ranks(args, sizes))
        except (AssertionError, TimeoutError) as error:
            lines = str(error).strip().splitlines()
            report.missing["node"] = f"two MPI ranks did not do it: {lines[-1]}"
    if "network" in wanted:
        report.missing["network"] = "it takes ranks on two nodes, as in: srun -N 2 -n 2 ..."
    return report


def between_started_ranks(args: argparse.Namespace, sizes: list[int]) -> Table:
    """Return what two MPI ranks measure, as this command under `minidist launch`."""
    patience = 60 + sum(sizes) * args.n * 20 / 50e6  # 20 messages a round, at a tenth of usual
    flags = f"-b {args.b} -e {args.e} -f {args.f} -n {args.n} --level node --dry-run --json".split()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "node.json"
        command = ["minidist", "measure-links", *flags, str(file)]
        processes.mpirun(command, 2, timeout=patience, folder=Path(folder))
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))["tables"]["node"]
    return Table(tuple(found["bytes"]), tuple(found["seconds"]))


def among_ranks(comm: Comm, args: argparse.Namespace, where: Place | None = None) -> Report:
    """Measure as one of many ranks, which runs at ``where``, or really where it runs.

    All ranks call it; the report of rank 0 is whole.
    """
    args = comm.bcast_object(args)
    sizes, wanted = check(args), args.level or LEVELS
    there = pairs(comm.gather_objects(where or place()))
    report = Report(adding(args.n) if comm.rank == 0 else 0.0)
    if "process" in wanted and comm.rank == 0:
        report.add_table("process", in_process(sizes, args.n))
    for name in ("node", "network"):
        if name in wanted and name in there:
            report.add_table(name, between(comm, sizes, args.n, *there[name]))
        elif name in wanted:
            report.missing[name] = {
                "node": "no two ranks are on one node: start two or more on each",
                "network": "all ranks are on one node: start some on another one",
            }[name]
    return report
