"""The attention layer, and the plainest attention object.

The layer owns the four projections and turns queries and keys by their positions. Which keys a
query meets, and where they are, is the business of an *attention object* with two methods:

    forward(q, k, v, at) -> o, ctx              q (B, T, G, R, H), k and v (B, S, G, H)
    backward(ctx, do)    -> dq, dk, dv

Here all keys are at hand (`LocalAttention`). Keys in other ranks' memory or in a paged cache are
other objects under the same layer.

Suffixes: B batch, T positions, G groups, R query heads per group, N = G R heads, H head size.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from minidist import ops
from minidist.arrays import Array
from minidist.nn.at import At
from minidist.nn.layer import Later, Layer
from minidist.nn.linear import Linear
from minidist.ops import half


class AttentionObject(Protocol):
    """Softmax attention over the keys that the object can reach."""

    def forward(self, q: Array, k: Array, v: Array, at: At) -> tuple[Array, Any]:
        """Return (o (B, T, G, R, H), what backward needs)."""

    def backward(self, ctx: Any, do: Array) -> tuple[Array, Array, Array]:
        """Return (dq, dk, dv)."""


@dataclass(frozen=True, eq=False)
class LocalAttention:
    """Every key is in this rank's memory.

    With ``key_block``, keys are met that many at a time and partial results are merged: what a rank
    does whose keys arrive in pieces. The result is the same up to rounding.
    """

    key_block: int | None = None

    def forward(self, q: Array, k: Array, v: Array, at: At) -> tuple[Array, Any]:
        parts = self._parts(k)
        wide = half.up(q), half.up(k), half.up(v)  # rounding each part would add an error for each
        o, lse = self._attend(*wide, at, parts[0])
        for keys in parts[1:]:
            o, lse = ops.merge(o, lse, *self._attend(*wide, at, keys))
        o = half.down(o, q.dtype)
        return o, (q, k, v, o, lse, at)

    def backward(self, ctx: Any, do: Array) -> tuple[Array, Array, Array]:
        q, k, v, o, lse, at = ctx
        pos = at.positions
        if self.key_block is None:
            return ops.attention_backward(do, q, k, v, o, lse, pos, pos)
        dtype = q.dtype
        do, q, k, v, o = (half.up(x) for x in (do, q, k, v, o))
        dq, dk, dv = q * 0.0, k * 0.0, v * 0.0
        for keys in self._parts(k):
            part = ops.attention_backward(do, q, k[:, keys], v[:, keys], o, lse, pos, pos[keys])
            dq += part[0]
            dk[:, keys], dv[:, keys] = part[1], part[2]
        return half.down(dq, dtype), half.down(dk, dtype), half.down(dv, dtype)

    def _attend(self, q: Array, k: Array, v: Array, at: At, keys: slice) -> tuple[Array, Array]:
        return ops.attention(q, k[:, keys], v[:, keys], at.positions, at.positions[keys])

    def _parts(self, k: Array) -> list[slice]:
        """Return the slices of the keys; one empty slice if there is no key."""
        count = k.shape[1]
        step = self.key_block or max(count, 1)
        return [slice(i, min(i + step, count)) for i in range(0, max(count, 1), step)]


@dataclass(frozen=True, eq=False)
class Attention(Layer):
    """Grouped-query attention with rotary positions, x (B, T, D).

    Rows of the weights are grouped by head: query head n is rows [n H, (n + 1) H) of q, and belongs
    to key-value head n // R. How many groups this rank has follows from the boxes of its weights;
    it may be none.
    """

    q: Linear
    k: Linear
    v: Linear
    out: Linear
    head_size: int
    heads_per_group: int
    rope_base: float
    core: AttentionObject

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        lead, size = x.shape[:-1], self.head_size
        groups = self.k.weight.local[0] // size
        angles = ops.rope_angles(at.positions, size, self.rope_base, x.dtype)
        q_BTNH = self.q.forward(x, at)[0].reshape(*lead, groups * self.heads_per_group, size)
        k_BTGH = self.k.forward(x, at)[0].reshape(*lead, groups, size)
        v_BTGH = self.v.forward(x, at)[0].reshape(*lead, groups, size)
        q_BTNH, k_BTGH = ops.rope(q_BTNH, *angles), ops.rope(k_BTGH, *angles)
        q_BTGRH = q_BTNH.reshape(*lead, groups, self.heads_per_group, size)
        o_BTGRH, core = self.core.forward(q_BTGRH, k_BTGH, v_BTGH, at)
        y, o = self.out.forward(o_BTGRH.reshape(*lead, self.out.weight.local[1]), at)
        return y, (x, angles, core, o, o_BTGRH.shape)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        x, angles, core, o, shape_BTGRH = ctx
        lead, size = x.shape[:-1], self.head_size
        do = self.out.backward(o, dy, later)
        dq_BTGRH, dk_BTGH, dv_BTGH = self.core.backward(core, do.reshape(shape_BTGRH))
        dq_BTNH = dq_BTGRH.reshape(*lead, self.q.weight.local[0] // size, size)
        dq_BTNH = ops.rope_backward(dq_BTNH, *angles)
        dk_BTGH = ops.rope_backward(dk_BTGH, *angles)
        dx = self.q.backward(x, dq_BTNH.reshape(*lead, self.q.weight.local[0]), later)
        kv_shape = (*lead, self.k.weight.local[0])
        ops.accumulate(dx, self.k.backward(x, dk_BTGH.reshape(kv_shape), later))
        ops.accumulate(dx, self.v.backward(x, dv_BTGH.reshape(kv_shape), later))
        return dx
