"""How much a model has to compute: parameters from its shape, operations of training, days.

    one product of a weight          y_NF = x_ND w_DF         2 N D F operations, 2 for each
    of N tokens                                               element of w and token
    forward                          the product              2 for each weight and token
    backward                         dx = dy w, dw = dy^T x   4
    recomputed                       the product again        2

So training costs 6 operations for each weight and token, and 8 if forward runs twice. What is left
out is small for wide models: norms, softmax, and the products of attention that have no weight,
which add s / (6 h) of it for s positions and width h.

Only weights that multiply count. A table of embeddings is looked up and multiplies nothing; the
head multiplies, also where it is the same table. For large models that makes no difference, and
people write 6 x parameters x tokens.

Sources: Kaplan et al., "Scaling laws for neural language models", arXiv 2001.08361, section 2.1;
Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021, section 3.1 and appendix (with recomputation: 8).
"""

from typing import Protocol

from minidist.errors import ConfigError

DAY = 86400


class Shape(Protocol):
    """The shape of a decoder: `minidist.nn.DecoderConfig` is one."""

    @property
    def layers(self) -> int:
        """Blocks."""

    @property
    def width(self) -> int:
        """Channels between layers."""

    @property
    def heads(self) -> int:
        """Query heads."""

    @property
    def groups(self) -> int:
        """Key and value heads."""

    @property
    def head(self) -> int:
        """Channels of a head."""

    @property
    def inner(self) -> int:
        """Channels inside the feed-forward layer."""

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding table."""

    @property
    def tied(self) -> bool:
        """The head is the embedding table."""

    @property
    def bias(self) -> bool:
        """Every product has a bias, but for the head's."""


def block_matrices(shape: Shape) -> int:
    """Return the elements of the seven matrices of a block: all that multiply in it."""
    queries, keys = shape.heads * shape.head, shape.groups * shape.head
    attention = 2 * shape.width * queries + 2 * shape.width * keys  # q and out; k and v
    mlp = 3 * shape.width * shape.inner  # gate, up, down
    return attention + mlp


def block_vectors(shape: Shape) -> int:
    """Return the elements of a block's two norms, and of its biases if there are any."""
    queries, keys = shape.heads * shape.head, shape.groups * shape.head
    biases = queries + 2 * keys + 2 * shape.inner + 2 * shape.width
    return 2 * shape.width + (biases if shape.bias else 0)


def decoder_parameters(shape: Shape) -> int:
    """Return the parameters of a decoder, each once: a tied table counts once."""
    blocks = shape.layers * (block_matrices(shape) + block_vectors(shape))
    tables = (1 if shape.tied else 2) * shape.vocabulary * shape.width
    return tables + blocks + shape.width  # and the last norm


def multiplying(shape: Shape) -> int:
    """Return the weights that multiply: those of the blocks, and the head, tied or not."""
    return shape.layers * block_matrices(shape) + shape.vocabulary * shape.width


def training_flops(parameters: float, tokens: float, recompute: bool = False) -> float:
    """Return the operations of training on so many tokens; a product and a sum are two.

    ``recompute``: forward runs a second time before backward.
    """
    forward, backward = 2, 4
    return ((2 if recompute else 1) * forward + backward) * parameters * tokens


def training_days(flops: float, devices: int, rate: float) -> float:
    """Return the days that ``devices`` need for so many operations, at ``rate`` a second each.

    ``rate`` is what a device achieves, not what its data sheet says. Raises ConfigError if there is
    nothing to compute with.
    """
    if devices < 1 or not rate > 0:
        raise ConfigError(f"{devices} devices at {rate:g} operations a second never get done")
    return flops / (devices * rate) / DAY
