"""What simple predictors and file compressors make of the same text: the yardstick for a loss.

A loss of L nats per byte means that the text could be stored in L / ln 2 bits per byte (arithmetic
coding, Shannon 1948), so models and compressors can be compared. Two columns:

    whole text      the whole corpus, described by itself: its own table, or the compressed size
    last 10 %       the validation bytes, when the training bytes are known: a table counted on the
                    training part, or  size(compress(all)) - size(compress(training part))

The second is the task that the model is given. Tables of the second column add one to each count,
so that an unseen pair of bytes is not impossible. The tables are measured by their entropy, without
the cost of storing them, which flatters them a little in the first column.
"""

import lzma
import zlib
from collections.abc import Callable
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COMPRESSED_AT_MOST = 8 << 20
"""Compressors see the last so many bytes of a longer text: xz needs a second for a megabyte."""


class Baseline(NamedTuple):
    """Nats per byte of one predictor."""

    name: str
    whole: float
    validation: float


def baselines(text: bytes, train: int) -> list[Baseline]:
    """Return the nats per byte of five predictors; `train` bytes are the training part."""
    data = np.frombuffer(text, dtype=np.uint8).astype(np.int64)
    pairs = 256 * data[:-1] + data[1:]
    return [
        Baseline("uniform over 256", log(256), log(256)),
        Baseline("byte frequencies", *_table(data, 1, train)),
        Baseline("previous byte", *_table(pairs, 256, train - 1)),
        Baseline("zlib -9", *_compressed(text, train, lambda b: zlib.compress(b, 9))),
        Baseline("xz", *_compressed(text, train, lzma.compress)),
    ]


def _table(cells: NDArray[np.int64], contexts: int, train: int) -> tuple[float, float]:
    """Nats per byte of a table of counts (context, byte); `cells` is 256 * context + byte."""

    def count(part: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(part, minlength=contexts * 256).reshape(contexts, 256)

    return _nats(count(cells), count(cells)), _nats(count(cells[train:]), count(cells[:train]) + 1)


def _nats(seen: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
    """Mean cost of what was `seen`, if probabilities are `counts` over the sum of their row."""
    used = seen > 0
    rows = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
    return float((seen[used] * np.log(rows[used] / counts[used])).sum() / max(1, seen.sum()))


def _compressed(text: bytes, train: int, compress: Callable[[bytes], bytes]) -> tuple[float, float]:
    """Nats per byte of the compressed text, and of what the validation part adds to it."""
    skip = max(0, len(text) - COMPRESSED_AT_MOST)
    all_of_it, before = text[skip:], text[min(skip, train) : train]
    size = len(compress(all_of_it))
    added = size - len(compress(before))
    nats = 8 * log(2)
    return nats * size / len(all_of_it), nats * added / max(1, len(text) - train)
