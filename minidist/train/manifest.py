"""The manifest of a checkpoint: what was saved, where it lies, and that it is all there.

    {"format": 1, "step": 500, "samples": 8000, "ranks": 4, "about": {...},
     "files": {"rank-00000.safetensors": "sha256 ...", ...},
     "tensors": {"weights/embed": {"shape": [256, 96], "dtype": "float32", "boxes":
                                   [{"box": [[0, 64], [0, 96]], "file": ..., "key": ...}]}},
     "sha256": "of all the above"}

It is the last file to be written, and names all others by their contents, so files of two saves
cannot be taken for one. Anybody can read it, with no other rank and no array library at hand.
"""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

from minidist.errors import CheckpointError
from minidist.nn import Box
from minidist.train.boxes import common, size

FORMAT = 1


@dataclass(frozen=True)
class Piece:
    """A box of a tensor, and where it is."""

    tensor: str
    """"weights/<parameter>", or another slot in place of "weights"."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    dtype: str
    box: Box
    file: str
    key: str


@dataclass
class Manifest:
    """A whole checkpoint. `samples` is the position in the data: how many have been trained on."""

    step: int
    samples: int
    ranks: int
    about: dict[str, str]
    """What the caller saved as text: configuration, corpus."""
    files: dict[str, str]
    pieces: list[Piece] = field(default_factory=list)

    def tensors(self) -> dict[str, list[Piece]]:
        """Return the pieces of each tensor."""
        found = defaultdict[str, list[Piece]](list)
        for piece in self.pieces:
            found[piece.tensor].append(piece)
        return dict(found)

    def check(self, where: Path) -> None:
        """Raise CheckpointError unless the boxes of each tensor cover it, each element once."""
        for name, pieces in self.tensors().items():
            same = len({(p.shape, p.dtype) for p in pieces}) == 1
            whole = sum(size(p.box) for p in pieces) == prod(pieces[0].shape)
            apart = not any(common(a.box, b.box) for a, b in combinations(pieces, 2))
            fits = all(
                0 <= a < b <= n for p in pieces for (a, b), n in zip(p.box, p.shape, strict=True)
            )
            if not (same and whole and apart and fits):
                raise CheckpointError(
                    f"{where}: the boxes of {name} do not cover its shape {pieces[0].shape} once: "
                    "the checkpoint is damaged, or was written by ranks that did not agree"
                )

    def dump(self) -> bytes:
        """Return the file: equal checkpoints are equal files."""
        content = self._content()
        content["sha256"] = _digest(content)
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()

    def _content(self) -> dict[str, Any]:
        plain = asdict(self)
        del plain["pieces"]
        tensors = {
            name: {
                "shape": pieces[0].shape,
                "dtype": pieces[0].dtype,
                "boxes": [
                    {"box": p.box, "file": p.file, "key": p.key}
                    for p in sorted(pieces, key=lambda p: p.box)
                ],
            }
            for name, pieces in self.tensors().items()
        }
        return {"format": FORMAT, **plain, "tensors": tensors}


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file. Raises CheckpointError if it is missing, cut or altered."""
    try:
        content = json.loads(path.read_bytes())
        if type(content) is not dict:
            raise ValueError("it is no JSON object")
        told = content.pop("sha256")
        if told != _digest(content) or content["format"] != FORMAT:
            raise CheckpointError(f"{path} is damaged: its checksum does not fit; use another copy")
        pieces = [
            Piece(
                name,
                tuple(tensor["shape"]),
                tensor["dtype"],
                tuple((a, b) for a, b in box["box"]),
                box["file"],
                box["key"],
            )
            for name, tensor in content["tensors"].items()
            for box in tensor["boxes"]
        ]
        plain = {k: content[k] for k in ("step", "samples", "ranks", "about", "files")}
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no checkpoint {path.parent}: no {path.name} in it"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or no manifest: {error}") from None
    return Manifest(**plain, pieces=pieces)


def _digest(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
