"""RMSNorm: divide each row by its root mean square, then scale each channel.

    r = 1 / sqrt(mean(x^2) + eps)            y = x * r * weight

Cheaper than LayerNorm: no mean is subtracted, no bias is added (Zhang and Sennrich, "Root mean
square layer normalization", NeurIPS 2019).

Suffixes: D width; ... any leading shape.
"""

from minidist.arrays import Array, as_rows, namespace


def rms_norm(x_D: Array, weight_D: Array, eps: float) -> tuple[Array, Array]:
    """Normalise ``x`` (..., D). Returns (y (..., D), r (..., 1)); the backward pass needs r."""
    xp = namespace(x_D)
    mean_square = xp.einsum("...d,...d->...", x_D, x_D)[..., None] / x_D.shape[-1]
    r = 1.0 / xp.sqrt(mean_square + eps)
    y_D = x_D * r
    y_D *= weight_D
    return y_D, r


def rms_norm_backward(dy_D: Array, x_D: Array, weight_D: Array, r: Array) -> tuple[Array, Array]:
    """Return (dx (..., D), dweight (D,)).

    With n = x r the normalised row and g = dy weight its gradient: moving x along n changes only
    the length that is divided away again, so that component is taken out.

        dx = r (g - n mean(g n))
    """
    xp = namespace(x_D)
    normal_D = x_D * r
    dweight_D = xp.einsum("nd,nd->d", as_rows(dy_D), as_rows(normal_D))
    dx_D = dy_D * weight_D
    along = xp.einsum("...d,...d->...", dx_D, normal_D)[..., None] / x_D.shape[-1]
    normal_D *= along
    dx_D -= normal_D
    dx_D *= r
    return dx_D, dweight_D
