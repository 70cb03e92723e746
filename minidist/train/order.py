"""A shuffle that nobody has to store: where does item `index` go, for any index, in any order.

A Feistel network turns any function into a permutation of the numbers with 2w bits, because each
round changes one half by a function of the other half, and can therefore be undone:

    left    right                left'  = right
      |    /  |                  right' = left ^ f(key, round, right)
      |   f   |
      xor<+   |                  Four rounds look random (Luby and Rackoff, "How to construct
      |       |                  pseudorandom permutations", SIAM J. Comput. 1988).
      swap halves

For n items, take the smallest such set that holds n numbers (at most 4n). A result that is n or
more goes through the network again until it lands below n: "cycle walking" (Black and Rogaway,
"Ciphers with arbitrary finite domains", 2002). It stays a permutation, since it follows one cycle
of the larger permutation from one small number to the next.

A training job uses it as a random-access sampler: a rank that joins, resumes or skips ahead asks
for sample 1,000,000 without drawing the ones before. Real loaders often shuffle a list of indices
instead, which every rank must build alike and a resumed job must build again.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidist.errors import ConfigError
from minidist.ops.random import bits

ROUNDS = 4


def permute(index: Any, n: int, *key: int | str) -> NDArray[np.int64]:
    """Return the images of `index` (any shape, values 0..n-1) under the permutation named by `key`.

    Local: every rank gets the same answer without a message. Raises ConfigError for an index
    outside 0..n-1.
    """
    x = np.array(index, dtype=np.uint64)
    if x.size and int(x.max()) >= n:
        raise ConfigError(f"cannot permute index {int(x.max())} of {n} items: use 0..{n - 1}")
    outside = np.ones(x.shape, dtype=bool)
    while outside.any():
        x[outside] = _network(x[outside], _half_bits(n), key)
        outside = x >= n
    return x.astype(np.int64)


def _half_bits(n: int) -> int:
    """The number w of bits in each half, so that 2w bits hold 0..n-1."""
    return max(1, ((n - 1).bit_length() + 1) // 2)


def _network(x: NDArray[np.uint64], w: int, key: tuple[int | str, ...]) -> NDArray[np.uint64]:
    """Apply the Feistel network over numbers of 2w bits."""
    width, mask = np.uint64(w), np.uint64((1 << w) - 1)
    left, right = x >> width, x & mask
    for number in range(ROUNDS):
        left, right = right, left ^ (bits(*key, number, right) & mask)
    return (left << width) | right
