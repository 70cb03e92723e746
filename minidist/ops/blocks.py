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

from typing import Any, NamedTuple

import numpy as np

from minidist.arrays import Array, namespace

QUERIES = 64
"""Queries in a block: enough for good matrix products, few enough to skip many hidden keys."""

ROWS = 512
"""Positions of all samples in a group: enough to be worth a call, few enough for the cache."""


class Block(NamedTuple):
    """A range of queries, a range of keys, and the mask of the last of these keys."""

    queries: slice
    keys: slice
    bias: Array
    """(keys with a mask, queries, 1): 0 where the query sees the key, -inf where not."""


def visible_blocks(q_pos_T: Array, k_pos_S: Array, dtype: Any) -> list[Block]:
    """Return blocks that hold every visible pair of query and key exactly once.

    On a device a launch is dear, and a look at the positions would wait for the device: there is
    one block with everything.
    """
    if not (q_pos_T.size and k_pos_S.size):
        return []
    if not isinstance(q_pos_T, np.ndarray):
        everything = slice(0, q_pos_T.size), slice(0, k_pos_S.size)
        return [Block(*everything, _bias(q_pos_T, k_pos_S, dtype))]
    found = []
    for t in ranges(q_pos_T.size, QUERIES):
        seen = np.flatnonzero(k_pos_S <= q_pos_T[t].max())
        if seen.size:
            keys = slice(int(seen[0]), int(seen[-1]) + 1)
            hidden = np.flatnonzero(k_pos_S[keys] > q_pos_T[t].min())
            masked = slice(keys.start + int(hidden[0]) if hidden.size else keys.stop, keys.stop)
            found.append(Block(t, keys, _bias(q_pos_T[t], k_pos_S[masked], dtype)))
    return found


def sample_groups(x_BT: Array) -> list[slice]:
    """Return the groups of samples to work on: a few short ones or one long one at a time.

    On a device: all at once. The results do not depend on it.
    """
    samples, length = x_BT.shape[:2]
    step = ROWS // max(length, 1) if isinstance(x_BT, np.ndarray) else samples
    return ranges(samples, max(step, 1))


def ranges(count: int, step: int) -> list[slice]:
    """Cut ``count`` things into slices of ``step``; the last may be shorter."""
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def _bias(q_pos_T: Array, k_pos_S: Array, dtype: Any) -> Array:
    xp = namespace(q_pos_T)
    visible_ST = k_pos_S[:, None] <= q_pos_T
    return xp.where(visible_ST, 0.0, -np.inf).astype(dtype)[:, :, None]
