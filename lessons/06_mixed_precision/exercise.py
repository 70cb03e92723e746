"""Lesson 06: mixed precision and Adam. Fill in the five blanks, from top to bottom.

    ./run check 06          which blank is next, or the smallest case that goes wrong

bfloat16 and float16 are types to store and to send numbers in. Arithmetic is done in float32:

    up(x)              a float32 copy of a half array: exact
    down(x, dtype)     x rounded to dtype; what is too large for float16 becomes inf

Blanks 06.3 to 06.5 are methods of what `minidist train` runs; the check puts yours into it and
trains. A training step (`training` below) has

    training.sync          the training state of this rank: gradients, masters, moments
    training.comm          all ranks
    training.loss_scale    the same on every rank; its number is training.loss_scale.scale
    training.clip          the largest norm of a gradient that is let through; 0: any
"""

from math import isfinite, sqrt

import numpy as np

from minidist.collectives import ring
from minidist.errors import DivergedError
from minidist.ops.half import down, up
from minidist.train.precision import LEAST, MOST
from minidist.train.step import Outcome


def stalled(dtype, times=1000, step=0.001):
    """Return 1 after `times` additions of `step`: stored in `dtype`, and with a float32 master.

    ``alone``     is stored in `dtype`: each sum is formed in float32 and rounded at once
    ``master``    is stored in float32, and only what is returned is rounded

    bfloat16 has steps of 2**-7 next to 1. With step = 2**-8, half of that, and two times: alone
    stays 1.0 (a tie goes to the even neighbour), and with a master it is 1.0078125.
    """
    alone, master = np.ones(1, dtype), np.ones(1, np.float32)
    for _ in range(times):
        raise NotImplementedError("06.1: add np.float32(step) to `alone`, rounded, and to `master`")
    return float(up(alone)[0]), float(up(down(master, alone.dtype))[0])


def adamw(data, grad, m, v, lr, beta1, beta2, eps, weight_decay, t):
    """Update ``data``, ``m`` and ``v`` in place with one step of AdamW; all arrays are flat.

    1. Decay shrinks the weight itself, by the factor 1 - lr * weight_decay, and nothing else.
    2. m is a running mean of the gradient, m <- beta1 m + (1 - beta1) grad, and v one of its
       square, with beta2. Both started at 0, so after t steps they are too small.
    3. Divided by 1 - beta1**t and 1 - beta2**t they are not: m^ and v^. ``t`` counts from 1.
    4. data moves by -lr m^ / (sqrt(v^) + eps).

    First step, data 1, grad 4, lr 0.1, betas 0.9 and 0.99, no eps, no decay: m = 0.4, v = 0.16,
    m^ = 4, v^ = 16, so data = 0.9. Only the sign of the first gradient matters.

    `data` is the float32 master, or a piece of it: nothing may be concluded from its length.
    Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.
    """
    raise NotImplementedError("06.2: decay, both moments, then the step; all of it in place")


def update_scale(scaler, finite):
    """End a step: choose the loss scale of the next one, from the verdict on this one's gradient.

    ``finite``: the gradient was. All ranks call this with the same verdict.

    ``scaler.scale``     the factor: halved by a bad step, doubled after `every` good ones in a row
    ``scaler.good``      good steps since the scale last changed
    ``scaler.every``     how many it takes
    ``scaler.dynamic``   False for a constant scale of 1: bfloat16 and float32 need no other

    The scale stays within LEAST = 1 and MOST = 2**24. What overflows without a scale has diverged:
    a bad step at scale 1 is a DivergedError. every = 2, from 8: good good bad good bad good good
    gives 8 16 8 8 4 4 8.
    """
    if not scaler.dynamic:
        return
    raise NotImplementedError("06.3: count good steps; halve, or raise DivergedError, or double")
    raise DivergedError(f"the gradient overflows even with a loss scale of {scaler.scale:g}")
    scaler.scale = min(..., MOST) if scaler.scale >= LEAST else ...


def agree(training, step, loss, total, stop):
    """Sum over ranks what each knows a part of; return an Outcome, the same on every rank.

    ``training.sync.squares()`` is this rank's share of the squared norm of the gradient: with ZeRO
    that is the sum over its own chunk. The gradient still has the loss scale in it. After the
    all-reduce, which is given, `squares` is the sum of all shares.

    ``norm``        of the gradient *without* the scale that this step's backward started with
    ``overflow``    some element on some rank is inf or NaN. No rank may update then, and no rank
                    may think otherwise

    2 ranks, scale 8, gradients [24] and [32]: squares 576 + 1024, and the norm is 40 / 8 = 5. With
    gradients [24] and [inf] the norm is inf on both ranks: both skip, though one saw nothing.
    """
    mine = np.array([training.sync.squares(), loss, stop], dtype=np.float64)
    squares, loss, stops = ring.all_reduce(training.comm, mine).tolist()
    raise NotImplementedError("06.4: the norm without the scale, and whether it is finite")
    norm, overflow = sqrt(...), isfinite(...)
    loss = loss / max(1, total)
    if not isfinite(loss) or (overflow and not training.loss_scale.dynamic):
        raise DivergedError(f"step {step}: loss {loss}, norm {norm}: training has diverged")
    return Outcome(loss, norm, total, stops > 0, overflow)


def update(training, step, norm):
    """Clip by the global norm, take the loss scale out, and have the optimiser run. No messages.

    It is called on every rank or on none. ``training.sync.update(rate, number, factor)`` updates
    what this rank keeps, with its gradient times ``factor``, which still has the loss scale in it.

    ``rate``      training.learning_rate(step)
    ``number``    of the update, counted from 1; step counts from 0, and counts skipped steps too,
                  of which there were training.loss_scale.skipped
    ``factor``    takes the scale out, and makes the norm training.clip if it is above that and
                  training.clip is not 0. `norm` is without the scale.

    Scale 8, clip 1, norm 5: the factor is 1/5 / 8.
    """
    raise NotImplementedError("06.5: the factor of the gradient, then training.sync.update(...)")
