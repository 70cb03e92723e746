"""What `minidist measure-links` has found: as lines of text, as JSON, as a picture, on disk.

The picture, of a fast and of a slow link: points are measured, lines are latency + bytes /
bandwidth. @ is the knee, at latency * bandwidth bytes, where a message takes twice its latency.

    seconds |  slow  o---o---o-@-o'
            |                   .o'
            |  fast  *---*-@-*'
            +------------------------ bytes
"""

import datetime
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minidist.errors import ConfigError, DataError
from minidist.network.fit import knee
from minidist.network.levels import LEVELS
from minidist.network.measured import Measured, load, save
from minidist.network.survey import Table
from minidist.view.charts import Axis, Mark, Series, lines
from minidist.view.units import readable

WHO = {
    "process": "two ranks inside one process",
    "node": "two processes on one node",
    "network": "two nodes",
}


@dataclass
class Report:
    """Tables of times by kind of link, why others are ``missing``, and seconds to add a byte."""

    add: float
    tables: dict[str, Table] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add_table(self, level: str, table: Table) -> None:
        """Take a table in, or say why no line goes through it."""
        try:
            assert table.link
        except ConfigError as error:
            self.missing[level] = str(error)
        else:
            self.tables[level] = table

    def as_json(self) -> dict[str, Any]:
        """Return it as what `json` can write."""
        return {
            "host": platform.node(),
            "add": self.add,
            "missing": self.missing,
            "tables": {
                name: {
                    "bytes": table.nbytes,
                    "seconds": table.seconds,
                    "latency": table.link.latency,
                    "bandwidth": table.link.bandwidth,
                    "error": table.error,
                }
                for name, table in self.tables.items()
            },
        }


def show(report: Report) -> Iterator[str]:
    """Yield the lines that people read."""
    for name, table in report.tables.items():
        link = table.link
        yield f"{name}: {WHO[name]}"
        yield f"{'bytes':>12} {'us':>12} {'GB/s':>9} {'line, us':>12}"
        for n, t in zip(table.nbytes, table.seconds, strict=True):
            line = link.latency + n / link.bandwidth
            yield f"{n:12} {t * 1e6:12.2f} {n / t / 1e9:9.3f} {line * 1e6:12.2f}"
        yield f"{in_words(table)}; the line is off by {table.error:.0%} at worst"
        yield ""
    for name, why in report.missing.items():
        yield f"{name} was not measured: {why}"
    yield f"adding: {readable(report.add, 'seconds')} a byte of float32"


def in_words(table: Table) -> str:
    """Say latency, bandwidth and knee of a table."""
    link = table.link
    return (
        f"latency {readable(link.latency, 'seconds')}, "
        f"bandwidth {readable(link.bandwidth, 'bytes/s')}, knee {readable(knee(link), 'bytes')}"
    )


def draw(report: Report) -> str:
    """Return the picture as SVG: points, lines and knees on two log axes."""
    series, marks = [], []
    for name, table in report.tables.items():
        link = table.link
        first, last = min(table.nbytes), max(table.nbytes)
        sizes = [first * (last / first) ** (i / 60) for i in range(61)]
        line = [link.latency + n / link.bandwidth for n in sizes]
        series += [
            Series(name, table.nbytes, table.seconds, "points"),
            Series(name, sizes, line, "line"),
        ]
        if first <= knee(link) <= last:
            text = f"{name}: knee {readable(knee(link), 'bytes')}"
            marks.append(Mark(knee(link), 2 * link.latency, text))
    told = "; ".join(f"{name}: {in_words(table)}" for name, table in report.tables.items())
    return lines(
        series,
        x=Axis("size of the message", "bytes"),
        y=Axis("time of one message", "seconds"),
        title=f"One message between two ranks: {', '.join(report.tables)}",
        words="Points are measured, lines are latency + bytes / bandwidth: flat for short "
        f"messages, rising in proportion for long ones. {told}.",
        marks=marks,
    )


def keep(report: Report) -> Path:
    """Put the links on disk, beside those measured earlier of other kinds; return the file.

    A file that cannot be understood is replaced. Raises ConfigError if it cannot be written.
    """
    try:
        before = load()
    except DataError:
        before = None
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = {name: table.link for name, table in report.tables.items()}
    links = {**(before.links if before else {}), **found}
    about = {**(before.about if before else {}), **dict.fromkeys([*found, "add"], now)}
    order = {name: links[name] for name in LEVELS if name in links}
    return save(Measured(order, report.add, about))
