"""Bytes of activations, by formula: of this decoder to the byte, and of the published layer.

What one block of this decoder keeps for its backward, for each of n = b T tokens: width D, N heads
in G groups of size H, hidden size F; e bytes an element, w = max(4, e) a statistic.

    norm, twice       input D e, root mean square w
    attention         input D e
                      q and o 2 N H e, k and v 2 G H e, lse N w;       dropped by "attention"
                      rotary angles 2 H w, once for all samples        dropped by "attention"
    swiglu            input D e; gate, up and their product 3 F e
    dropout, twice    mask D

"unit" keeps the block's input only: D e. The output of a unit is the input of the next one, which
keeps it: no storage belongs to two units, so units can be added up.

The published layer is that of Korthikanti et al., "Reducing activation recomputation in large
transformer models", arXiv 2205.05198, sections 4 and 5: 16-bit activations, masks of one byte,

    attention 11sbh + 5as^2b        MLP 19sbh        two LayerNorms 4sbh

for s positions, batch b, width h, a heads. With G = N, N H = D and e = 2 this decoder has the same
terms, one by one: but it keeps no scores, so the 5as^2b are missing, and its MLP keeps three arrays
of F = 8/3 D channels in place of two of 4 D, which is as much. Beyond them it keeps the statistics
and the angles, which the paper leaves out as small.
"""

from dataclasses import dataclass

ID = 8
"""Bytes of a token or of a label."""


@dataclass(frozen=True)
class Activations:
    """The shape of a decoder and of a micro-batch; every result is in bytes, on one rank.

    `element`: bytes of a number of the model's dtype, 2, 4 or 8. `dropout`: whether there is any.
    """

    batch: int
    positions: int
    width: int
    heads: int
    groups: int
    head_size: int
    hidden: int
    vocabulary: int
    layers: int = 1
    element: int = 4
    dropout: bool = False
    recompute: str = "none"

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.batch * self.positions

    @property
    def statistic(self) -> int:
        """Bytes of a statistic, a probability or an angle: these are float32 at least."""
        return max(4, self.element)

    @property
    def stream(self) -> int:
        """The activations between two layers, once."""
        return self.tokens * self.width * self.element

    @property
    def mask(self) -> int:
        """What one dropout keeps."""
        return self.tokens * self.width if self.dropout else 0

    @property
    def norm(self) -> int:
        """What one norm keeps."""
        return self.stream + self.tokens * self.statistic

    @property
    def attention(self) -> int:
        """What is inside attention: all that it keeps but its input."""
        channels = 2 * self.head_size * (self.heads + self.groups)
        angles = 2 * self.positions * self.head_size
        statistics = self.tokens * self.heads + angles
        return self.tokens * channels * self.element + statistics * self.statistic

    @property
    def swiglu(self) -> int:
        """What the feed-forward layer keeps."""
        return self.stream + 3 * self.tokens * self.hidden * self.element

    @property
    def embedding(self) -> int:
        """What unit 0 keeps: ids, and a mask."""
        return ID * self.tokens + self.mask

    @property
    def whole_block(self) -> int:
        """What a block keeps without recomputation, and has during its backward with it."""
        return 2 * (self.norm + self.mask) + self.stream + self.attention + self.swiglu

    @property
    def block(self) -> int:
        """What a block keeps."""
        if self.recompute == "unit":
            return self.stream
        return self.whole_block - (self.attention if self.recompute == "attention" else 0)

    @property
    def last(self) -> int:
        """What the last unit keeps: norm, input of the head, probabilities and labels."""
        probabilities = self.tokens * self.vocabulary * self.statistic
        return self.norm + self.stream + probabilities + ID * self.tokens

    @property
    def kept(self) -> int:
        """What the model keeps when forward is done."""
        return self.embedding + self.layers * self.block + self.last

    @property
    def peak(self) -> int:
        """The most bytes at once in a step.

        Either forward is just done, or the last unit is gone and the last block is whole again.
        """
        again = self.whole_block - self.block if self.layers else 0
        return self.embedding + self.layers * self.block + max(self.last, again)


# --- segments -----------------------------------------------------------------------------------


def segmented(layers: int, length: int, stream: int, whole: int) -> int:
    """Return the most bytes of activations at once if segments of `length` layers are recomputed.

    ``stream``: bytes of a layer's input. ``whole``: of all that it keeps, its input among it. The
    segment at work is whole, and of the segments before it, and of itself, the input is there. The
    last one may be shorter, so the most is there or at the one before.
    """
    full, rest = divmod(layers, length)
    at_full = (full - 1) * stream + length * whole if full else 0
    at_rest = full * stream + rest * whole if rest else 0
    return max(at_full, at_rest)


def best_length(layers: int, stream: int, whole: int) -> int:
    """Return the segment length with the lowest peak, the shortest of several.

    L / n stream + n whole is least at n = sqrt(L stream / whole), and is then 2 sqrt(L stream
    whole): the memory of L layers grows with sqrt(L). Chen et al., arXiv 1604.06174, section 4.
    """
    return min(range(1, layers + 1), key=lambda n: segmented(layers, n, stream, whole))


# --- the published formulas ---------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A layer of GPT: `s` positions, batch `b`, width `h`, `a` heads, on `t` tensor ranks.

    The names are those of the paper. Results are bytes of one layer on one rank, Table 2.
    """

    s: int
    b: int
    h: int
    a: int
    t: int = 1

    @property
    def sbh(self) -> int:
        """Elements between two layers."""
        return self.s * self.b * self.h

    @property
    def scores(self) -> float:
        """5as/h: softmax 2, its dropout's mask 1 and output 2, for each head and pair."""
        return 5 * self.a * self.s / self.h

    def attention(self) -> float:
        """11sbh + 5as^2b: input 2, q, k 4, v 2, input of the projection 2, mask 1; scores."""
        return self.sbh * (11 + self.scores)

    def mlp(self) -> float:
        """19sbh: input 2, GELU's input 8 and output 8, mask 1."""
        return self.sbh * 19.0

    def norms(self) -> float:
        """4sbh: two inputs."""
        return self.sbh * 4.0

    def tensor(self, selective: bool = False) -> float:
        """Tensor parallel: norms, inputs and masks, 10sbh, are on every rank.

        `selective`: scores are computed again. With t = 1, the layer without parallelism.
        """
        return self.sbh * (10 + (24 + (0 if selective else self.scores)) / self.t)

    def sequence(self, selective: bool = False) -> float:
        """Tensor and sequence parallel: everything is cut."""
        return self.sbh / self.t * (34 + (0 if selective else self.scores))

    def full(self) -> float:
        """Full recomputation: only the input, whole on each rank."""
        return self.sbh * 2.0


def first_stage(layer_bytes: float, layers: int, p: int = 1, chunks: int = 1) -> float:
    """Bytes of activations on the first pipeline stage, embedding and head aside (section 4.2.3).

    It has p micro-batches of layers / p layers under way; an interleaved schedule of `chunks` > 1
    chunks a stage has 1 + (p - 1) / (p chunks) times that.
    """
    factor = 1 + (p - 1) / (p * chunks) if chunks > 1 else 1.0
    return layer_bytes * layers * factor
