"""Everything that decides what a run computes, and what does not, in three frozen dataclasses.

`TrainConfig` is the run: the same TrainConfig gives the same numbers, on any number of ranks (to
rounding) and however often it is stopped and resumed. It is written to `config.toml`. `Layout` is
how the work lies on the ranks: it changes the order of sums, so the last bits, and nothing else. It
is written to `layout.toml`, and a resumed run may have another one. `Session` is one sitting: where
to write, when to stop, on which device. Every field of all three is a flag.
"""

from dataclasses import dataclass
from math import inf

from minidist.errors import ConfigError
from minidist.nn import RECOMPUTE, DecoderConfig
from minidist.options import option
from minidist.train.learning_rate import cosine
from minidist.train.optimizer import SGD, AdamW, Optimizer
from minidist.train.precision import Precision

BYTES = 256
DTYPES = ("float64", "float32", "bfloat16", "float16")
GRAD_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class TrainConfig:
    """A run: model, data, optimisation, and what is written down."""

    data: str = option("", "a text file, a folder of *.txt and *.py, or stdlib (eight plays)")
    context: int = option(128, "bytes that the model looks at")
    layers: int = option(4, "blocks of attention and feed-forward")
    width: int = option(96, "size of the residual stream")
    heads: int = option(4, "attention heads")
    groups: int = option(2, "heads of keys and values, each shared by heads / groups heads")
    hidden: int = option(0, "width of the feed-forward part, 0 for 8/3 of the width")
    tied: bool = option(False, "one table for the embedding and the head")
    dropout: float = option(0.0, "share of activations set to zero in training")
    batch: int = option(16, "samples in a step, over all ranks")
    steps: int = option(850, "optimiser steps")
    optimizer: str = option("adamw", "the update rule", choices=("adamw", "sgd"))
    lr: float = option(4e-3, "peak learning rate")
    warmup: float = option(0.05, "share of the steps in which the learning rate rises")
    weight_decay: float = option(0.1, "decay of matrices")
    clip: float = option(1.0, "largest gradient norm, 0 for no limit")
    dtype: str = option("float32", "of weights and activations", choices=DTYPES)
    grad_dtype: str | None = option(
        None, "of gradients and their sums (float32; float64 with --dtype float64)", GRAD_DTYPES
    )
    seed: int = option(1, "of first weights, order of samples and dropout")
    log_every: int = option(50, "steps between two lines")
    validate_every: int = option(250, "steps between two validations, 0 for only at the end")

    def __post_init__(self) -> None:
        for name in ("context", "batch", "steps", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("lr", "weight_decay", "clip", "validate_every"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be a number from 0 on")
        if not 0 <= self.warmup <= 1:
            raise ConfigError(f"warmup = {self.warmup}: a share of the steps, from 0 to 1")
        self.decoder()
        self.precision()

    def precision(self) -> Precision:
        """Return the types of parameters, gradients and masters; it checks itself."""
        return Precision(self.dtype, self.grad_dtype)

    def decoder(self) -> DecoderConfig:
        """Return the shape of the model; it checks itself."""
        return DecoderConfig(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            groups=self.groups,
            hidden=self.hidden,
            vocabulary=BYTES,
            tied=self.tied,
            dropout=self.dropout,
            seed=self.seed,
        )

    def learning_rate(self, step: int) -> float:
        """Return the rate of update number `step`, counted from 0."""
        return cosine(step, peak=self.lr, steps=self.steps, warmup=round(self.warmup * self.steps))

    def make_optimizer(self) -> Optimizer:
        """Return a new optimiser."""
        if self.optimizer == "sgd":
            return SGD(self.weight_decay)
        return AdamW(weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Layout:
    """How the work lies on the ranks; only the order of sums depends on it."""

    zero: int = option(0, "ZeRO stage: what ranks keep a piece of", choices=(0, 1, 2, 3))
    micro_batches: int = option(1, "parts of a rank's slice of the batch, one after the other")
    recompute: str = option("none", "activations computed again in backward", choices=RECOMPUTE)
    bucket_mb: float = option(0.0, "join units until their gradients have this many MB")

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise ConfigError(f"micro_batches = {self.micro_batches}: must be at least 1")
        if not 0 <= self.bucket_mb < inf:
            raise ConfigError(f"bucket_mb = {self.bucket_mb}: must be a number from 0 on")
        if self.zero == 3 and self.bucket_mb:
            raise ConfigError(
                "--zero 3 gathers and frees parameters unit by unit: leave out --bucket-mb, or "
                "take --zero 2"
            )


@dataclass(frozen=True)
class Session:
    """One sitting of a run; nothing here changes a number."""

    out: str = option("", "the run's new folder (runs/DATE)")
    resume: str = option("", "the folder of a run to continue")
    stop_after: int = option(0, "save and stop when this many steps of the run are done")
    save_every: int = option(500, "steps between two checkpoints, 0 for only at the end")
    device: str = option("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    share_devices: bool = option(False, "let several ranks use one GPU")
    in_process: int = option(0, "run this many ranks in this process, without MPI")
    memory_limit: int = option(0, "bytes that a rank may hold, 0 for no limit")

    def __post_init__(self) -> None:
        for name in ("stop_after", "save_every", "in_process", "memory_limit"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: must not be negative")
        if self.out and self.resume:
            raise ConfigError("--resume RUN goes on in the folder RUN: leave out --out")
