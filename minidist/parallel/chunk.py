"""Which part of a flat buffer a rank keeps, and how the sum of gradients gets there.

    10 elements, 4 ranks      rank 0    rank 1    rank 2    rank 3
    chunk, by `bounds`        [0:3]     [3:6]     [6:8]     [8:10]
    kept at stage 1           all parameters and gradients; masters and moments of the chunk

Nothing is padded: a chunk may be shorter than another by one element, or empty, and the bytes are
those of the formulas. Source: Rajbhandari et al., "ZeRO", SC 2020, section 5.
"""

from typing import Any

from minidist.arrays import Array
from minidist.bounds import Seat, share
from minidist.collectives import Collective, Steps, pairwise, ring
from minidist.ops.half import is_half
from minidist.ops.reduce import combine
from minidist.plan.memory import CUT_FROM


def kept_part(kind: str, stage: int, comm: Seat, n: int) -> slice:
    """Return the part of ``n`` elements of which this rank keeps ``kind`` at a ZeRO stage.

    ``kind`` is a key of `CUT_FROM`: "parameters", "gradients", "masters" or "moments". Local.
    """
    if stage < CUT_FROM[kind]:
        return slice(0, n)
    return slice(*share(comm, n))


@Collective
def reduce_chunk(
    comm: Any, flat: Array, out: Array | None = None, onto: Array | None = None
) -> Steps:
    """Sum ``flat`` over all ranks; return this rank's chunk of the sum.

    ``flat`` is a whole buffer, of equal size on all ranks. ``out``: where the chunk goes; without
    it, the chunk of ``flat`` is overwritten. ``onto``: what the chunk is then added to, the sum of
    earlier micro-batches. All ranks call it; each sends all of ``flat`` but one chunk. Half types
    are added in float32.
    """
    scatter = pairwise if is_half(flat.dtype) else ring
    chunk = yield from scatter.reduce_scatter.steps(comm, flat, out)
    if onto is not None:
        combine("sum", onto, chunk, out=onto)
    return chunk
