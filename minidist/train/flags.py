"""Which flags of `minidist train` go together: every pair, asked of the program itself.

    python -m minidist.train.flags > minidist/train/FLAGS.md

Each flag is given a value that is not its default (each of them where there are few), each pair of
flags becomes a command line, and that is parsed and checked as `minidist train` would. So the table
says what the code does, and a test says that the table is up to date.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from itertools import combinations
from pathlib import Path

from minidist.errors import MinidistError
from minidist.train import command
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.folder import RunFolder

VALUES = {
    "data": "stdlib",
    "context": "64",
    "layers": "2",
    "width": "64",
    "heads": "8",
    "groups": "4",
    "hidden": "64",
    "dropout": "0.1",
    "batch": "8",
    "steps": "10",
    "lr": "0.001",
    "warmup": "0.1",
    "weight_decay": "0.2",
    "clip": "0.5",
    "seed": "2",
    "log_every": "5",
    "validate_every": "5",
    "micro_batches": "2",
    "bucket_mb": "0.5",
    "out": "elsewhere",
    "resume": "RUN",
    "stop_after": "5",
    "save_every": "5",
    "in_process": "2",
    "memory_limit": "1000000000",
}
"""A value for each flag without a list of choices."""

RUNS = "runs"
SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def flags() -> Iterator[tuple[str, str]]:
    """Yield each flag with each value that is tried, as on a command line; "" for a switch."""
    yield "--config", "FILE.toml"
    for field in (f for cls in (TrainConfig, Layout, Session) for f in fields(cls)):
        flag = "--" + field.name.replace("_", "-")
        if field.default is False:
            yield flag, ""
        elif field.metadata["choices"]:
            for choice in field.metadata["choices"]:
                if choice != field.default:
                    yield flag, str(choice)
        else:
            yield flag, VALUES[field.name]


def outcome(parser: argparse.ArgumentParser, words: list[str], folder: Path) -> str:
    """Return "runs", or the name and the text of the error that refuses a command line.

    `folder` holds a run called RUN and a file called FILE.toml.
    """
    places = {"RUN": str(folder / "RUN"), "FILE.toml": str(folder / "FILE.toml")}
    try:
        command.check(parser.parse_args([places.get(word, word) for word in words]))
    except MinidistError as error:
        return f"{type(error).__name__}: {error}".replace(f"{folder}/", "")
    return RUNS


def prepare(folder: Path) -> None:
    """Make what the values of flags name: a run, and a file of options."""
    RunFolder(folder / "RUN").create(TrainConfig(), Layout())
    (folder / "FILE.toml").write_text("tied = true\nmicro_batches = 2\n")


def pairs() -> dict[tuple[str, str], str]:
    """Return the outcome of each pair of two different flags, written as on a command line."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder, parser = Path(name), argparse.ArgumentParser()
        command.configure(parser)
        prepare(folder)
        for one, two in combinations(flags(), 2):
            if one[0] != two[0]:
                words = [word for word in (*one, *two) if word]
                found[written(one), written(two)] = outcome(parser, words, folder)
    return found


def written(flag: tuple[str, str]) -> str:
    """Return a flag as on a command line."""
    return " ".join(flag).strip()


def kind(text: str) -> str:
    """Return an error without the names and values of this pair: one line of the legend."""
    return re.sub(r"the run has \S+ = .*?, not .*?:", "the run has NAME = A, not B:", text)


def page() -> str:
    """Return the table as Markdown: a triangle of symbols, and what they mean."""
    found = pairs()
    names = [written(flag) for flag in flags()]
    kinds = sorted({kind(text) for text in found.values() if text != RUNS})
    symbol = {text: SYMBOLS[number] for number, text in enumerate(kinds)}
    lines = []
    for row, name in enumerate(names):
        cells = [found.get((other, name)) for other in names[:row]]
        marks = ("-" if c is None else "." if c == RUNS else symbol[kind(c)] for c in cells)
        lines.append(f"{row + 1:3} {name:24} {''.join(marks)}\\")
    runs = sum(text == RUNS for text in found.values())
    legend = [f"- `{symbol[text]}` {text}" for text in kinds]
    refused = [f"| `{a}` | `{b}` | {symbol[kind(t)]} |" for (a, b), t in found.items() if t != RUNS]
    return "\n".join(
        [
            "# Which flags of `minidist train` go together",
            "",
            "Written by `python -m minidist.train.flags`, which asks the program; a test compares.",
            f"{len(found)} pairs: {runs} run, {len(found) - runs} are refused before anything is",
            "computed. Column n of a row is the flag of row n: `.` runs, `-` is the same flag",
            "twice, a letter is the error below.",
            "",
            "```text",
            *lines,
            "```",
            "",
            *legend,
            "",
            "| this flag | with this one | |",
            "|---|---|---|",
            *refused,
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(page())
