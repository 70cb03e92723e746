"""The weights of a model in one file that is whole or absent, and reading it back with suspicion.

    model.safetensors      <name>   in the shape of the whole parameter
                           metadata: step, configuration, corpus, checksum of it all, as one JSON
                           text, so that equal weights are equal files

The format is safetensors (8 bytes of length, a JSON header, raw bytes), which every framework
reads. Loading it runs no code; loading a pickle does. The rules for a file: write beside it, flush
to the disk, rename; check before use.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from minidist.errors import CheckpointError
from minidist.files import replace_file

Tensors = dict[str, NDArray[Any]]

CHECKSUM = "sha256"
NOTES = "minidist"


class Weights(NamedTuple):
    """The contents of a file of weights."""

    step: int
    """Updates done."""
    tensors: Tensors
    about: dict[str, str]
    """What the caller saved as text: configuration, corpus."""


def check_same_shapes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise CheckpointError, naming the first difference, unless names, shapes and dtypes agree."""
    for name in sorted(found.keys() | wanted.keys()):
        a, b = (
            f"{t[name].shape} {t[name].dtype}" if name in t else "absent" for t in (found, wanted)
        )
        if a != b:
            raise CheckpointError(
                f"the saved tensor {name} is {a}, the model wants {b}: it was saved by another "
                "configuration; use the config.toml beside it"
            )


def save_weights(
    path: Path, step: int, tensors: Tensors, about: Mapping[str, str] | None = None
) -> None:
    """Write a file of weights; a crash at any moment leaves the one before. One rank calls it."""
    notes = {**(about or {}), "step": str(step)}
    notes[CHECKSUM] = _checksum(tensors, notes)
    metadata = {NOTES: json.dumps(notes, sort_keys=True)}
    whole = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    try:
        replace_file(path, save(whole, metadata))
    except OSError as error:
        raise CheckpointError(f"cannot save {path}: {error}") from error


def step_of(path: Path) -> int | None:
    """Return the step of a file of weights, by its header alone; None if there is no whole file."""
    try:
        with safe_open(path, framework="np") as file:
            return int(json.loads((file.metadata() or {}).get(NOTES, "{}"))["step"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def load_weights(path: Path) -> Weights:
    """Read a file of weights. Raises CheckpointError if it is missing, cut short or altered."""
    try:
        with safe_open(path, framework="np") as file:
            about = json.loads((file.metadata() or {}).get(NOTES, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no {path}: nothing was saved there") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint: {error}") from error
    if type(about) is not dict or about.pop(CHECKSUM, None) != _checksum(tensors, about):
        raise CheckpointError(f"{path} is damaged: its checksum does not fit; use another copy")
    return Weights(int(about.pop("step")), tensors, about)


def _checksum(tensors: Tensors, notes: Mapping[str, str]) -> str:
    """Over all that is read back: a flipped bit in the step is as bad as one in a weight."""
    digest = sha256(repr(sorted(notes.items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()
