"""The straight line through measured times: latency, bandwidth, and the knee between them.

    seconds                    *
       |                     *           seconds = latency + nbytes / bandwidth
       |                  *
       |  *  *  *  *  * '                left of the knee a message costs its latency, whatever
       +-------------|-------> nbytes    its size; right of it, it costs its bytes
                    knee = latency * bandwidth

Messages from 8 bytes to 64 MiB take from microseconds to tens of milliseconds. Plain least squares
looks at the largest errors in seconds, so only at the largest messages: their noise of one percent
would drown the latency, and often make it negative. So every equation is divided by its own time:
an error of ten percent counts the same for a short message and for a long one.

Real transports have kinks that no straight line has: short messages are copied into a buffer
("eager"), long ones wait until the receiver is ready ("rendezvous"), and those beyond the caches
move at the speed of memory. `worst_error` says how far off the line is.
"""

from collections.abc import Sequence

import numpy as np

from minidist.comm import Link
from minidist.errors import ConfigError


def fit(nbytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Return the link whose latency + nbytes / bandwidth is nearest to ``seconds``, relatively.

    ``nbytes[i]`` took ``seconds[i]``; at least two different sizes. The latency is never negative,
    the bandwidth positive and finite. Raises ConfigError for times that no link can have: none
    above zero, or not longer for larger messages.
    """
    n, t = np.asarray(nbytes, float), np.asarray(seconds, float)
    if n.ndim != 1 or n.shape != t.shape or len(set(n.tolist())) < 2:
        raise ConfigError(f"fit: {n.size} sizes, {t.size} times: give two different sizes or more")
    for value in n[~((n >= 0) & (n < np.inf))]:
        raise ConfigError(f"fit: a message of {value} bytes: sizes are 0 or more, and finite")
    for value in t[~((t > 0) & (t < np.inf))]:
        raise ConfigError(
            f"fit: {value} s: times are above 0, and finite; does this clock stand still?"
        )

    # latency * (1 / t)  +  seconds_per_byte * (n / t)  =  1        one equation for each message
    equations, ones = np.stack([1 / t, n / t], axis=1), np.ones(len(t))
    latency, per_byte = np.linalg.lstsq(equations, ones)[0]
    if latency < 0:  # the nearest line that a link can have goes through zero
        latency, per_byte = 0.0, np.sum(n / t) / np.sum((n / t) ** 2)
    if per_byte * n.max() <= 1e-9 * t.max():  # below that, what is left is rounding
        raise ConfigError(
            f"fit: messages of {n.max():.0f} bytes take no longer than those of {n.min():.0f}: "
            "bandwidth shows only beyond the knee, so measure larger ones too"
        )
    return Link(float(latency), float(1 / per_byte))


def knee(link: Link) -> float:
    """Return the size in bytes at which a message costs as much for its bytes as for starting."""
    return link.latency * link.bandwidth


def worst_error(link: Link, nbytes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return by how much the line of ``link`` is off at its worst: 0.2 is twenty percent."""
    n, t = np.asarray(nbytes, float), np.asarray(seconds, float)
    return float(np.max(np.abs(link.latency + n / link.bandwidth - t) / t))
