"""Random numbers as a function, not a stream.

A stream (`rng.normal()`) gives the next number, so every draw depends on all draws before it: one
rank that draws once more than the others has other dropout masks for ever. Here a number is a
function of *what it is for*. Any rank, in any order, after any restart, computes the same one:

    bits(seed, step, "blocks.3.drop1", sample, position, channel)  ->  64 random bits

The function is a chain of splitmix64 finalisers, one a key, in integer arithmetic modulo 2^64 only.
NumPy, CuPy and a CUDA kernel therefore agree in every bit. Dropout compares the bits with an
integer threshold, so no rounding can make two backends disagree about one element.

Keys broadcast against each other like array operands. Put the narrow keys first and the widest
(the channel) last: each key costs one pass over the broadcast shape *so far*, so the expensive pass
over the full shape happens once.

Real systems: JAX splits keys and counts with Threefry; cuRAND and PyTorch use Philox with an offset
that the framework must carry along and restore in checkpoints.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (the
finaliser is David Stafford's variant 13).
"""

from hashlib import blake2b
from math import pi
from typing import TypeAlias

import numpy as np

from minidist.errors import ConfigError
from minidist.ops.arrays import Array, namespace

Key: TypeAlias = "int | str | Array"

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
STAFFORD = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def bits(*keys: Key) -> Array:
    """Return 64 random bits for each combination of keys.

    A key is an integer, a name, or an integer array; arrays broadcast. The result is a uint64 array
    of the broadcast shape, or a plain int if no key is an array. An integer key and an array that
    holds the same integer give the same bits.
    """
    word: Array = 0
    for key in keys:
        word = _avalanche(word ^ _times(_number(key), GOLDEN))
    return word


def uniform(*keys: Key) -> Array:
    """Return float64 numbers in [0, 1), with 53 random bits each."""
    return (bits(*keys) >> 11) * 2.0**-53


def normal(*keys: Key) -> Array:
    """Return standard normal float64 numbers (Box and Muller, 1958). One key must be an array."""
    radius, turn = uniform(*keys, 0), uniform(*keys, 1)
    xp = namespace(radius)
    return xp.sqrt(-2.0 * xp.log1p(-radius)) * xp.cos(2.0 * pi * turn)


def keep(rate: float, *keys: Key) -> Array:
    """Return a bool array that is False with probability ``rate``: the dropout mask."""
    if not 0 <= rate < 1:
        raise ConfigError(f"dropout: rate {rate} is not in [0, 1); 0 turns dropout off")
    return bits(*keys) >= np.uint64(int(rate * WORD))


def _number(key: Key) -> Array:
    """Return the key as an int in [0, 2^64) or as a uint64 array."""
    if isinstance(key, str):
        return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")
    if isinstance(key, (int, np.integer)):
        return int(key) % WORD
    return key.astype(np.uint64)


def _avalanche(word: Array) -> Array:
    """Make every bit of the result depend on every bit of ``word``; a bijection."""
    for shift, factor in STAFFORD:
        word = _times(word ^ (word >> shift), factor)
    return word ^ (word >> 31)


def _times(word: Array, factor: int) -> Array:
    """Multiply modulo 2^64: uint64 arrays wrap by themselves, Python's integers do not."""
    return word * factor % WORD if isinstance(word, int) else word * np.uint64(factor)
