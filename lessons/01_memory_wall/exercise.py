"""Lesson 01: the memory wall and the compute wall. Fill in the five blanks, from top to bottom.

    ./run check 01          which blank is next, or the smallest case that goes wrong

You write the sheet that everybody writes before they train a model: what must be kept for each
parameter, how many parameters a shape has, how many operations training takes, and how many days.
Nothing of it is about many machines yet. It says why there must be many.

The checks do not know your formulas. They build small models, let the arrays be allocated and the
products be computed, and count.
"""

from minidist.errors import ConfigError
from minidist.plan.compute import DAY, block_vectors
from minidist.plan.memory import BYTES, SLOTS


def bytes_of_a_parameter(state):
    """Return what is kept for one parameter, in bytes: four kinds in a dict.

    state.dtype         "bfloat16", "float32", ...: what layers multiply with; BYTES[name] bytes
    state.grad_dtype    of gradients; None: as large as what the optimiser changes
    state.master        bytes of what the optimiser changes: 4, or 8 for float64
    state.optimizer     "adamw" keeps SLOTS["adamw"] = 2 numbers, "sgd" none; each `master` bytes

    A parameter of a half type, of 2 bytes, is too coarse to be changed by a small step. So a second
    copy of it is kept, the master, which the optimiser changes. Larger types are their own masters:
    no second copy.

        float32, AdamW:    {"parameters": 4, "gradients": 4, "masters": 0, "moments": 8}
    """
    half = BYTES[state.dtype] == 2
    raise NotImplementedError(
        '01.1: return {"parameters": ..., "gradients": ..., "masters": ..., "moments": ...}'
    )


def block_matrices(shape):
    """Return the elements of the seven matrices of a block of a decoder, together.

    Activations have `width` channels. There are `heads` query heads, `groups` heads of keys and as
    many of values; each of them has `head` channels. The feed-forward layer has `inner` channels.

        attention    q      width -> heads of queries        mlp    gate    width -> inner
                     k      width -> groups of keys                 up      width -> inner
                     v      width -> groups of values               down    inner -> width
                     out    heads of queries -> width

    A matrix from a channels to b channels has a * b elements. Width 4, 2 heads of 2 channels, 1
    group, 3 inner channels: 16 + 8 + 8 + 16, and 3 * 12, are 84.
    """
    queries, keys = shape.heads * shape.head, shape.groups * shape.head
    raise NotImplementedError("01.2: add up the seven matrices")


def decoder_parameters(shape):
    """Return the parameters of a whole decoder.

    One after the other: an embedding table of `vocabulary` rows and `width` columns; `layers`
    blocks, each with its matrices (01.2) and its vectors, `block_vectors(shape)` elements; a last
    norm of `width` elements; and a head, a matrix from `width` to `vocabulary` channels.

    If `shape.tied`, the head *is* the embedding table: one array with two uses.
    """
    raise NotImplementedError("01.3: embedding, blocks, last norm, head; tied or not")


def training_flops(parameters, tokens, recompute=False):
    """Return the operations of training on so many tokens. Multiply and add are two of them.

    `parameters` are weights that multiply. For one product y = x w of N tokens and D F weights:

        forward     y  = x w        N D F times multiply and add
        backward    dx = dy w^T     as many
                    dw = x^T dy     as many

    With `recompute`, forward runs a second time, before backward.
    """
    raise NotImplementedError("01.4: how many operations for each weight and token?")


def training_days(flops, devices, rate):
    """Return the days that it takes, if each device does `rate` operations a second.

    All devices work all the time: what keeps them from it is what the other lessons are about. A
    day has DAY seconds.
    """
    if devices < 1 or not rate > 0:
        raise ConfigError(f"{devices} devices at {rate:g} operations a second never get done")
    raise NotImplementedError("01.5: days")
