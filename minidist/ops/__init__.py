"""The numerical operations: what a layer, an optimiser or a collective computes on arrays.

Every operation is plain array code that runs on NumPy and on CuPy alike; the backend follows the
arrays. Where there is a kernel for it, `kernels.py` says when that is taken instead. A forward
function returns its result and what the backward function needs besides its inputs. No operation
writes into an array it was handed, except the optimiser rules, whose point it is.
"""

from minidist.ops import random
from minidist.ops.activation import swiglu, swiglu_backward
from minidist.ops.attention import attention, attention_backward, merge
from minidist.ops.dropout import dropout, dropout_backward
from minidist.ops.embedding import embedding, embedding_backward
from minidist.ops.loss import cross_entropy, cross_entropy_backward
from minidist.ops.norm import rms_norm, rms_norm_backward
from minidist.ops.optim import adamw, sgd
from minidist.ops.rope import rope, rope_angles, rope_backward

__all__ = [
    "adamw",
    "attention",
    "attention_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "merge",
    "random",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "rope_angles",
    "rope_backward",
    "sgd",
    "swiglu",
    "swiglu_backward",
]
