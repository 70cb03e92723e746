"""Saving a run from all ranks, and going on from it on any number of ranks and at any ZeRO stage.

    checkpoints/step-00000500/           complete: it has its final name
        rank-00000.safetensors           the boxes that rank 0 answers for: weights, m, v
        rank-00001.safetensors
        manifest.json                    names, shapes, boxes, step, position, and every file's hash
    checkpoints/step-00001000.new/       being written, or left by a crash

Each element is written by one rank and no rank gathers anything. Then the ranks tell each other
whether they could write; rank 0 writes the manifest and gives the folder its final name, one step
for the file system; only then the checkpoint before is removed. Whenever a run is killed, there is
the old checkpoint or the new one.

A reader asks which saved boxes meet the boxes it wants, and reads these parts only. Before that all
files are compared with their hashes, each by one rank; a file that does not fit is named on all of
them. Weights are saved as the optimiser keeps them: the float32 masters of half types.

There is no state of a random stream, of a data loader or of a learning-rate scheduler to save: all
three are functions of the step. PyTorch's Distributed Checkpoint has the same two parts, boxes and
a metadata file; Megatron-LM's older format is one file per rank of a fixed cut.
"""

import re
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from minidist.arrays import to_host
from minidist.comm import Comm
from minidist.errors import CheckpointError
from minidist.files import replace_file, sync_folder
from minidist.ops.half import named
from minidist.parallel.zero import Zero
from minidist.train.boxes import boxes_of, common, inside, size
from minidist.train.folder import together
from minidist.train.manifest import Manifest, Piece, read_manifest

MANIFEST = "manifest.json"
NEW = ".new"
NAME = re.compile(r"step-\d+")
BITS = {"bfloat16": np.dtype(np.uint16)}
"""Types that NumPy's safetensors does not know are saved as their bits; the manifest knows."""


def save_checkpoint(
    comm: Comm, folder: Path, sync: Zero, step: int, samples: int, about: dict[str, str]
) -> Path:
    """Write a checkpoint into `folder`, and return its own folder. All ranks call it.

    Each rank writes what it answers for. Raises CheckpointError on all ranks if one could not; the
    checkpoint before is untouched then.
    """
    final = folder / f"step-{step:08}"
    new = final.with_name(final.name + NEW)
    name = f"rank-{comm.rank:05}.safetensors"
    if comm.rank == 0:
        together(comm, lambda: _make(folder, new))
    else:
        together(comm, lambda: None)
    pieces, digest = together(comm, lambda: _write(new / name, sync))
    everyone = comm.gather_objects((pieces, name, digest))

    def commit() -> None:
        if comm.rank == 0:
            manifest = Manifest(step, samples, comm.size, about, {n: d for _, n, d in everyone})
            manifest.pieces = [p for part, _, _ in everyone for p in part]
            manifest.check(new)
            _commit(folder, new, final, manifest)

    together(comm, commit)
    return final


def _make(folder: Path, new: Path) -> None:
    """Make the folder of a save, after clearing what crashes have left."""
    try:
        for leftover in folder.glob(f"step-*{NEW}"):
            shutil.rmtree(leftover)
        new.mkdir(parents=True)
    except OSError as error:
        raise CheckpointError(f"cannot save to {new}: {error}") from error


def _write(path: Path, sync: Zero) -> tuple[list[Piece], str]:
    """Write this rank's file; return what is in it, and its hash."""
    tensors: dict[str, NDArray[Any]] = {}
    pieces = []
    for slot, shard, values in sync.answers():
        tensor, flat, start = f"{slot}/{shard.parameter.name}", to_host(values), 0
        dtype = flat.dtype.name
        bits = flat.view(BITS.get(dtype, flat.dtype))
        for number, box in enumerate(boxes_of(shard)):
            key, stop = f"{tensor}/{number}", start + size(box)
            tensors[key] = bits[start:stop].reshape([b - a for a, b in box])
            pieces.append(Piece(tensor, shard.parameter.shape, dtype, box, path.name, key))
            start = stop
    data = save(tensors)
    try:
        replace_file(path, data)
    except OSError as error:
        raise CheckpointError(f"cannot save {path}: {error}") from error
    return pieces, sha256(data).hexdigest()


def _commit(folder: Path, new: Path, final: Path, manifest: Manifest) -> None:
    """Make a written folder the checkpoint, and remove the others."""
    try:
        replace_file(new / MANIFEST, manifest.dump())
        if final.exists():  # of the same step: its numbers are the same
            shutil.rmtree(final)
        new.rename(final)
        sync_folder(folder)
        for other in folders(folder):
            if other != final:
                shutil.rmtree(other)
    except OSError as error:
        raise CheckpointError(f"cannot save to {final}: {error}") from error


