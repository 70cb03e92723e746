"""The model family: a Llama-style decoder, as a list of units.

    unit 0          embedding, dropout
    unit 1 .. L     one block each:   x = x + dropout(attention(norm(x)))
                                      x = x + dropout(swiglu(norm(x)))
    unit L + 1      norm, head, and the loss if labels are given

The unit is the grain of everything that comes later: gradient buckets, overlap, gathering,
recomputation and pipeline stages go by units.

SmolLM2-135M is this model with 30 layers, width 576, 9 heads in 3 groups, hidden size 1536, a
vocabulary of 49,152, a tied head and no biases.
"""

from dataclasses import dataclass
from math import sqrt

from minidist.errors import ConfigError
from minidist.nn.attention import Attention, LocalAttention
from minidist.nn.elementwise import Dropout, RMSNorm
from minidist.nn.layer import Chain, Layer, Residual
from minidist.nn.linear import Bias, Embedding, Linear
from minidist.nn.loss import CrossEntropy, Labels
from minidist.nn.mlp import SwiGLU
from minidist.nn.parameter import Init, Parameter
from minidist.nn.recompute import RECOMPUTE, Recompute


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder. A value of 0 for ``head_size`` or ``hidden`` means: from the width.

    ``heads`` query heads share ``groups`` key-value heads. Raises ConfigError for a shape that
    cannot be computed.
    """

    layers: int = 4
    width: int = 128
    heads: int = 4
    groups: int = 2
    head_size: int = 0
    hidden: int = 0
    vocabulary: int = 256
    tied: bool = False
    bias: bool = False
    dropout: float = 0.0
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "groups", "vocabulary"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("head_size", "hidden"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be 0 (automatic) or more")
        if self.heads % self.groups:
            raise ConfigError(
                f"{self.heads} heads cannot share {self.groups} groups evenly; "
                "heads must be a multiple of groups"
            )
        if not self.head_size and self.width % self.heads:
            raise ConfigError(
                f"width {self.width} is not a multiple of {self.heads} heads; set head_size"
            )
        if self.head % 2:
            raise ConfigError(f"head size {self.head} is odd; rotary positions turn pairs")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout = {self.dropout}: must be in [0, 1)")
        if self.rope_base <= 0 or self.norm_eps <= 0:
            raise ConfigError(
                f"rope_base = {self.rope_base} and norm_eps = {self.norm_eps} must be above 0"
            )

    @property
    def head(self) -> int:
        """The head size in use."""
        return self.head_size or self.width // self.heads

    @property
    def inner(self) -> int:
        """The hidden size in use: 8/3 of the width, rounded up to a multiple of 32.

        With three matrices in place of two, 8/3 keeps the parameter count of the classic 4.
        """
        return self.hidden or -(-8 * self.width // 96) * 32


def build_decoder(
    config: DecoderConfig, labels: Labels | None = None, recompute: str = "none"
) -> list[Layer]:
    """Return the units. With ``labels`` the last one ends in the loss, without in the logits.

    ``recompute``: what backward computes again, see `minidist.nn.recompute`. Nothing is allocated:
    the parameters are descriptions until storage is handed to them. Raises ConfigError for an
    unknown ``recompute``.
    """
    if recompute not in RECOMPUTE:
        raise ConfigError(f"recompute = {recompute!r}: must be one of {', '.join(RECOMPUTE)}")
    # A lookup reads one row, so its fan-in is 1; a tied table must also do as the head's matrix.
    fan_in = config.width if config.tied else 1
    table = _matrix(config, "embed", config.vocabulary, config.width, fan_in)
    head = table if config.tied else _matrix(config, "head", config.vocabulary, config.width)
    norm = RMSNorm(_vector(config, "norm", config.width, "ones"), config.norm_eps)
    last = (norm, Linear(head)) if labels is None else (norm, Linear(head), CrossEntropy(labels))
    return [
        Chain(Embedding(table), Dropout("embed.drop", config.dropout, config.seed)),
        *(_block(config, f"blocks.{n}.", recompute) for n in range(config.layers)),
        Chain(*last),
    ]


def _block(config: DecoderConfig, name: str, recompute: str) -> Layer:
    attention: Layer = _attention(config, name + "attention.")
    block = Chain(
        _branch(
            config,
            name + "attention",
            Recompute(attention) if recompute == "attention" else attention,
        ),
        _branch(config, name + "mlp", _mlp(config, name + "mlp.")),
    )
    return Recompute(block) if recompute == "unit" else block


def _branch(config: DecoderConfig, name: str, core: Layer) -> Residual:
    """Return x + dropout(core(norm(x)) [+ bias]), the shape of both halves of a block."""
    norm = RMSNorm(_vector(config, name + ".norm", config.width, "ones"), config.norm_eps)
    bias = [Bias(_vector(config, name + ".bias", config.width, "zeros"))] if config.bias else []
    return Residual(norm, core, *bias, Dropout(name + ".drop", config.dropout, config.seed))


def _attention(config: DecoderConfig, name: str) -> Attention:
    width, rows, kv_rows = config.width, config.heads * config.head, config.groups * config.head
    return Attention(
        q=_linear(config, name + "q", rows, width),
        k=_linear(config, name + "k", kv_rows, width),
        v=_linear(config, name + "v", kv_rows, width),
        out=Linear(_to_stream(config, name + "out", rows)),
        head_size=config.head,
        heads_per_group=config.heads // config.groups,
        rope_base=config.rope_base,
        core=LocalAttention(),
    )


def _mlp(config: DecoderConfig, name: str) -> SwiGLU:
    width, hidden = config.width, config.inner
    return SwiGLU(
        gate=_linear(config, name + "gate", hidden, width),
        up=_linear(config, name + "up", hidden, width),
        down=Linear(_to_stream(config, name + "down", hidden)),
    )


def _linear(config: DecoderConfig, name: str, rows: int, columns: int) -> Linear:
    bias = _vector(config, name + ".bias", rows, "zeros") if config.bias else None
    return Linear(_matrix(config, name, rows, columns), bias)


def _matrix(
    config: DecoderConfig, name: str, rows: int, columns: int, fan_in: float = 0
) -> Parameter:
    """Return a matrix with the standard deviation 1 / sqrt(fan-in): products keep unit size.

    The fan-in is that of the whole matrix, not of the part that a rank holds. GPT-2's 0.02 for all
    matrices is meant for widths near 1000: at width 128 it starts four times too small. 300 steps
    on Shakespeare's bytes (width 128, batch 12 x 128, validation loss) ended at 2.13 with 0.02, at
    2.02 with the fan-in of each matrix, and at 1.995 with fan-in 1 for the embedding besides.
    """
    return Parameter(name, (rows, columns), init=1.0 / sqrt(fan_in or columns), seed=config.seed)


def _vector(config: DecoderConfig, name: str, size: int, init: Init) -> Parameter:
    return Parameter(name, (size,), init=init, seed=config.seed)


def _to_stream(config: DecoderConfig, name: str, columns: int) -> Parameter:
    """Return a matrix whose product is added to the stream of activations.

    2 L such products are added up; each smaller by sqrt(2 L), their sum has unit size (GPT-2).
    """
    return _matrix(config, name, config.width, columns, 2.0 * config.layers * columns)
