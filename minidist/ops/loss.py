"""Cross-entropy of a softmax over the last axis, summed over the tokens that have a label.

    loss = sum over tokens with label y >= 0 of  log(sum_v exp(logits_v)) - logits_y

The sum, not the mean: the caller divides by the number of valid tokens of the *global* batch, once.
A mean taken per rank would weigh a token by which rank it landed on.

Suffixes: N tokens, V vocabulary; ... any leading shape.
"""

from minidist.arrays import Array, namespace
from minidist.ops import half, kernels


@half.stored(0)
def cross_entropy(logits_V: Array, labels: Array) -> tuple[Array, Array]:
    """Return (loss as a 0-d array, probabilities (..., V)); a negative label is ignored.

    ``labels`` is an integer array of the leading shape of ``logits``, in [0, V) or negative. Both
    results of half logits are float32.
    """
    if kernels.chosen(logits_V, fits=_one_each(logits_V, labels)):
        return kernels.cross_entropy(logits_V, labels)
    xp = namespace(logits_V)
    highest = logits_V.max(-1, keepdims=True)
    p_V = logits_V - highest
    target = xp.take_along_axis(p_V, xp.maximum(labels, 0)[..., None], -1)
    xp.exp(p_V, out=p_V)
    total = p_V.sum(-1, keepdims=True)
    p_V /= total
    losses = (xp.log(total) - target)[..., 0]
    return xp.where(labels >= 0, losses, xp.zeros_like(losses)).sum(), p_V


def _one_each(x_V: Array, labels: Array) -> bool:
    return bool(labels.shape == x_V.shape[:-1] and labels.dtype.kind in "iu")


def cross_entropy_backward(scale: float, p_V: Array, labels: Array) -> Array:
    """Return the gradient (..., V) of ``scale * loss``: scale * (p - one-hot of the label)."""
    if kernels.chosen(p_V, fits=_one_each(p_V, labels)):
        return kernels.cross_entropy_backward(scale, p_V, labels)
    xp = namespace(p_V)
    weight_N = ((labels >= 0) * scale).astype(p_V.dtype).reshape(labels.size)
    d_NV = p_V.reshape(labels.size, p_V.shape[-1]) * weight_N[:, None]
    label_N = xp.maximum(labels, 0).reshape(labels.size)
    d_NV[xp.arange(labels.size), label_N] -= weight_N
    return d_NV.reshape(p_V.shape)