def folders(folder: Path) -> list[Path]:
    """Return the folders of checkpoints, by their names, the newest last."""
    found = [p for p in folder.glob("step-*") if NAME.fullmatch(p.name) and p.is_dir()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))


def newest(folder: Path) -> Path | None:
    """Return the folder of the newest checkpoint that is complete; None if there is none."""
    return next((p for p in reversed(folders(folder)) if (p / MANIFEST).exists()), None)


def load_checkpoint(comm: Comm, path: Path, sync: Zero) -> Manifest:
    """Take weights and optimiser state from a checkpoint's folder. All ranks call it.

    Each rank reads the parts of files that meet what it keeps, and all files once between them to
    compare hashes. Raises CheckpointError on all ranks if the checkpoint is damaged, or is of
    another model; nothing is changed then.
    """
    manifest = together(comm, lambda: read_manifest(path / MANIFEST))

    def examine() -> None:
        manifest.check(path)
        _must_fit(manifest, sync)
        for number, (name, digest) in enumerate(sorted(manifest.files.items())):
            if number % comm.size == comm.rank:
                _verify(path / name, digest)

    together(comm, examine)
    together(comm, lambda: _take(path, manifest, sync))
    return manifest


def _verify(path: Path, digest: str) -> None:
    try:
        with path.open("rb") as file:
            found = sha256()
            while block := file.read(1 << 24):
                found.update(block)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if found.hexdigest() != digest:
        raise CheckpointError(f"{path} is damaged: its checksum does not fit; use another copy")


def _must_fit(manifest: Manifest, sync: Zero) -> None:
    """Raise CheckpointError, naming the first difference, unless it holds this model's tensors."""
    found = {n: f"{list(p[0].shape)} {p[0].dtype}" for n, p in manifest.tensors().items()}
    wanted = {}
    for p in (p for p in sync.parameters() if p.size or p.box != tuple((0, n) for n in p.shape)):
        dtype = sync.how.master if p.trainable else sync.how.dtype
        for slot in ("weights", *(sync.optimizer.slots if p.trainable else ())):
            wanted[f"{slot}/{p.name}"] = f"{list(p.shape)} {dtype.name}"
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise CheckpointError(
                f"the saved tensor {name} is {found.get(name, 'absent')}, the model wants "
                f"{wanted.get(name, 'absent')}: it was saved by another configuration; use the "
                "config.toml beside it"
            )


def _take(path: Path, manifest: Manifest, sync: Zero) -> None:
    """Copy what this rank keeps out of the files."""
    tensors = manifest.tensors()
    for slot, shard, values in sync.kept():
        start = 0
        pieces = tensors[f"{slot}/{shard.parameter.name}"]
        for box in boxes_of(shard):
            stop = start + size(box)
            part = read_box(path, pieces, box).reshape(stop - start)
            values[start:stop] = sync.xp.asarray(part)
            start = stop
    sync.refresh()


def read_box(path: Path, pieces: list[Piece], box: Any) -> NDArray[Any]:
    """Return a box of a saved tensor, reading only the parts of files that meet it. Local."""
    dtype = named(pieces[0].dtype)
    result = np.empty([b - a for a, b in box], dtype)
    for piece in pieces:
        met = common(piece.box, box)
        if met is not None:
            part = _read(path / piece.file, piece.key, inside(met, piece.box))
            result[inside(met, box)] = part.view(dtype) if part.dtype != dtype else part
    return result


def _read(path: Path, key: str, where: tuple[slice, ...]) -> NDArray[Any]:
    try:
        with safe_open(path, framework="np") as file:
            if not where:
                return np.asarray(file.get_tensor(key))
            return np.ascontiguousarray(file.get_slice(key)[where])
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def whole_weights(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the values of each weight of a checkpoint. Local: one rank calls it.

    Raises CheckpointError before the first if a file is damaged.
    """
    manifest = read_manifest(path / MANIFEST)
    manifest.check(path)
    for file, digest in sorted(manifest.files.items()):
        _verify(path / file, digest)
    for name, pieces in sorted(manifest.tensors().items()):
        if name.startswith("weights/"):
            box = tuple((0, n) for n in pieces[0].shape)
            yield name.removeprefix("weights/"), read_box(path, pieces, box)
