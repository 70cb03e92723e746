"""What a run reports while it goes: one JSON object a line for programs, one plain line for people.

`metrics.jsonl` can be read with `grep`, `jq` or pandas, and a run that was killed leaves all lines
but the last whole. The lines for people have fixed columns and no cursor tricks, since under
`mpirun` and in a batch log standard output is not a terminal.
"""

import json
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path

from minidist.errors import CheckpointError
from minidist.files import replace_file


@dataclass(frozen=True)
class Metrics:
    """One logged step. Losses are nats per byte; `val_loss` is None where it was not measured."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Of this step's global batch, before its update."""
    val_loss: float | None
    tokens_per_s: float
    """Of all ranks together, since the line before."""
    bytes_sent: int
    """By rank 0, in this step."""
    grad_norm: float
    """Of all gradients together, before clipping."""


HEADER = "      step    loss  val loss  tokens/s  sent/step  grad norm"


def line(row: Metrics) -> str:
    """Return the metrics in fixed columns, under `HEADER`."""
    val = f"{row.val_loss:8.4f}" if row.val_loss is not None else f"{'':8}"
    sent = f"{row.bytes_sent / 1e6:6.2f} MB"
    return (
        f"{row.step:10d}{row.loss:8.4f}  {val}{row.tokens_per_s:10.0f}  {sent}{row.grad_norm:11.4f}"
    )


def append(path: Path, row: Metrics) -> None:
    """Add one line to the file. Rank 0 calls it."""
    with path.open("a") as file:
        file.write(_text(row))


def _text(row: Metrics) -> str:
    """A row as JSON, which knows no infinity: the norm of a skipped step is null."""
    norm = row.grad_norm if isfinite(row.grad_norm) else None
    return json.dumps({**asdict(row), "grad_norm": norm}, allow_nan=False) + "\n"


def _row(text: str) -> Metrics:
    values = json.loads(text)
    norm = inf if values["grad_norm"] is None else values["grad_norm"]
    row = Metrics(**{**values, "grad_norm": norm})
    numbers = [v for name, v in asdict(row).items() if name != "val_loss" or v is not None]
    if not all(isinstance(v, int | float) for v in numbers):
        raise ValueError(f"{text} has a value that is no number")
    return row


def read(path: Path) -> list[Metrics]:
    """Return the rows of the file; a last line that a kill cut short is left out.

    Raises CheckpointError, naming the line, if one is no row.
    """
    rows: list[Metrics] = []
    try:
        for text in path.read_bytes().decode().split("\n")[:-1] if path.exists() else []:
            rows.append(_row(text))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}, line {len(rows) + 1}, is damaged: {error}; it is only a log: move it away"
        ) from None
    return rows


def cut_after(path: Path, step: int) -> None:
    """Drop the rows beyond `step`, which a resumed run will write again. Rank 0 calls it.

    Raises CheckpointError if the file is damaged or cannot be written.
    """
    rows = [row for row in read(path) if row.step <= step]
    text = "".join(map(_text, rows))
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error}") from error
