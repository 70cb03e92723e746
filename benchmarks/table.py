"""Benchmark results in the format of NVIDIA's nccl-tests, so that one script reads both.

Data lines have the columns of nccl-tests; lines that begin with # are comments. Behind the known
columns comes what a noisy machine needs: nine tenths of the samples are above `low` and below
`high`, and the variant, since here several are measured in one run.

    algbw = bytes / time            what the caller sees
    busbw = algbw x factor          what one link carries, independent of the number of ranks;
                                    factor 2 (n - 1) / n for an all-reduce, 1 for a broadcast or
                                    reduction, (n - 1) / n where only pieces travel

nccl-tests averages the time over the ranks. Here it is that of the slowest rank.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from timing import Times

import minidist
from minidist.errors import ConfigError
from minidist.files import replace_file

HEADER = """\
#{space:56}{out:^36}{inplace:^36}
# {size:>11}  {count:>12}  {type:>8}  {redop:>6}  {root:>6}{cell}{cell}  low-high (us)
# {b:>11}  {e:>12}  {_:>8}  {_:>6}  {_:>6}{unit}{unit}  out-of-place  in-place  variant"""


@dataclass
class Cell:
    """One measurement: seconds, GB/s, and the number of wrong elements (None: unchecked).

    ``speed`` is that relative to MPI's own, larger is faster; None where there is nothing to
    compare.
    """

    times: Times
    algbw: float
    busbw: float
    wrong: int | None
    speed: Times | None = None

    @classmethod
    def of(cls, times: Times, nbytes: int, factor: float, wrong: int | None) -> "Cell":
        """Return the measurement of an operation on `nbytes` bytes; see the module for `factor`."""
        algbw = nbytes / times.median / 1e9
        return cls(times, algbw, algbw * factor, wrong)


@dataclass
class Row:
    """What one variant does at one size; a cell is None where there is no such mode."""

    collective: str
    variant: str
    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Cell | None
    in_place: Cell | None

    def cells(self) -> list[Cell]:
        """Return those cells that there are."""
        return [cell for cell in (self.out_of_place, self.in_place) if cell]


def header() -> str:
    """Return the three lines above the data."""
    cell = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    unit = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
    words = {"size": "size", "count": "count", "type": "type", "redop": "redop", "root": "root"}
    names = {"space": "", "out": "out-of-place", "inplace": "in-place", "_": ""}
    return HEADER.format(**words, **names, b="(B)", e="(elements)", cell=cell, unit=unit)


def line(row: Row) -> str:
    """Return the data line of a row."""
    start = f"{row.size:12}  {row.count:12}  {row.type:>8}  {row.redop:>6}  {row.root:>6}"
    cells = (row.out_of_place, row.in_place)
    ranges = "  ".join(f"{_range(cell):>13}" for cell in cells)
    return f"{start}{''.join(map(_columns, cells))}  {ranges}  {row.variant}"


def _columns(cell: Cell | None) -> str:
    if cell is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    wrong = "N/A" if cell.wrong is None else f"{cell.wrong:g}"
    time = fit(cell.times.median * 1e6, 7)
    return f"  {time:>7}  {fit(cell.algbw, 6):>6}  {fit(cell.busbw, 6):>6}  {wrong:>6}"


def _range(cell: Cell | None) -> str:
    if cell is None:
        return "N/A"
    return f"{fit(cell.times.low * 1e6, 6)}-{fit(cell.times.high * 1e6, 6)}"


def fit(x: float, width: int) -> str:
    """Write a number with as many decimals, two at most, as the column holds."""
    texts = [f"{x:.2f}", f"{x:.1f}", f"{x:.0f}"]
    return next((text for text in texts if len(text) <= width), f"{x:.1e}")


def quotients(rows: list[Row]) -> Iterator[str]:
    """Say how fast each variant is beside MPI's own: the quotients of each round of samples."""
    compared = [row for row in rows if any(cell.speed for cell in row.cells())]
    if compared:
        yield "# speed, MPI's own = 1 (the larger, the faster): median and low-high of each round"
        yield f"# {'size':>11}  {'out-of-place':>22}  {'in-place':>22}  variant"
    for row in compared:
        cells = "  ".join(f"{_speed(cell):>22}" for cell in (row.out_of_place, row.in_place))
        yield f"# {row.size:>11}  {cells}  {row.variant}"


def _speed(cell: Cell | None) -> str:
    if cell is None or cell.speed is None:
        return "N/A"
    return f"{cell.speed.median:.2f} {f'{cell.speed.low:.2f}-{cell.speed.high:.2f}':>12}"


class Parser(argparse.ArgumentParser):
    """Raises what is wrong with the flags, so that one rank says it and not all."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def number(text: str) -> int:
    """Read a size: 8, 64K, 16M, 1G (powers of 1024)."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    try:
        found = int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, as in 8, 64K or 16M")
    return found


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is not less."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} up")
        return int(text)

    return read


def sizes(first: int, last: int, factor: int) -> list[int]:
    """Return first, first x factor, ... up to last."""
    if first > last:
        raise ConfigError(f"-b {first} -e {last}: the smallest size is beyond the largest")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * last > memory:
        raise ConfigError(f"-e {last}: four such arrays do not fit into {memory} bytes of memory")
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def circumstances(**more: Any) -> dict[str, Any]:
    """Return what a later reader must know about a run: command, commit, machine, versions."""
    return {
        "command": " ".join(sys.argv),
        "commit": _commit(),
        "host": platform.node(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "minidist": minidist.__version__,
        **more,
    }


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git here
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def json_file(text: str) -> str:
    """Read the name of a file that can be written: said before hours of measuring, not after."""
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: give a file in a folder of yours")
    return text


def write_json(path: str, about: dict[str, Any], rows: list[Any]) -> None:
    """Write one JSON object: the circumstances and all rows. Plots read this, never the text."""
    whole = {**about, "rows": [asdict(row) for row in rows]}
    replace_file(Path(path), (json.dumps(whole, indent=1) + "\n").encode())
