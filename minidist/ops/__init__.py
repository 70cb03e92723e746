"""The numerical operations: what a layer, an optimiser or a collective computes on arrays.

Every operation is plain array code that runs on NumPy and on CuPy alike; the backend follows the
arrays. Where there is a kernel for it, `kernels.py` says when that is taken instead. A forward
function returns its result and what the backward function needs besides its inputs. No operation
writes into an array it was handed, except the optimiser rules and `accumulate`, whose point it is.
Half types are stored and sent, never computed in: `half.py` says how.
"""

from minidist.ops import half, random
from minidist.ops.activation import swiglu, swiglu_backward
from minidist.ops.attention import attention, attention_backward, merge
from minidist.ops.dropout import dropout, dropout_backward
from minidist.ops.embedding import embedding, embedding_backward
from minidist.ops.linear import linear, linear_backward, linear_weight_gradient
from minidist.ops.loss import cross_entropy, cross_entropy_backward
from minidist.ops.norm import rms_norm, rms_norm_backward
from minidist.ops.optim import adamw, sgd
from minidist.ops.rope import rope, rope_angles, rope_backward
from minidist.ops.sums import accumulate, add, sum_of_rows

__all__ = [
    "accumulate",
    "adamw",
    "add",
    "attention",
    "attention_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "half",
    "linear",
    "linear_backward",
    "linear_weight_gradient",
    "merge",
    "random",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "rope_angles",
    "rope_backward",
    "sgd",
    "sum_of_rows",
    "swiglu",
    "swiglu_backward",
]
