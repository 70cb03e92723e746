"""Random numbers as a function, not a stream.

A stream (`rng.normal()`) gives the next number, so every draw depends on all draws before it: one
rank that draws once more than the others has other dropout masks for ever. Here a number is a
function of *what it is for*. Any rank, in any order, after any restart, computes the same one:

    bits(seed, step, "blocks.3.mlp.drop", sample, position, channel)  ->  64 random bits

splitmix64 is a generator whose i-th output is a short function of its seed and i. Each key picks
that output of the generator which the keys before it have seeded: a path through a tree.

The arithmetic is on integers only. NumPy, CuPy and a CUDA kernel therefore agree in every bit.
Dropout compares bits with an integer threshold, so no rounding can make two backends disagree about
one element.

Keys broadcast against each other like array operands. Put the narrow keys first and the widest
(the channel) last: each key costs one pass over the broadcast shape *so far*, so the expensive pass
over the full shape happens once.

Real systems: JAX splits keys and counts with Threefry; cuRAND and PyTorch use Philox with an offset
that the framework must carry along and restore from checkpoints.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from hashlib import blake2b
from math import pi
from typing import TypeAlias

import numpy as np

from minidist.arrays import Array, namespace
from minidist.errors import ConfigError

Key: TypeAlias = "int | str | Array"

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FINALISER = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
LAST_SHIFT = np.uint64(31)


def bits(*keys: Key) -> Array:
    """Return 64 random bits, as uint64, for each combination of keys.

    A key is an integer, a name, or an integer array; arrays broadcast. An integer and an array that
    holds it give the same bits.
    """
    word: Array = np.uint64(0)
    for key in keys:
        word = _output(word, _number(key))
    return word


def uniform(*keys: Key) -> Array:
    """Return float64 numbers in [0, 1), with 53 random bits each."""
    return (bits(*keys) >> np.uint64(11)) * 2.0**-53


def normal(*keys: Key) -> Array:
    """Return standard normal float64 numbers (Box and Muller, 1958)."""
    radius, turn = uniform(*keys, 0), uniform(*keys, 1)
    xp = namespace(radius)
    return xp.sqrt(-2.0 * xp.log1p(-radius)) * xp.cos(2.0 * pi * turn)


LEVELS = 2**16
"""Different values of the bits that decide about one channel."""


def keep(rate: float, channels: int, *keys: Key) -> Array:
    """Return a bool array (..., channels) that is False with probability ``rate``: a dropout mask.

    The leading shape is the broadcast shape of the keys. Four channels share a word: channel c has
    the 16 bits from bit 16 (c mod 4) on of word number c div 4, and is dropped if they are below
    2^16 rate. So a rate counts down to a multiple of 2^-16.
    """
    row = bits(*keys)[..., None]
    words = _output(row, namespace(row).arange(-(-channels // 4)).astype(np.uint64))
    return words.view(np.uint16)[..., :channels] >= np.uint16(threshold(rate))


def threshold(rate: float) -> int:
    """Return below which 16 bits, as a number, an element is dropped."""
    if not 0 <= rate < 1:
        raise ConfigError(f"dropout rate {rate} is not in [0, 1); 0 turns dropout off")
    return int(rate * LEVELS)


def kept(rate: float) -> float:
    """Return the share of elements that `keep` leaves, which is what a mask must be divided by."""
    return 1.0 - threshold(rate) / LEVELS


def _output(seed: Array, number: Array) -> Array:
    """Return that output, counted from 0, of the splitmix64 generator with that seed."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        word = seed + (number * GOLDEN + GOLDEN)
        for shift, factor in FINALISER:
            word ^= word >> shift
            word *= factor
        return word ^ (word >> LAST_SHIFT)


def _number(key: Key) -> Array:
    """Return the key as uint64; a name as a hash that is the same in every process."""
    if isinstance(key, str):
        return np.uint64(int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little"))
    if isinstance(key, (int, np.integer)):
        return np.uint64(int(key) % 2**64)
    return key.astype(np.uint64)
