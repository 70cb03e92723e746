"""Causal attention with grouped queries, and the rule that joins partial results.

    scores = q k^T / sqrt(H)        o = softmax(scores) v        lse = log(sum(exp(scores)))

Query heads come in G groups of R; all heads of a group read the same key and value head (Ainslie
et al., "GQA", arXiv 2305.13245). A row that sees no key has o = 0 and lse = -inf.

lse, the log of the softmax denominator, is the one number a row needs besides its output so that

- partial results over different keys can be joined (`merge`), and
- the backward pass can compute the weights again as exp(scores - lse) instead of storing them.

This is the idea of FlashAttention (Dao et al., arXiv 2205.14135, sections 3.1 and B.2).

Scores are stored with keys down and queries across. A softmax then runs down the columns, where
NumPy handles many columns at once: three times faster than along rows.

Suffixes: B batch, T queries, S keys, G groups, R heads per group, H head size; C = T R, the columns
that share a key head.
"""

import numpy as np

from minidist.ops.arrays import Array, namespace
from minidist.ops.blocks import Block, visible_blocks


def attention(
    q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array, q_pos_T: Array, k_pos_S: Array
) -> tuple[Array, Array]:
    """Return (o (B, T, G, R, H), lse (B, T, G, R)).

    A query sees the keys whose position is not larger than its own, whatever their order.
    """
    xp = namespace(q_BTGRH)
    o_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    lse_BTGR = xp.full(q_BTGRH.shape[:-1], -np.inf, q_BTGRH.dtype)
    q_BGHTR = _columns(q_BTGRH * q_BTGRH.shape[-1] ** -0.5)
    k_BGSH, v_BGSH = _heads_first(k_BSGH), _heads_first(v_BSGH)
    for block in visible_blocks(q_BTGRH, q_pos_T, k_pos_S):
        b, t, s, _ = block
        p_SC = _scores(k_BGSH, q_BGHTR, block)
        highest_1C = xp.maximum(p_SC.max(-2, keepdims=True), _lowest(p_SC))
        p_SC -= highest_1C
        xp.exp(p_SC, out=p_SC)
        total_1C = p_SC.sum(-2, keepdims=True)
        o_CH = xp.matmul(p_SC.swapaxes(-1, -2), v_BGSH[b, :, s])
        o_CH /= xp.maximum(total_1C, 1.0).swapaxes(-1, -2)
        _put(o_BTGRH[b, t], o_CH)
        _put(lse_BTGR[b, t], _lse(highest_1C, total_1C))
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
    scale = q_BTGRH.shape[-1] ** -0.5
    q_BGHTR, do_BGHTR = _columns(q_BTGRH * scale), _columns(do_BTGRH)
    k_BGSH, v_BGSH = _heads_first(k_BSGH), _heads_first(v_BSGH)
    mean_BGTR = _heads_first(xp.einsum("btgrh,btgrh->btgr", do_BTGRH, o_BTGRH))
    # A row that saw no key has weight exp(score - inf) = 0; with -inf it would be exp(nan).
    lse_BGTR = _heads_first(xp.where(lse_BTGR == -np.inf, np.inf, lse_BTGR))
    dq_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    dk_BGSH, dv_BGSH = xp.zeros(k_BGSH.shape, k_BSGH.dtype), xp.zeros(k_BGSH.shape, k_BSGH.dtype)
    for block in visible_blocks(q_BTGRH, q_pos_T, k_pos_S):
        b, t, s, _ = block
        p_SC = _scores(k_BGSH, q_BGHTR, block)
        p_SC -= _join(lse_BGTR[b, :, t])[..., None, :]
        xp.exp(p_SC, out=p_SC)
        do_HC = _join(do_BGHTR[b, :, :, t])
        dv_BGSH[b, :, s] += xp.matmul(p_SC, do_HC.swapaxes(-1, -2))
        ds_SC = xp.matmul(v_BGSH[b, :, s], do_HC)
        ds_SC -= _join(mean_BGTR[b, :, t])[..., None, :]
        ds_SC *= p_SC
        dk_BGSH[b, :, s] += xp.matmul(ds_SC, _join(q_BGHTR[b, :, :, t]).swapaxes(-1, -2))
        dq_CH = xp.matmul(ds_SC.swapaxes(-1, -2), k_BGSH[b, :, s])
        dq_CH *= scale
        _put(dq_BTGRH[b, t], dq_CH)
    dk_BSGH, dv_BSGH = _heads_first(dk_BGSH), _heads_first(dv_BGSH)
    return dq_BTGRH, xp.ascontiguousarray(dk_BSGH), xp.ascontiguousarray(dv_BSGH)


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


def _scores(k_BGSH: Array, q_BGHTR: Array, block: Block) -> Array:
    """Return the masked scores (b, G, s, C) of one block; q is scaled already."""
    b, t, s, bias_STR = block
    q_HC = _join(q_BGHTR[b, :, :, t])
    scores = namespace(q_HC).matmul(k_BGSH[b, :, s], q_HC)
    masked, queries, _ = bias_STR.shape
    heads = q_BGHTR.shape[-1]
    by_query = scores.reshape(*scores.shape[:-1], queries, heads)
    by_query[:, :, scores.shape[2] - masked :] += bias_STR
    return scores


def _heads_first(x: Array) -> Array:
    """Swap axes 1 and 2 in a view: time and heads, or back."""
    return x.swapaxes(1, 2)


def _columns(x_BTGRH: Array) -> Array:
    """Return a contiguous (B, G, H, T, R): the columns of any block of queries lie together."""
    return namespace(x_BTGRH).ascontiguousarray(x_BTGRH.transpose(0, 2, 4, 1, 3))


def _join(x_TR: Array) -> Array:
    """Join the last two axes, queries and heads, to columns."""
    return x_TR.reshape(*x_TR.shape[:-2], x_TR.shape[-2] * x_TR.shape[-1])


def _put(target_bTGRx: Array, block: Array) -> None:
    """Store a block whose axes are (b, G, columns and the rest) into (b, T, G, R, rest)."""
    b, t, g, r, *rest = target_bTGRx.shape
    target_bTGRx[...] = _heads_first(block.reshape(b, g, t, r, *rest))


def _lse(highest: Array, total: Array) -> Array:
    """Return highest + log(total), where a total of 0 (no visible key) gives -inf silently."""
    xp = namespace(total)
    return xp.where(total > 0, highest + xp.log(xp.maximum(total, 1.0)), -np.inf)


def _lowest(x: Array) -> float:
    """Return the least finite number: put for a maximum of -inf, it leaves -inf - it = -inf."""
    return float(np.finfo(x.dtype).min)
