"""What a run keeps on the disk to go on from, and to be used: checkpoint and weights.

    checkpoints/step-N/     by all ranks, each its part: see `minidist.train.checkpoint`
    model.safetensors       the weights alone, by rank 0, if it may hold all of them

The second is made from the first, so that a run that is stopped between the two is not lost: the
next sitting makes it up.
"""

import json
import tomllib
from pathlib import Path

from minidist.comm import Comm
from minidist.errors import CheckpointError
from minidist.options import dump_toml
from minidist.parallel.zero import Zero
from minidist.train.checkpoint import (
    folders,
    load_checkpoint,
    newest,
    save_checkpoint,
    whole_weights,
)
from minidist.train.config import TrainConfig
from minidist.train.corpus import Text
from minidist.train.folder import RunFolder, together
from minidist.train.precision import LossScale
from minidist.train.weights import save_weights, step_of


class Saves:
    """Saves one run and goes on from it. All ranks build it alike."""

    def __init__(
        self,
        comm: Comm,
        config: TrainConfig,
        folder: RunFolder,
        text: Text,
        sync: Zero,
        loss_scale: LossScale,
    ) -> None:
        self.comm, self.config, self.folder, self.text = comm, config, folder, text
        self.sync, self.loss_scale = sync, loss_scale

    def save(self, step: int) -> None:
        """Write the checkpoint, each rank its part, and the weights alone. All ranks call it.

        The weights as one file take the whole model in the memory of rank 0: under a limit that is
        lower, there is no such file, and `minidist generate` reads the checkpoint.
        """
        about = {"corpus": self.text.hash, "config": dump_toml(self.config)}
        notes = {**about, "loss_scale": json.dumps(self.loss_scale.state())}
        samples = step * self.config.batch
        path = save_checkpoint(self.comm, self.folder.checkpoints, self.sync, step, samples, notes)
        together(self.comm, lambda: self._save_alone(path, step, about))

    def load(self) -> int | None:
        """Take weights, optimiser state and loss scale from the newest checkpoint. All ranks call.

        Returns its step, or None if the run has never saved. Raises CheckpointError on all ranks if
        it is gone or damaged, or of another text or configuration.
        """
        path = together(self.comm, self._find)
        if path is None:
            return None
        saved = load_checkpoint(self.comm, path, self.sync)
        self._must_be_the_same(saved.about)
        self.loss_scale.restore(json.loads(saved.about["loss_scale"]))
        about = {name: saved.about[name] for name in ("corpus", "config")}
        together(self.comm, lambda: self._save_alone(path, saved.step, about))
        return saved.step

    @property
    def whole_fits(self) -> bool:
        """Whether this rank may hold all weights beside its state: once read, once as a file."""
        elements = sum(b.layout.size for b in self.sync.buckets)
        whole, ledger = 2 * elements * self.sync.how.master.itemsize, self.sync.ledger
        return not ledger.limit or ledger.total + whole <= ledger.limit

    def _save_alone(self, path: Path, step: int, about: dict[str, str]) -> None:
        """Write the weights of a checkpoint as one file, unless they are there already."""
        if self.comm.rank != 0:
            return
        if not self.whole_fits:
            self.folder.model.unlink(missing_ok=True)  # it would be of an earlier step
        elif step_of(self.folder.model) != step:
            save_weights(self.folder.model, step, dict(whole_weights(path)), about)

    def _find(self) -> Path | None:
        """Return the newest checkpoint, or None if the run never saved; raise if it is gone."""
        path = newest(self.folder.checkpoints)
        left = [p for p in (self.folder.model, *folders(self.folder.checkpoints)) if p.exists()]
        if path is None and left:
            raise CheckpointError(
                f"there is no whole checkpoint in {self.folder.checkpoints}, though the run has "
                f"saved: only {left[-1]} is left; put the files back, or begin with another --out"
            )
        return path

    def _must_be_the_same(self, about: dict[str, str]) -> None:
        """Raise CheckpointError unless the checkpoint is of this text and this configuration."""
        if about.get("corpus") != self.text.hash:
            raise CheckpointError(
                f"{self.folder.path} was trained on another text than {self.text}: give back the "
                "file that --data named"
            )
        saved, ours = tomllib.loads(about["config"]), tomllib.loads(dump_toml(self.config))
        for name in sorted((saved.keys() & ours.keys()) - {"data"}):  # which may have moved
            if saved[name] != ours[name]:
                raise CheckpointError(
                    f"{self.folder.config} has {name} = {ours[name]!r}, but the checkpoint was "
                    f"saved with {saved[name]!r}: give back the file of this run"
                )
