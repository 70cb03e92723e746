"""Text from a model, one byte after the other, the plain way.

For each new byte the whole window goes through the model again, and only the last row of the result
is used. A serving engine keeps keys and values instead, so that a byte costs one row; the text is
the same.

Which byte is drawn is a function of (seed, number of the byte), not of a stream, so the same call
gives the same text on every machine and any number of ranks.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidist.arrays import to_host
from minidist.errors import ConfigError
from minidist.nn import At
from minidist.ops.half import up
from minidist.ops.random import uniform


def continue_text(
    units: Sequence[Any],
    prompt: bytes,
    *,
    context: int,
    tokens: int,
    temperature: float = 0.8,
    top_k: int = 0,
    seed: int = 0,
    xp: Any = np,
) -> Iterator[int]:
    """Yield `tokens` bytes that follow `prompt`. Local: one rank calls it.

    `units`: a decoder that ends in logits (B, T, V). It reads the last `context` bytes, which is
    what it was trained on; rotary positions are relative, so the window may slide.
    """
    if tokens < 0:
        raise ConfigError(f"{tokens} tokens cannot be added: give 0 or more")
    text = bytearray(prompt or b"\n")
    for number in range(tokens):
        window = np.frombuffer(bytes(text[-context:]), dtype=np.uint8).astype(np.int64)
        at = At(0, False, xp.zeros(1, dtype=xp.int64), xp.arange(len(window)))
        x = xp.asarray(window[None, :])
        for unit in units:
            x, _ = unit.forward(x, at)
        drawn = float(uniform(seed, "sample", number))
        byte = choose(to_host(up(x[0, -1])), drawn, temperature, top_k)
        text.append(byte)
        yield byte


def choose(logits: NDArray[Any], drawn: float, temperature: float, top_k: int = 0) -> int:
    """Return the token whose share of the probability contains `drawn`, a number in [0, 1).

    Temperature 0 takes the most likely token. `top_k` leaves only the k most likely (0: all).
    """
    if not 0 <= temperature < inf or top_k < 0:
        raise ConfigError(f"temperature {temperature}, top-k {top_k}: must be numbers from 0 on")
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore"):  # to -inf, which has no share
        scaled = (logits.astype(np.float64) - logits.max()) / temperature
    if 0 < top_k < scaled.size:
        scaled[np.argsort(-scaled, kind="stable")[top_k:]] = -np.inf
    total = np.exp(scaled).cumsum()
    return int(np.searchsorted(total, drawn * total[-1], side="right"))
