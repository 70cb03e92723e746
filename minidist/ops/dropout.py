"""Dropout: set a share of the elements to 0 and scale the others up, so that the mean stays.

    y = x / kept where the element is kept, 0 where not

Which elements fall is a function of what the draw is for (`ops.random`), so the mask can be worked
out again in the backward pass. The array code keeps it all the same: drawing costs more than
remembering a byte an element. The kernel draws again: on a GPU memory is what is dear.

Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
JMLR 15, 2014.
"""

from typing import Any

from minidist.arrays import Array
from minidist.ops import half, kernels, random


@half.stored(1)
def dropout(
    x: Array, rate: float, key: tuple[random.Key, ...], samples: Array, positions: Array
) -> tuple[Array, Any]:
    """Return (y, what the backward pass needs), both for x (B, T, channels).

    ``key`` is what the draws of all elements are for, such as seed, step and name of a layer;
    ``samples`` (B,) and ``positions`` (T,) are global numbers.
    """
    if kernels.chosen(x, fits=x.shape[:-1] == (samples.size, positions.size)):
        drawn = int(random.bits(*key)), samples, positions
        return _by_kernel(x, rate, drawn), drawn
    mask = random.keep(rate, x.shape[-1], *key, samples[:, None], positions)
    return dropout_backward(x, rate, mask), mask


@half.stored(1)
def dropout_backward(dy: Array, rate: float, saved: Any) -> Array:
    """Return dx: the same elements fall, and the others are scaled alike."""
    if isinstance(saved, tuple):
        return _by_kernel(dy, rate, saved)
    dx = dy * saved
    dx *= 1.0 / random.kept(rate)
    return dx


def _by_kernel(x: Array, rate: float, drawn: tuple[int, Array, Array]) -> Array:
    return kernels.dropout(x, *drawn, random.threshold(rate), 1.0 / random.kept(rate))
