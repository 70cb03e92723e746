"""Text as bytes, and the window of it that a sample number stands for.

    bytes   |--------------- training, first 90 % ---------------|- validation, last 10 % -|
    windows |shift|  0  |  1  |  2  | ...                         |  0  |  1  |  2  |  3  |

A sample is a window of `length` bytes; the labels are the same bytes, one further on. Sample
numbers are global and grow for ever: the number says which epoch and, through a keyed permutation
(`minidist.train.order`), which window. So the batch of step k is the numbers k*B to (k+1)*B, on any
number of ranks, and a resumed run needs no state but its step. Each epoch also shifts all borders
by a few bytes, so that a byte does not always stand at the same place of its window.

The validation part is cut by position, not at random: pieces of one scene on both sides would let a
model be praised for remembering. Its windows cover every byte but the first once; the end of the
last window has no bytes, and carries the label -1, "ignored".

Real systems read token ids that a tokenizer wrote to disk, and memory-map them. The arithmetic is
the same.
"""

import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidist.arrays import Array, asarray_like, to_host
from minidist.errors import DataError
from minidist.nn import At
from minidist.ops.random import bits
from minidist.train.order import permute

VALIDATION_SHARE = 10
"""One byte in this many, at the end, is for validation."""

IGNORED = -1


@dataclass(frozen=True)
class Text:
    """A named piece of text, as bytes."""

    name: str
    data: bytes

    @property
    def hash(self) -> str:
        """SHA-256 in hexadecimal: what a resumed run compares."""
        return sha256(self.data).hexdigest()

    def __str__(self) -> str:
        return f"corpus {self.name}  {len(self.data):,} bytes  sha256 {self.hash[:12]}"


def read_text(source: str = "") -> Text:
    """Read the corpus that `--data` names. Every rank reads it; nothing is sent.

    Empty: the eight plays inside the package. "stdlib": the sources of this Python interpreter,
    which differ between versions. Else a file, or a folder whose *.txt and *.py files are joined in
    sorted order. Raises DataError if there is nothing to read.
    """
    if not source:
        return Text("shakespeare", (files("minidist") / "data" / "shakespeare.txt").read_bytes())
    if source == "stdlib":
        return _joined(source, Path(sysconfig.get_path("stdlib")).glob("*.py"))
    path = Path(source)
    if path.is_dir():
        return _joined(path.name, [*path.rglob("*.txt"), *path.rglob("*.py")])
    return _joined(path.name, [path])


def _joined(name: str, paths: Iterable[Path]) -> Text:
    found = sorted(paths)
    if not found:
        raise DataError(f"--data {name}: no *.txt or *.py file in this folder; name another")
    try:
        data = b"".join(path.read_bytes() for path in found)
    except (OSError, ValueError) as error:
        raise DataError(f"--data {name}: cannot be read: {error}") from error
    if not data:
        raise DataError(f"--data {name}: has no bytes; name a file with text")
    return Text(name, data)


class Corpus:
    """The training and the validation windows of a text. All ranks hold the whole of it.

    `tokens` and `labels` read `at.samples` (B,) and `at.positions` (T,), and return integer arrays
    (B, T) where these live. With `at.train` the samples are numbers of training samples, else of
    validation windows.
    """

    def __init__(self, text: Text, length: int, seed: int) -> None:
        data = np.frombuffer(text.data, dtype=np.uint8)
        cut = len(data) - len(data) // VALIDATION_SHARE
        self.train, self.validation = data[:cut], data[cut:]
        self.length, self.seed = length, seed
        if len(self.train) < length + 1 or len(self.validation) < 2:
            raise DataError(
                f"corpus {text.name} has {len(data)} bytes, too few for windows of {length}: need "
                f"{length + 1} in the first 90 % and 2 in the last 10 %; lower --context or give "
                "more text"
            )
        self.windows = max(1, (len(self.train) - 1) // length - 1)
        """Training samples in one epoch. One window less than would fit, to have room to shift."""
        self.validation_windows = -(-(len(self.validation) - 1) // length)

    def tokens(self, at: At) -> Array:
        """Return the bytes (B, T) that the model reads."""
        return self._gather(at, 0, 0)

    def labels(self, at: At) -> Array:
        """Return the bytes (B, T) to be predicted; -1 beyond the end of the validation part."""
        return self._gather(at, 1, IGNORED)

    def starts(self, samples: Any) -> NDArray[np.int64]:
        """Return where the windows of these training samples start, as offsets into the text."""
        epoch, index = np.divmod(np.asarray(samples, dtype=np.int64), self.windows)
        start = np.empty(epoch.shape, dtype=np.int64)
        for e in np.unique(epoch).tolist():
            here = epoch == e
            window = permute(index[here], self.windows, self.seed, "order", e)
            start[here] = window * self.length + self._shift(e)
        return start

    def _shift(self, epoch: int) -> int:
        """By how many bytes all windows of an epoch are moved: under one window."""
        room = min(self.length, len(self.train) - self.windows * self.length)
        return int(bits(self.seed, "shift", epoch)) % room

    def _gather(self, at: At, ahead: int, missing: int) -> Array:
        samples, positions = to_host(at.samples), to_host(at.positions)
        text = self.train if at.train else self.validation
        start = self.starts(samples) if at.train else samples.astype(np.int64) * self.length
        where = start[:, None] + positions[None, :] + ahead
        inside = where < len(text)
        values = text[np.where(inside, where, 0)].astype(np.int64)
        return asarray_like(np.where(inside, values, missing), at.samples)
