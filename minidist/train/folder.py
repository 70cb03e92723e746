"""The folder of a run, and how all ranks come to agree on it.

    runs/2025-03-01_14-05-09/
        config.toml             what is computed; `--resume` reads it
        layout.toml             how it lies on the ranks; flags may change it at `--resume`
        metrics.jsonl           one line per logged step
        checkpoints/            weights, optimiser state and step: to go on from
        model.safetensors       the weights alone: to use
        trace.json              one step as a timeline
        report.html             how it ended: losses, bytes and the timeline as pictures

Rank 0 alone writes, except checkpoints. What can go wrong before the first step (a missing file, a
folder in use) is tried by every rank and told to all, so that either all start or all stop with the
same sentence.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from minidist.comm import Comm
from minidist.errors import CheckpointError, ConfigError, MinidistError
from minidist.files import replace_file
from minidist.options import dump_toml
from minidist.train.config import Layout, TrainConfig

T = TypeVar("T")


class RunFolder:
    """Names of the files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.layout = self.path / "layout.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model.safetensors"
        self.trace = self.path / "trace.json"
        self.report = self.path / "report.html"

    def must_be_free(self) -> None:
        """Raise ConfigError if a run is here, which a new one would destroy."""
        if any(p.exists() for p in (self.config, self.checkpoints, self.model, self.metrics)):
            raise ConfigError(
                f"{self.path} already holds a run: continue it with --resume {self.path}, or give "
                "another --out"
            )

    def must_exist(self) -> None:
        """Raise CheckpointError if no run is here."""
        if not self.config.exists():
            raise CheckpointError(f"{self.path} holds no run: there is no {self.config}")

    def create(self, config: TrainConfig, layout: Layout) -> None:
        """Make the folder and write what the run is. Rank 0 calls it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_file(self.layout, dump_toml(layout).encode())
            replace_file(self.config, dump_toml(config).encode())  # now there is a run
        except OSError as error:
            raise ConfigError(f"cannot write the run to {self.path}: {error}") from error


def folder_of(comm: Comm, name: str) -> RunFolder:
    """Return the folder `name`, or runs/DATE by the clock of rank 0. All ranks call it."""
    return RunFolder(comm.bcast_object(name or time.strftime("runs/%Y-%m-%d_%H-%M-%S")))


def together(comm: Comm, work: Callable[[], T]) -> T:
    """Run `work` on every rank; if it fails on one, raise that error on all. All ranks call it.

    `work` must not communicate. Without this, a rank that cannot read a file would stop, and the
    others wait for it.
    """
    value, error = None, None
    try:
        value = work()
    except MinidistError as failure:
        error = failure
    failures = [e for e in comm.gather_objects(error) if e is not None]
    if failures:
        raise failures[0]
    return value  # type: ignore[return-value]
