"""The decoder of `minidist.nn` and a training step of it, in eager PyTorch: to compare with.

The same names, shapes and numbers: gradients agree to the last digits of float64. Attention, norm
and loss are PyTorch's own functions, and backward is its autograd, so this is what a practitioner
would write. No torch.compile: eager is what hand-written array code compares with.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from minidist.nn import At, DecoderConfig, Parameter


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.groups, self.size = c.heads, c.groups, c.head
        self.q = nn.Linear(c.width, c.heads * c.head, bias=False)
        self.k = nn.Linear(c.width, c.groups * c.head, bias=False)
        self.v = nn.Linear(c.width, c.groups * c.head, bias=False)
        self.out = nn.Linear(c.heads * c.head, c.width, bias=False)

    def forward(self, x_BTD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x_BTD.shape

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(batch, length, heads, self.size).transpose(1, 2)

        q_BNTH = turn(split(self.q(x_BTD), self.heads), cos, sin)
        k_BGTH = turn(split(self.k(x_BTD), self.groups), cos, sin)
        v_BGTH = split(self.v(x_BTD), self.groups)
        o_BNTH = functional.scaled_dot_product_attention(
            q_BNTH, k_BGTH, v_BGTH, is_causal=True, enable_gqa=self.heads != self.groups
        )
        return self.out(o_BNTH.transpose(1, 2).reshape(batch, length, -1))


def turn(x_NTH: Tensor, cos_TF: Tensor, sin_TF: Tensor) -> Tensor:
    """Rotary positions, half-split: channel i goes with channel i + H / 2."""
    a, b = x_NTH.chunk(2, -1)
    return torch.cat([a * cos_TF - b * sin_TF, b * cos_TF + a * sin_TF], -1)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(c.width, c.inner, bias=False)
        self.up = nn.Linear(c.width, c.inner, bias=False)
        self.down = nn.Linear(c.inner, c.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(c), MLP(c)
        self.attention_norm = nn.RMSNorm(c.width, eps=c.norm_eps)
        self.mlp_norm = nn.RMSNorm(c.width, eps=c.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Embedding, blocks, norm, head. Without biases and dropout, of which none is on by default."""

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocabulary, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, eps=c.norm_eps)
        self.head = nn.Linear(c.width, c.vocabulary, bias=False)
        if c.tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits (B, T, vocabulary)."""
        half, dtype = self.c.head // 2, self.embed.weight.dtype
        frequency = self.c.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(tokens_BT.shape[1], dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        x = self.embed(tokens_BT)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))

    def named(self) -> dict[str, nn.Parameter]:
        """Return the parameters by the names that minidist gives them."""

        def ours(name: str) -> str:
            return name.removesuffix(".weight").replace("_norm", ".norm")

        return {ours(name): p for name, p in self.named_parameters()}


class TorchStep:
    """A training step like that of a trainer (`minidist.train.step`): same batch, clip, AdamW."""

    def __init__(self, trainer: Any) -> None:
        self.config, self.corpus = trainer.config, trainer.corpus
        self.model = Decoder(self.config.decoder()).to(getattr(torch, self.config.dtype))
        load(self.model, trainer.sync.parameters())
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            groups, betas=(0.9, 0.95), eps=1e-8, weight_decay=self.config.weight_decay
        )

    def __call__(self, step: int) -> tuple[float, float]:
        """Do one update; return (loss per valid token, norm of the gradient before clipping)."""
        loss = self.backward(step)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or inf)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate(step)
        self.optimizer.step()
        return loss, float(norm)

    def backward(self, step: int) -> float:
        """Leave the gradient of the mean loss in the parameters, and return that loss."""
        batch = self.config.batch
        at = At(
            step, True, np.arange(step * batch, (step + 1) * batch), np.arange(self.corpus.length)
        )
        tokens, labels = (torch.from_numpy(f(at)) for f in (self.corpus.tokens, self.corpus.labels))
        self.optimizer.zero_grad()
        logits = self.model(tokens).flatten(0, 1)
        loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=-1)
        loss.backward()
        return float(loss.detach())


def load(model: Decoder, parameters: Iterable[Parameter]) -> None:
    """Copy the weights of minidist's parameters; both must have the same names."""
    theirs, ours = model.named(), {p.name: p for p in parameters}
    assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
    with torch.no_grad():
        for name, p in ours.items():
            theirs[name].copy_(torch.from_numpy(p.data))
