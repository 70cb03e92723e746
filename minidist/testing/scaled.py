"""Training steps with a gradient that is known beforehand: for lessons and tests of the loss scale.

    step = training(comm, [3.0, 4.0], LossScale(2.0**10))
    outcome = step(0)            norm 5

One vector of weights, and a loss of which `slopes` is the gradient. Backward rounds it to float16
with the loss scale in it, sample by sample, so an element overflows at scale s as soon as
s slope / samples is above 65504, and is lost below 2**-25, on any number of ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from minidist.arrays import Array
from minidist.comm import Comm
from minidist.errors import DivergedError
from minidist.nn import At, Later, Layer, Parameter
from minidist.ops.half import NAMES, down, up
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Rule, Zero
from minidist.train.corpus import Corpus
from minidist.train.optimizer import AdamW
from minidist.train.precision import LossScale
from minidist.train.step import Step

SAMPLES = 4
"""Samples of a step, of one token each: a power of 2, so that dividing by it rounds nothing."""


class Slopes(Layer):
    """Weights whose gradient is the same in every step, but for `bad`.

    ``bad``: {step: (index, value)}: in this step, the gradient of the step's first sample has this
    value, such as inf, at this index. One rank computes that sample, and, after the sum, one rank
    has that index in its chunk.
    """

    def __init__(
        self, slopes: Sequence[float], bad: Mapping[int, tuple[int, float]], dtype: Any
    ) -> None:
        self.slopes, self.bad = np.array(slopes, np.float32), dict(bad)
        self.dtype = np.dtype(dtype)
        self.weight = Parameter("w", self.slopes.shape, init="ones")

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        """The loss is 1 for each sample: only its gradient matters here."""
        return np.full((), float(len(at.samples))), at

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        """Add dy * slopes for each sample, each rounded to the dtype of activations."""
        for sample in ctx.samples.tolist():
            gradient = up(down(np.float32(dy) * self.slopes, self.dtype)).copy()
            if sample == ctx.step * SAMPLES and ctx.step in self.bad:
                index, value = self.bad[ctx.step]
                gradient[index] = value
            self.weight.accumulate(gradient)
        return dy


def training(
    comm: Comm,
    slopes: Sequence[float],
    scale: LossScale,
    *,
    methods: Mapping[str, Callable[..., Any]] | None = None,
    rule: Rule | None = None,
    stage: int = 0,
    clip: float = 0.0,
    rate: float = 0.1,
    dtype: Any = NAMES["float16"],
    bad: Mapping[int, tuple[int, float]] | None = None,
) -> Step:
    """Return a step to call with 0, 1, 2, ... ``methods``: some to put in place of `Step`'s."""
    corpus = SimpleNamespace(
        length=1,
        tokens=lambda at: np.zeros((len(at.samples), 1), int),
        labels=lambda at: np.zeros((len(at.samples), 1), int),
    )
    state = Zero(
        [Slopes(slopes, bad or {}, dtype)], rule or AdamW(), Mesh(comm), stage, dtype=dtype
    )
    kind = type("YourStep", (Step,), dict(methods or {}))
    step: Step = kind(
        state,
        cast(Corpus, corpus),
        batch=SAMPLES,
        learning_rate=lambda step: rate,
        clip=clip,
        loss_scale=scale,
    )
    return step


def kept(step: Step) -> bytes:
    """Return the bits of this rank's masters and moments, and of the parameters they belong to.

    At stages 1 and 2 the other chunks' parameters are left out: those arrive one forward later.
    """
    parts = [b._of_own(b.stored) for b in step.sync.buckets]
    return b"".join(x.tobytes() for x in [*parts, *(values for *_, values in step.sync.kept())])


class Told(NamedTuple):
    """What a rank tells of a step: what it did, the scale it used, the norm, the bits after it."""

    said: str
    scale: float
    norm: float = 0.0
    bits: bytes = b""


def steps(
    comm: Comm, count: int, slopes: Sequence[float], scale: LossScale, **how: Any
) -> list[Told]:
    """Run `training` for so many steps, or until one ends in a DivergedError."""
    step = training(comm, slopes, scale, **how)
    found: list[Told] = []
    for number in range(count):
        before = scale.scale
        try:
            outcome = step(number)
        except DivergedError:
            return [*found, Told("DivergedError", before)]
        said = "skip" if outcome.skipped else "update"
        found.append(Told(said, before, outcome.norm, kept(step)))
    return found


def weights(comm: Comm, count: int, slopes: Sequence[float], scale: LossScale, **how: Any) -> Array:
    """Run `training` for so many steps and return all weights, gathered, in float32."""
    step = training(comm, slopes, scale, **how)
    for number in range(count):
        step(number)
    (whole,) = (up(b.flat).copy() for b in step.sync.gathered())
    return whole
