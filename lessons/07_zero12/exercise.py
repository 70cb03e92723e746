"""Lesson 07: ZeRO-1 and 2. Fill in the six blanks, from top to bottom.

    ./run check 07          which blank is next, or the smallest case that goes wrong

All parameters of a unit lie in one flat buffer of n elements, one after the other; so do their
gradients. Rank r answers for chunk r of it, cut as in lesson 00: 10 elements on 4 ranks are
[0:3] [3:6] [6:8] [8:10]. A chunk knows nothing of where a tensor ends, and may be empty.

The buffer and what belongs to it is a *bucket*. Blanks 07.4 to 07.6 are methods of the machine that
`minidist train` runs; the check puts yours into it. What they use of a bucket b:

    b.comm           the ranks that share it: b.comm.rank, b.comm.size
    b.stage          0, 1, 2, 3
    b.chunk, b.own   slices: what this rank answers for, and what it updates: at stage 0 all of the
                     buffer, else the chunk
    b.grad           what backward adds to: a whole buffer
    b.sum            the chunk of the reduced gradient. At stages 0 and 1 that is b.grad[b.chunk]
    b.gradient       the reduced gradient of what this rank updates, as long as b.own
    b.stored         the parameters that layers read: a whole buffer below stage 3
    b.weights        what the optimiser changes, as long as b.own: a part of b.stored, or masters
                     in float32 if parameters are in a half type
"""

from fractions import Fraction

from minidist.bounds import share
from minidist.collectives import Collective, pairwise, ring
from minidist.ops.half import down, is_half, up
from minidist.ops.reduce import combine, sum_of_squares
from minidist.plan.memory import CUT_FROM


def kept_part(kind, stage, comm, n):
    """Return the slice of n elements of which this rank keeps ``kind`` at a ZeRO stage.

    ``kind``    "parameters", "gradients", "masters" or "moments"
    ``CUT_FROM[kind]`` is the first stage at which the ranks keep a chunk each: 3, 2, 1, 1. At
    lower stages each rank keeps everything.
    ``share(comm, n)`` gives where this rank's chunk starts and stops. Nothing is sent.

    3 ranks, n = 4, stage 1: moments  [0:2] [2:3] [3:4], gradients  [0:4] [0:4] [0:4]
    """
    raise NotImplementedError("07.1: return a slice: all n elements, or this rank's chunk")


def ideal(state, stage, ranks):
    """Return the bytes that each of N ranks keeps for a parameter, as an exact Fraction.

    ``state.bytes()`` is a dictionary: bytes for each kind, if one rank keeps it all. With AdamW in
    float16: {"parameters": 2, "gradients": 2, "masters": 4, "moments": 8}, together 16. As if
    every buffer could be cut evenly.

    That state at stage 1 on 3 ranks: 2 + 2 + (4 + 8) / 3 = 8 bytes.
    """
    raise NotImplementedError("07.2: sum what is cut, divided by the ranks, and what is not")
    return Fraction(...)


@Collective
def reduce_chunk(comm, flat, out=None, onto=None):
    """Sum ``flat`` over all ranks; return this rank's chunk of the sum.

    Before    every rank has a whole buffer of gradients, `flat`.
    After     the chunk is in `out`, or without it in the chunk of flat itself, which is returned.
              With `onto`, the sum of earlier micro-batches, it is added to that as well.
    Bytes     N - 1 chunks: all of flat but the rank's own one.

    The body of a collective, as in lesson 03. `scatter.reduce_scatter` is right for the dtype;
    ``yield from other.steps(comm, ...)`` makes it a part of this one and gives its result, and
    ``combine("sum", a, b, out=c)`` is c = a + b. 2 ranks, 3 elements, onto = what is there:

        flat      rank 0 has [1 2 3]     rank 1 has [10 20 30]
        onto      rank 0 has [5 5]       rank 1 has [5]
        after     onto is [16 27]        onto is [38]
    """
    scatter = pairwise if is_half(flat.dtype) else ring
    raise NotImplementedError(
        "07.3: reduce-scatter `flat` into `out`; if there is `onto`, add the chunk to it"
    )
    return (yield from scatter.reduce_scatter.steps(comm, ...))


def squares(zero):
    """Return this rank's share of the squared norm of the gradient. The ranks add the shares up.

    ``zero._reduced`` are the buckets that have gradients, and these have been reduced. Each element
    counts on one rank: the one that has its sum. ``sum_of_squares(x)`` is a number in float64.

    Besides the ranks that cut a bucket there may be others with the same chunk of it, those of
    tensor parallelism, lesson 10. ``b.counted`` is true on one of them.

    2 ranks, gradient [3 4 12] once it is summed: rank 0 returns 25.0, rank 1 returns 144.0, and the
    norm is 13 on both.
    """
    total = zero.xp.zeros((), zero.xp.float64)
    for b in zero._reduced:
        raise NotImplementedError("07.4: add the squares of what this rank has the sum of, if any")
    return float(total)


def update(zero, rate, step, factor=1.0):
    """Do one update of what this rank keeps, with the gradients times ``factor``. No messages.

    A bucket holds pieces of tensors: ``b.layout.shards(b.own)`` yields (shard, place) for each
    piece in `b.own`. `place` is a slice that counts from the start of `b.own`, so it goes with
    `b.weights` and with `b.gradient`, which are as long. The optimiser changes weights in place:

        zero.optimizer.update(shard, weights of the piece, gradient of the piece, rate, step)

    ``times(gradient, factor, dtype)`` is the scaled gradient in a dtype: that of masters is
    ``zero.how.master``. At the end of each bucket, ``b.refresh()`` (07.6) makes the change known.
    """
    for b in zero._reduced:
        raise NotImplementedError("07.5: update each piece with its gradient; then b.refresh()")


def times(gradient, factor, dtype):
    """Return the gradient times a factor in this dtype. Given."""
    wide = gradient if gradient.dtype == dtype else up(gradient).astype(dtype)
    return wide if factor == 1.0 else wide * factor


def refresh(bucket):
    """After an update: put masters into parameters, and note what other ranks have changed.

    1. If `bucket.weights` are masters, which their dtype tells, then `bucket.stored` has to follow:
       ``down(masters, dtype)`` rounds them. ``bucket._of_own(bucket.stored)`` is the part of
       the parameters that they belong to.
    2. ``bucket.stale = True`` says that the parameters of other chunks are out of date here: the
       machine gathers the whole buffer when a layer wants it. False sends nothing. When are they
       out of date? At stage 0 everybody has updated everything, at stage 3 nobody keeps the others'
       chunks, and one rank has nobody to ask.

    Bytes     none here; a stale bucket costs (N - 1) / N of its parameters later.
    """
    raise NotImplementedError("07.6: round the masters, if there are any; then set bucket.stale")
    bucket._of_own(bucket.stored)[...] = down(..., bucket.stored.dtype)
