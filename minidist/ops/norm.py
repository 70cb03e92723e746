"""RMSNorm: divide each row by its root mean square, then scale each channel.

    r = 1 / sqrt(mean(x^2) + eps)            y = x * r * weight

Cheaper than LayerNorm: no mean is subtracted, no bias is added (Zhang and Sennrich, "Root mean
square layer normalization", NeurIPS 2019).

Suffixes: D width; ... any leading shape.
"""

from minidist.arrays import Array, as_rows, namespace
from minidist.ops import half, kernels


@half.stored(1)
def rms_norm(x_D: Array, weight_D: Array, eps: float) -> tuple[Array, Array]:
    """Normalise ``x`` (..., D). Returns (y (..., D), r (..., 1)); the backward pass needs r.

    Of half types, r and dweight are float32.
    """
    eps = float(eps)  # a NumPy float64 scalar would turn float32 arithmetic into float64
    if kernels.chosen(x_D, weight_D, fits=weight_D.shape == x_D.shape[-1:]):
        return kernels.rms_norm(x_D, weight_D, eps)
    xp = namespace(x_D)
    mean_square = xp.einsum("...d,...d->...", x_D, x_D)[..., None] / x_D.shape[-1]
    r = 1.0 / xp.sqrt(mean_square + eps)
    y_D = x_D * r
    y_D *= weight_D
    return y_D, r


@half.stored(1)
def rms_norm_backward(dy_D: Array, x_D: Array, weight_D: Array, r: Array) -> tuple[Array, Array]:
    """Return (dx (..., D), dweight (D,)).

    With n = x r the normalised row and g = dy weight its gradient: moving x along n changes only
    the length that is divided away again, so that component is taken out.

        dweight = sum over rows of dy n          dx = r (g - n mean(g n))

    Both sums are matrix-vector products with dy x.
    """
    fits = weight_D.shape == x_D.shape[-1:] and dy_D.shape == x_D.shape
    fits = fits and r.shape == (*x_D.shape[:-1], 1)
    if kernels.chosen(x_D, dy_D, weight_D, r, fits=fits):
        return kernels.rms_norm_backward(dy_D, x_D, weight_D, r)
    x_ND, dy_ND, r_N = as_rows(x_D), as_rows(dy_D), as_rows(r)[:, 0]
    both_ND = dy_ND * x_ND
    dweight_D = r_N @ both_ND
    mean_N = (both_ND @ weight_D) * r_N / x_D.shape[-1]
    dx_ND = dy_ND * weight_D
    dx_ND -= x_ND * (r_N * mean_N)[:, None]
    dx_ND *= r_N[:, None]
    return dx_ND.reshape(x_D.shape), dweight_D
