"""Causal attention with grouped queries, and the rule that joins partial results.

    scores = q k^T / sqrt(H)        o = softmax(scores) v        lse = log(sum(exp(scores)))

Query heads come in G groups of R; all heads of a group read the same key and value head (Ainslie
et al., "GQA", arXiv 2305.13245). A row that sees no key has o = 0 and lse = -inf.

lse, the log of the softmax denominator, is the one number a row needs besides its output so that

- partial results over different keys can be joined (`merge`), and
- the backward pass can compute the weights again as exp(scores - lse) instead of storing them.

This is the idea of FlashAttention (Dao et al., arXiv 2205.14135, sections 3.1 and B.2).

Scores are stored with keys down and queries across. A softmax then runs down the columns, where
NumPy handles many columns at once: several times faster than along rows. And a term that would be
added to a product, or a sum over one, is made a part of the product by a column of ones:

    [v 1]^T p = [v^T p; sum(p)]          [k 1] [q; -lse] = k q - lse

Suffixes: B batch, T queries, S keys, G groups, R heads per group, H head size; C = T R, the columns
that share a key head; I = H + 1.
"""

import numpy as np

from minidist.arrays import Array, namespace
from minidist.ops import half, kernels
from minidist.ops.blocks import Block, sample_groups, visible_blocks


@half.stored(1)
def attention(
    q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array, q_pos_T: Array, k_pos_S: Array
) -> tuple[Array, Array]:
    """Return (o (B, T, G, R, H), lse (B, T, G, R)); lse of half arrays is float32.

    A query sees the keys whose position is not larger than its own, whatever their order.
    """
    fits = kernels.attention_fits(q_BTGRH, k_BSGH, v_BSGH, q_pos_T, k_pos_S)
    if kernels.chosen(q_BTGRH, k_BSGH, v_BSGH, fits=fits):
        return kernels.attention(q_BTGRH, k_BSGH, v_BSGH, q_pos_T, k_pos_S)
    xp = namespace(q_BTGRH)
    o_BTGRH = xp.empty(q_BTGRH.shape, q_BTGRH.dtype)
    lse_BTGR = xp.empty(q_BTGRH.shape[:-1], q_BTGRH.dtype)
    blocks = visible_blocks(q_pos_T, k_pos_S, q_BTGRH.dtype)
    for b in sample_groups(q_BTGRH):
        o_BTGRH[b], lse_BTGR[b] = _attend(blocks, q_BTGRH[b], k_BSGH[b], v_BSGH[b])
    return o_BTGRH, lse_BTGR


@half.stored(3)
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


@half.stored(1)
def merge(o1: Array, lse1: Array, o2: Array, lse2: Array) -> tuple[Array, Array]:
    """Join the results of the same queries over two disjoint sets of keys: (o, lse).

    ``o`` is (..., H) and ``lse`` (...). Only differences to the larger lse are raised to a power,
    so that lse 0 and 1000 in float32 is safe. Parts should be float32, and the whole be rounded: if
    each part were rounded to a half type, the error would grow with their number.
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
    blocks: list[Block], q_BTGRH: Array, k_BSGH: Array, v_BSGH: Array
) -> tuple[Array, Array]:
    """Return (o, lse) of some samples."""
    xp = namespace(q_BTGRH)
    *lead, size = q_BTGRH.shape
    q_BGHTR = _columns(q_BTGRH * size**-0.5)
    k_BGSH, v1_BGSI = _heads_first(k_BSGH), _heads_first(_beside(v_BSGH, 1.0))
    o1_BTGRI = xp.zeros((*lead, size + 1), q_BTGRH.dtype)
    highest_BTGR = xp.full(tuple(lead), _lowest(q_BTGRH), q_BTGRH.dtype)
    for block in blocks:
        t, s, _ = block
        p_SC = _scores(k_BGSH, q_BGHTR, block)
        highest_1C = xp.maximum(p_SC.max(-2, keepdims=True), _lowest(p_SC))
        p_SC -= highest_1C
        xp.exp(p_SC, out=p_SC)
        _put(highest_BTGR[:, t], highest_1C)
        _put(o1_BTGRI[:, t], xp.matmul(p_SC.swapaxes(-1, -2), v1_BGSI[:, :, s]))
    o_BTGRH, total_BTGR = o1_BTGRI[..., :size], o1_BTGRI[..., size]
    return o_BTGRH / xp.maximum(total_BTGR, 1.0)[..., None], _lse(highest_BTGR, total_BTGR)


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
    # A row that saw no key has weight exp(score - huge) = 0; with its -inf it would be exp(nan).
    lse_BTGR = xp.where(lse_BTGR == -np.inf, -_lowest(lse_BTGR), lse_BTGR)
    mean_BTGR = xp.einsum("btgrh,btgrh->btgr", do_BTGRH, o_BTGRH)
    q1_BGITR, do1_BGITR = (
        _columns(_beside(q_BTGRH, -lse_BTGR)),
        _columns(_beside(do_BTGRH, -mean_BTGR)),
    )
    k1_BGSI, v1_BGSI = _heads_first(_beside(k_BSGH, 1.0)), _heads_first(_beside(v_BSGH, 1.0))
    q_BGTRH, do_BGTRH = _rows(q_BTGRH), _rows(do_BTGRH)
    k_BGSH = k1_BGSI[..., :-1]
    dq_BTGRH = xp.zeros(q_BTGRH.shape, q_BTGRH.dtype)
    dk_BGSH, dv_BGSH = (xp.zeros(k_BGSH.shape, k_BGSH.dtype) for _ in range(2))
    for block in blocks:
        t, s, _ = block
        p_SC = _scores(k1_BGSI, q1_BGITR, block)
        xp.exp(p_SC, out=p_SC)
        dv_BGSH[:, :, s] += xp.matmul(p_SC, _join_rows(do_BGTRH[:, :, t]))
        ds_SC = xp.matmul(v1_BGSI[:, :, s], _join(do1_BGITR[:, :, :, t]))
        ds_SC *= p_SC
        dk_BGSH[:, :, s] += xp.matmul(ds_SC, _join_rows(q_BGTRH[:, :, t]))
        dq_CH = xp.matmul(ds_SC.swapaxes(-1, -2), k_BGSH[:, :, s])
        dq_CH *= scale
        _put(dq_BTGRH[:, t], dq_CH)
    return dq_BTGRH, _heads_first(dk_BGSH), _heads_first(dv_BGSH)


def _scores(k_BGSH: Array, q_BGHTR: Array, block: Block) -> Array:
    """Return k q plus the mask, (B, G, s, C), of one block; q is scaled already."""
    t, s, bias_STR = block
    scores = namespace(k_BGSH).matmul(k_BGSH[:, :, s], _join(q_BGHTR[:, :, :, t]))
    masked, queries, _ = bias_STR.shape
    by_query = scores.reshape(*scores.shape[:-1], queries, q_BGHTR.shape[-1])
    by_query[:, :, scores.shape[2] - masked :] += bias_STR
    return scores


def _beside(x_H: Array, column: Array | float) -> Array:
    """Return x (..., H + 1) with one more column."""
    xp = namespace(x_H)
    x1 = xp.empty((*x_H.shape[:-1], x_H.shape[-1] + 1), x_H.dtype)
    x1[..., :-1], x1[..., -1] = x_H, column
    return x1


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
