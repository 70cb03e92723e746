"""Training by the plainest route: one process, the whole batch, a dictionary of arrays.

The oracle of the step tests. It shares the layers with the code under test (these are checked
against central differences) and nothing else: no communicator, no buckets, no shards, no ops of the
optimiser, and the loss of each token is added up by itself.
"""

from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from minidist.nn import At, CrossEntropy, DecoderConfig, allocate, build_decoder
from minidist.ops.random import bits, uniform

EPS = 1e-4
"""Of AdamW. Where a gradient is 0 but for rounding (a query that sees one key), its noise of up to
1e-14 makes steps of lr * 1e-14 / EPS: with 1e-8 that would be 5e-8, with 1e-4 it is 5e-12."""


@dataclass(frozen=True)
class Case:
    """One way to train a tiny decoder."""

    batch: int = 5
    optimizer: str = "adamw"
    clip: float = 0.0
    tied: bool = True
    bias: bool = True
    dropout: float = 0.25
    ignored: float = 0.3
    frozen: tuple[str, ...] = ("blocks.0.mlp.up", "norm")
    layers: int = 1
    length: int = 4
    steps: int = 3
    lr: float = 0.05
    seed: int = 7

    def units(self, labels):
        """The units, with some parameters frozen."""
        config = DecoderConfig(
            layers=self.layers,
            width=8,
            heads=2,
            groups=1,
            hidden=6,
            vocabulary=11,
            tied=self.tied,
            bias=self.bias,
            dropout=self.dropout,
            seed=self.seed,
        )
        units = build_decoder(config, labels)
        for p in (p for unit in units for p in unit.parameters()):
            p.trainable = p.name not in self.frozen
        return units


@dataclass(frozen=True)
class ToyCorpus:
    """Tokens are a function of (sample, position); a share of the labels is ignored."""

    length: int
    ignored: float
    seen: list[tuple[int, int, list[int]]] = field(default_factory=list)

    def tokens(self, at):
        self.seen.append((at.step, len(at.positions), at.samples.tolist()))
        return self.token(at.samples, at.positions)

    def labels(self, at):
        drop = uniform(1, "ignored", at.samples[:, None], at.positions) < self.ignored
        return np.where(drop, -1, self.token(at.samples, at.positions + 1))

    @staticmethod
    def token(samples, positions):
        return (bits(1, "token", samples[:, None], positions) % np.uint64(11)).astype(np.int64)


def train(case):
    """Return (losses, gradient norms, gradients of the last step, parameters) by name."""
    corpus = ToyCorpus(case.length, case.ignored)
    units = case.units(corpus.labels)
    parameters = dict.fromkeys(p for unit in units for p in unit.parameters())
    allocate(parameters, np.float64, gradients=True)
    moments = {p.name: (0.0 * p.data, 0.0 * p.data) for p in parameters}
    losses, norms = [], []
    for step in range(case.steps):
        for p in parameters:
            p.grad[...] = 0
        losses.append(forward_backward(case, corpus, units, step))
        free = [p for p in parameters if p.trainable]
        norms.append(sqrt(sum(float(g) ** 2 for p in free for g in p.grad.ravel())))
        scale = min(1.0, case.clip / norms[-1]) if case.clip and norms[-1] else 1.0
        for p in free:
            update(case, p, p.grad * scale, moments[p.name], step + 1)
    grads = {p.name: p.grad.copy() for p in parameters if p.trainable}
    return losses, norms, grads, {p.name: p.data.copy() for p in parameters}


def forward_backward(case, corpus, units, step):
    """Accumulate the gradient of the mean loss over the valid tokens of the batch; return it."""
    samples = np.arange(step * case.batch, (step + 1) * case.batch)
    at = At(step, True, samples, np.arange(case.length))
    x, contexts = corpus.tokens(at), []
    layers = [layer for unit in units for layer in unit.layers]
    for layer in layers[:-1]:
        x, ctx = layer.forward(x, at)
        contexts.append(ctx)
    assert isinstance(layers[-1], CrossEntropy)
    labels = corpus.labels(at)
    valid = [(b, t) for b, t in np.ndindex(labels.shape) if labels[b, t] >= 0]
    loss, dy = 0.0, np.zeros_like(x)
    for b, t in valid:
        p = np.exp(x[b, t] - x[b, t].max())
        p /= p.sum()
        loss -= np.log(p[labels[b, t]]) / len(valid)
        p[labels[b, t]] -= 1
        dy[b, t] = p / len(valid)
    for layer, ctx in zip(reversed(layers[:-1]), reversed(contexts), strict=True):
        dy = layer.backward(ctx, dy)
    return loss


def update(case, p, g, moments, t):
    """SGD or AdamW as the papers write them; decay on matrices only."""
    decay = 0.1 if p.data.ndim > 1 else 0.0
    if case.optimizer == "sgd":
        p.data[...] = p.data - case.lr * (g + decay * p.data)
        return
    m, v = moments
    m[...] = 0.9 * m + 0.1 * g
    v[...] = 0.95 * v + 0.05 * g * g
    step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + EPS)
    p.data[...] = p.data - case.lr * decay * p.data - case.lr * step
