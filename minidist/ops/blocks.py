"""Which products of queries and keys attention computes at a time.

A query sees the keys whose position is not larger than its own. Queries are taken in blocks, and
the keys that no query of a block sees are skipped; a mask is added only where it matters:

            keys                   . skipped: hidden from the whole block
    queries ////....               / the mask is added
            ####////               # every query of the block sees every key

This follows from the positions, never from the order of storage: a rank may hold any part of a
sequence in any order. The blocks also keep the scores in the cache while they are worked on.

Real systems: FlashAttention walks the same blocks in a kernel (arXiv 2205.14135).
"""

from typing import NamedTuple

import numpy as np

from minidist.ops.arrays import Array, namespace

QUERIES = 64
"""Queries in a block: enough for good matrix products, few enough to skip many hidden keys."""

SCORES = 1 << 17
"""Scores in a block, about: an array of this size stays in a second-level cache."""


class Block(NamedTuple):
    """A range of samples, of queries and of keys, and the mask of its last keys."""

    samples: slice
    queries: slice
    keys: slice
    bias: Array
    """(keys with a mask, queries, 1): 0 where the query sees the key, -inf where not."""


def visible_blocks(q_BTGRH: Array, q_pos_T: Array, k_pos_S: Array) -> list[Block]:
    """Return blocks that hold every visible pair of query and key exactly once.

    On the host a block is small. On a device a launch is dear and a look at the positions waits for
    the device, so there is one block with everything.
    """
    if not (q_BTGRH.size and k_pos_S.size):
        return []
    samples, queries, groups, heads, _ = q_BTGRH.shape
    if not isinstance(q_pos_T, np.ndarray):
        all_keys = slice(0, k_pos_S.size)
        bias = _bias(q_pos_T, k_pos_S, q_BTGRH.dtype)
        return [Block(slice(0, samples), slice(0, queries), all_keys, bias)]
    together = max(1, SCORES // (groups * heads * QUERIES * k_pos_S.size))
    found = []
    for t in _ranges(queries, QUERIES):
        seen = np.flatnonzero(k_pos_S <= q_pos_T[t].max())
        if not seen.size:
            continue
        keys = slice(int(seen[0]), int(seen[-1]) + 1)
        hidden = np.flatnonzero(k_pos_S[keys] > q_pos_T[t].min())
        masked = slice(keys.start + int(hidden[0]) if hidden.size else keys.stop, keys.stop)
        bias = _bias(q_pos_T[t], k_pos_S[masked], q_BTGRH.dtype)
        found += [Block(b, t, keys, bias) for b in _ranges(samples, together)]
    return found


def _bias(q_pos_T: Array, k_pos_S: Array, dtype: type) -> Array:
    xp = namespace(q_pos_T)
    visible_ST = k_pos_S[:, None] <= q_pos_T
    return xp.where(visible_ST, 0.0, -np.inf).astype(dtype)[:, :, None]


def _ranges(count: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]
