"""A linear map and its two gradients: three matrix products.

    y_NF = x_ND W_DF^T + b_F          dx_ND = dy_NF W_FD          dW_FD = dy_FN^T x_ND

Suffixes: D inputs, F outputs, N all leading axes as one.
"""

from minidist.arrays import Array
from minidist.ops import half


@half.stored(1)
def linear(x_ND: Array, w_FD: Array, b_F: Array | None = None) -> Array:
    """Return x W^T + b, (N, F)."""
    y_NF = x_ND @ w_FD.T
    if b_F is not None:
        y_NF += b_F
    return y_NF


@half.stored(1)
def linear_backward(dy_NF: Array, w_FD: Array) -> Array:
    """Return dx (N, D)."""
    return dy_NF @ w_FD


@half.stored(0)
def linear_weight_gradient(dy_NF: Array, x_ND: Array) -> Array:
    """Return dW (F, D); float32 if dy is of a half type."""
    return dy_NF.T @ x_ND
