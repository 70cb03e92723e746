"""Causal attention with grouped queries, and the rule that joins partial results.

    scores = q k^T / sqrt(H)        o = softmax(scores) v        lse = log(sum(exp(scores)))

A query sees the keys whose position is not larger than its own. Positions are given, never counted
here: a rank may hold any part of a sequence in any order. Query heads come in G groups of R; all
heads of a group read the same key and value head (Ainslie et al., "GQA", arXiv 2305.13245).

lse, the log of the softmax denominator, is the one number a row needs besides its output so that

- partial results over different keys can be joined (`merge`), and
- the backward pass can compute the weights again as exp(scores - lse) instead of storing them.

This is the idea of FlashAttention (Dao et al., arXiv 2205.14135, sections 3.1 and B.2). As there,
queries are worked on in blocks, and keys that no query of a block sees are skipped:

            keys                   . skipped: hidden from the whole block
    queries ####....               / needs the mask
            ////....               # every query of the block sees every key
            ########

A row that sees no key has o = 0 and lse = -inf.

Suffixes: B batch, T queries, S keys, G groups, R heads per group, H head size.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from minidist.ops.arrays import Array, namespace, to_host

QUERIES = 64
"""Queries in a block: large enough for matrix products, small enough to skip hidden keys."""


class Block(NamedTuple):
    """Queries ``rows``, the keys that any of them sees, and the keys from which a mask is due."""

    rows: slice
    keys: slice
    masked: slice


def attention(
    q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array, q_pos_T: Array, k_pos_S: Array
) -> tuple[Array, Array]:
    """Return (o (B, T, G, R, H), lse (B, T, G, R))."""
    xp = namespace(q_BTGRH)
    o_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    lse_BTGR = xp.full(q_BTGRH.shape[:-1], -np.inf, q_BTGRH.dtype)
    q_BGTRH = xp.ascontiguousarray(_by_head(q_BTGRH * q_BTGRH.shape[-1] ** -0.5))
    v_BGSH = v_BSGH.transpose(0, 2, 1, 3)
    for block in visible_blocks(q_pos_T, k_pos_S):
        p = _scores(q_BGTRH, k_BSGH, q_pos_T, k_pos_S, block)
        highest = xp.maximum(p.max(-1, keepdims=True), _lowest(p))
        p -= highest
        xp.exp(p, out=p)
        total = p.sum(-1, keepdims=True)
        lse = _lse(highest, total)
        o = _matmul(p, v_BGSH[:, :, block.keys])
        o /= xp.maximum(total, 1.0)
        o_BTGRH[:, block.rows] = o.transpose(0, 2, 1, 3, 4)
        lse_BTGR[:, block.rows] = lse[..., 0].transpose(0, 2, 1, 3)
    return o_BTGRH, lse_BTGR


def attention_backward(
    do_BTGRH: Array,
    q_BTGRH: Array,
    k_BSGH: Array,
    v_BSGH: Array,
    o_BTGRH: Array,
    lse_BTGR: Array,
    q_pos_T: Array,
    k_pos_S: Array,
) -> tuple[Array, Array, Array]:
    """Return (dq, dk, dv), shaped like q, k and v.

    ``o`` and ``lse`` are those of the whole softmax; the keys may be a part of its keys. The
    results are then the part of dq that these keys cause (parts add up), and all of dk and dv.
    """
    xp = namespace(q_BTGRH)
    scale = q_BTGRH.shape[-1] ** -0.5
    q_BGTRH = xp.ascontiguousarray(_by_head(q_BTGRH * scale))
    do_BGTRH = xp.ascontiguousarray(_by_head(do_BTGRH))
    k_BGSH, v_BGHS = k_BSGH.transpose(0, 2, 1, 3), v_BSGH.transpose(0, 2, 3, 1)
    mean_BGTR1 = _by_head((do_BTGRH * o_BTGRH).sum(-1, keepdims=True))
    # A row that saw no key has weight exp(score - inf) = 0; with -inf it would be exp(nan).
    lse_BGTR1 = _by_head(xp.where(lse_BTGR == -np.inf, np.inf, lse_BTGR)[..., None])
    dq_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    dk_BGSH, dv_BGSH = xp.zeros(k_BGSH.shape, k_BGSH.dtype), xp.zeros(k_BGSH.shape, k_BGSH.dtype)
    for block in visible_blocks(q_pos_T, k_pos_S):
        rows, keys, _ = block
        p = _scores(q_BGTRH, k_BSGH, q_pos_T, k_pos_S, block)
        p -= lse_BGTR1[:, :, rows]
        xp.exp(p, out=p)
        dv_BGSH[:, :, keys] += _matmul_rows(p, do_BGTRH[:, :, rows])
        ds = _matmul(do_BGTRH[:, :, rows], v_BGHS[..., keys])
        ds -= mean_BGTR1[:, :, rows]
        ds *= p
        dk_BGSH[:, :, keys] += _matmul_rows(ds, q_BGTRH[:, :, rows])
        dq = _matmul(ds, k_BGSH[:, :, keys])
        dq *= scale
        dq_BTGRH[:, rows] = dq.transpose(0, 2, 1, 3, 4)
    dk_BSGH = xp.ascontiguousarray(dk_BGSH.transpose(0, 2, 1, 3))
    return dq_BTGRH, dk_BSGH, xp.ascontiguousarray(dv_BGSH.transpose(0, 2, 1, 3))


def merge(o1: Array, lse1: Array, o2: Array, lse2: Array) -> tuple[Array, Array]:
    """Join the results of the same queries over two disjoint sets of keys: (o, lse).

    Only differences to the larger lse are raised to a power, so lse 0 and 1000 in float32 is safe.
    """
    xp = namespace(o1)
    highest = xp.maximum(xp.maximum(lse1, lse2), _lowest(lse1))
    w1, w2 = xp.exp(lse1 - highest), xp.exp(lse2 - highest)
    total = w1 + w2
    o = o1 * w1[..., None]
    o += o2 * w2[..., None]
    o /= xp.maximum(total, 1.0)[..., None]
    return o, _lse(highest, total)


def visible_blocks(q_pos_T: Array, k_pos_S: Array) -> Iterator[Block]:
    """Yield the blocks of queries that see any key, with the range of keys they see.

    The positions are looked at on the host; on a device this waits for them.
    """
    q_pos, k_pos = to_host(q_pos_T), to_host(k_pos_S)
    for start in range(0, len(q_pos), QUERIES):
        rows = slice(start, min(start + QUERIES, len(q_pos)))
        seen = np.flatnonzero(k_pos <= q_pos[rows].max())
        if seen.size:
            first, last = int(seen[0]), int(seen[-1]) + 1
            hidden = np.flatnonzero(k_pos[first:last] > q_pos[rows].min())
            mask_from = first + int(hidden[0]) if hidden.size else last
            yield Block(rows, slice(first, last), slice(mask_from, last))


def _scores(q_BGTRH: Array, k_BSGH: Array, q_pos_T: Array, k_pos_S: Array, block: Block) -> Array:
    """Return the masked scores (B, G, t, R, s) of one block; q is scaled already."""
    xp = namespace(q_BGTRH)
    rows, keys, masked = block
    scores = _matmul(q_BGTRH[:, :, rows], k_BSGH[:, keys].transpose(0, 2, 3, 1))
    if masked.stop > masked.start:
        visible_ts = q_pos_T[rows, None] >= k_pos_S[masked]
        bias_t1s = xp.where(visible_ts, 0.0, -np.inf).astype(scores.dtype)[:, None]
        scores[..., masked.start - keys.start :] += bias_t1s
    return scores


def _by_head(x_BTGRH: Array) -> Array:
    """Return a view (B, G, T, R, H): for each group, its rows together."""
    return x_BTGRH.transpose(0, 2, 1, 3, 4)


def _matmul(a_BGtRn: Array, b_BGnm: Array) -> Array:
    """Multiply all (t, R) rows of a group by one matrix: one product per sample and group."""
    *lead, t, heads, n = a_BGtRn.shape
    product = namespace(a_BGtRn).matmul(a_BGtRn.reshape(*lead, t * heads, n), b_BGnm)
    return product.reshape(*lead, t, heads, b_BGnm.shape[-1])


def _matmul_rows(a_BGtRn: Array, b_BGtRm: Array) -> Array:
    """Return a^T b (B, G, n, m), summed over the rows (t, R): over queries and heads at once."""
    *lead, t, heads, n = a_BGtRn.shape
    a = a_BGtRn.reshape(*lead, t * heads, n)
    b = b_BGtRm.reshape(*lead, t * heads, b_BGtRm.shape[-1])
    return namespace(a).matmul(a.swapaxes(-1, -2), b)


def _lse(highest: Array, total: Array) -> Array:
    """Return highest + log(total), where a total of 0 (no visible key) gives -inf silently."""
    xp = namespace(total)
    return xp.where(total > 0, highest + xp.log(xp.maximum(total, 1.0)), -np.inf)


def _lowest(x: Array) -> float:
    """The least finite number: stands in for a maximum of -inf, so that -inf - it stays -inf."""
    return float(np.finfo(x.dtype).min)
