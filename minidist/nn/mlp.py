"""SwiGLU: the feed-forward half of a block, three matrices wide."""

from dataclasses import dataclass
from typing import Any

from minidist import ops
from minidist.arrays import Array
from minidist.nn.at import At
from minidist.nn.layer import Later, Layer
from minidist.nn.linear import Linear


@dataclass(frozen=True, eq=False)
class SwiGLU(Layer):
    """y = down(silu(gate(x)) * up(x))."""

    gate: Linear
    up: Linear
    down: Linear

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        gate, _ = self.gate.forward(x, at)
        up, _ = self.up.forward(x, at)
        y, h = self.down.forward(ops.swiglu(gate, up), at)
        return y, (x, gate, up, h)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        x, gate, up, h = ctx
        dh = self.down.backward(h, dy, later)
        dgate, dup = ops.swiglu_backward(dh, gate, up)
        dx = self.gate.backward(x, dgate, later)
        ops.accumulate(dx, self.up.backward(x, dup, later))
        return dx
