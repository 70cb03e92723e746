"""Causal attention with grouped queries, and the rule that joins partial results.

    scores = q k^T / sqrt(H)        o = softmax(scores) v        lse = log(sum(exp(scores)))

Query heads come in G groups of R; all heads of a group read the same key and value head (Ainslie
et al., "GQA", arXiv 2305.13245). A row that sees no key has o = 0 and lse = -inf.

lse, the log of the softmax denominator, is the one number a row needs besides its output so that

- partial results over different keys can be joined (`merge`), and
- the backward pass can compute the weights again as exp(scores - lse) instead of storing them.

This is the idea of FlashAttention (Dao et al., arXiv 2205.14135, sections 3.1 and B.2).

Scores are stored with keys down and queries across. A softmax then runs down the columns, where
NumPy handles many columns at once: several times faster than along rows.

Suffixes: B batch, T queries, S keys, G groups, R heads per group, H head size; C = T R, the columns
that share a key head.
"""

import numpy as np

from minidist.ops.arrays import Array, namespace
from minidist.ops.blocks import Block, sample_groups, visible_blocks


def attention(
    q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array, q_pos_T: Array, k_pos_S: Array
) -> tuple[Array, Array]:
    """Return (o (B, T, G, R, H), lse (B, T, G, R)).

    A query sees the keys whose position is not larger than its own, whatever their order.
    """
    xp = namespace(q_BTGRH)
    o_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    lse_BTGR = xp.full(q_BTGRH.shape[:-1], -np.inf, q_BTGRH.dtype)
    blocks = visible_blocks(q_pos_T, k_pos_S, q_BTGRH.dtype)
    for b in sample_groups(q_BTGRH):
        _attend(blocks, q_BTGRH[b], k_BSGH[b], v_BSGH[b], o_BTGRH[b], lse_BTGR[b])
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
    results are then the part of dq that these keys cause (the parts add up), and dk and dv of these
    keys. With p = exp(score - lse) and the mean (do . o) of do . v under p:

        dv = p^T do          dscore = p (do . v - mean)          dq = dscore k, dk = dscore^T q
    """
    xp = namespace(q_BTGRH)
    dq, dk, dv = (xp.empty(x.shape, x.dtype) for x in (q_BTGRH, k_BSGH, v_BSGH))
    blocks = visible_blocks(q_pos_T, k_pos_S, q_BTGRH.dtype)
    saved = (do_BTGRH, q_BTGRH, k_BSGH, v_BSGH, o_BTGRH, lse_BTGR)
    for b in sample_groups(q_BTGRH):
        dq[b], dk[b], dv[b] = _attend_backward(blocks, *(x[b] for x in saved))
    return dq, dk, dv


def merge(o1: Array, lse1: Array, o2: Array, lse2: Array) -> tuple[Array, Array]:
    """Join the results of the same queries over two disjoint sets of keys: (o, lse).

    ``o`` is (..., H) and ``lse`` (...). Only differences to the larger lse are raised to a power,
    so that lse 0 and 1000 in float32 is safe.
    """
    xp = namespace(o1)
    highest = xp.maximum(xp.maximum(lse1, lse2), _lowest(lse1))
    w1, w2 = xp.exp(lse1 - highest), xp.exp(lse2 - highest)
    total = w1 + w2
    o = o1 * w1[..., None]
    o += o2 * w2[..., None]
    o /= xp.maximum(total, 1.0)[..., None]
    return o, _lse(highest, total)


def _attend(
    blocks: list[Block], q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array, o_BTGRH: Array, lse: Array
) -> None:
    """Write the results of some samples into ``o`` and ``lse``."""
    xp = namespace(q_BTGRH)
    q_BGHTR = _columns(q_BTGRH * q_BTGRH.shape[-1] ** -0.5)
    k_BGSH, v_BGSH = _heads_first(k_BSGH), _heads_first(v_BSGH)
    for block in blocks:
        t, s, _ = block
        p_SC = _scores(k_BGSH, q_BGHTR, block)
        highest_1C = xp.maximum(p_SC.max(-2, keepdims=True), _lowest(p_SC))
        p_SC -= highest_1C
        xp.exp(p_SC, out=p_SC)
        total_1C = p_SC.sum(-2, keepdims=True)
        o_CH = xp.matmul(p_SC.swapaxes(-1, -2), v_BGSH[:, :, s])
        o_CH /= xp.maximum(total_1C, 1.0).swapaxes(-1, -2)
        _put(o_BTGRH[:, t], o_CH)
        _put(lse[:, t], _lse(highest_1C, total_1C))


def _attend_backward(
    blocks: list[Block],
    do_BTGRH: Array,
    q_BTGRH: Array,
    k_BSGH: Array,
    v_BSGH: Array,
    o_BTGRH: Array,
    lse_BTGR: Array,
) -> tuple[Array, Array, Array]:
    """Return (dq, dk, dv) of some samples."""
    xp = namespace(q_BTGRH)
    scale = q_BTGRH.shape[-1] ** -0.5
    q_BTGRH = q_BTGRH * scale
    k_BGSH, v_BGSH = _heads_first(k_BSGH), _heads_first(v_BSGH)
    q_BGHTR, q_BGTRH = _columns(q_BTGRH), _rows(q_BTGRH)
    do_BGHTR, do_BGTRH = _columns(do_BTGRH), _rows(do_BTGRH)
    mean_BGTR = _heads_first(xp.einsum("btgrh,btgrh->btgr", do_BTGRH, o_BTGRH))
    # A row that saw no key has weight exp(score - inf) = 0; with -inf it would be exp(nan).
    lse_BGTR = _heads_first(xp.where(lse_BTGR == -np.inf, np.inf, lse_BTGR))
    dq_BTGRH, dk_BGSH, dv_BGSH = (xp.zeros(x.shape, x.dtype) for x in (q_BTGRH, k_BGSH, v_BGSH))
    for block in blocks:
        t, s, _ = block
        p_SC = _scores(k_BGSH, q_BGHTR, block)
        p_SC -= _join(lse_BGTR[:, :, t])[..., None, :]
        xp.exp(p_SC, out=p_SC)
        dv_BGSH[:, :, s] += xp.matmul(p_SC, _join_rows(do_BGTRH[:, :, t]))
        ds_SC = xp.matmul(v_BGSH[:, :, s], _join(do_BGHTR[:, :, :, t]))
        ds_SC -= _join(mean_BGTR[:, :, t])[..., None, :]
        ds_SC *= p_SC
        dk_BGSH[:, :, s] += xp.matmul(ds_SC, _join_rows(q_BGTRH[:, :, t]))
        dq_CH = xp.matmul(ds_SC.swapaxes(-1, -2), k_BGSH[:, :, s])
        dq_CH *= scale
        _put(dq_BTGRH[:, t], dq_CH)
    return dq_BTGRH, _heads_first(dk_BGSH), _heads_first(dv_BGSH)


def _scores(k_BGSH: Array, q_BGHTR: Array, block: Block) -> Array:
    """Return the masked scores (B, G, s, C) of one block; q is scaled already."""
    t, s, bias_STR = block
    scores = namespace(k_BGSH).matmul(k_BGSH[:, :, s], _join(q_BGHTR[:, :, :, t]))
    masked, queries, _ = bias_STR.shape
    by_query = scores.reshape(*scores.shape[:-1], queries, q_BGHTR.shape[-1])
    by_query[:, :, scores.shape[2] - masked :] += bias_STR
    return scores


def _heads_first(x: Array) -> Array:
    """Swap axes 1 and 2 in a view: time and heads, or back."""
    return x.swapaxes(1, 2)


def _columns(x_BTGRH: Array) -> Array:
    """Return a contiguous (B, G, H, T, R): the columns of any block of queries lie together."""
    return namespace(x_BTGRH).ascontiguousarray(x_BTGRH.transpose(0, 2, 4, 1, 3))


def _rows(x_BTGRH: Array) -> Array:
    """Return a contiguous (B, G, T, R, H): the rows of any block of queries lie together."""
    return namespace(x_BTGRH).ascontiguousarray(_heads_first(x_BTGRH))


def _join(x_TR: Array) -> Array:
    """Join the last two axes, queries and heads, to columns."""
    return x_TR.reshape(*x_TR.shape[:-2], x_TR.shape[-2] * x_TR.shape[-1])


def _join_rows(x_TRH: Array) -> Array:
    """Join the axes of queries and heads to rows."""
    return x_TRH.reshape(*x_TRH.shape[:-3], x_TRH.shape[-3] * x_TRH.shape[-2], x_TRH.shape[-1])


def _put(target_BTGRx: Array, block: Array) -> None:
    """Store a block whose axes are (B, G, columns and the rest) into (B, T, G, R, rest)."""
    b, t, g, r, *rest = target_BTGRx.shape
    target_BTGRx[...] = _heads_first(block.reshape(b, g, t, r, *rest))


def _lse(highest: Array, total: Array) -> Array:
    """Return highest + log(total), where a total of 0 (no visible key) gives -inf silently."""
    xp = namespace(total)
    return xp.where(total > 0, highest + xp.log(xp.maximum(total, 1.0)), -np.inf)


def _lowest(x: Array) -> float:
    """Return the least finite number: put for a maximum of -inf, it leaves -inf - it = -inf."""
    return float(np.finfo(x.dtype).min)
