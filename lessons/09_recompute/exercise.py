"""Lesson 09: activation checkpointing. Fill in the five blanks, from top to bottom.

    ./run check 09          which blank is next, or the smallest case that goes wrong

What a layer is (minidist/nn/layer.py):

    y, ctx = layer.forward(x, at)               ctx: all that backward will need
    dx     = layer.backward(ctx, dy, later)     adds the weights' gradients on the way

A layer remembers nothing itself: what is kept from forward to backward is ctx, and nothing else.
`at` is the place: the step, the samples, the positions. Dropout is a function of the place and of
the layer's name, not of a stream of random numbers.

09.1 and 09.2 are the two methods of a layer that holds another one, `segment.layer`, which may be a
chain of several. The check puts yours into a decoder with dropout and trains.
"""

from minidist.errors import ConfigError
from minidist.nn import Chain, Recompute


def forward(segment, x, at):
    """Return (y, ctx) of the layer inside, where ctx is only what it takes to run it again.

    ``segment.layer`` is run as usual. Its ctx is forgotten: the new ctx is ``(x, at)``.

    Memory    a block of a decoder keeps some 17 times its input, this layer once its input.
    """
    raise NotImplementedError("09.1: run the layer; return its y, and (x, at) in place of its ctx")
    return ..., (x, at)


def backward(segment, ctx, dy, later=None):
    """Run forward once more, then backward. Return dx, the gradient of the input.

    ``ctx`` is the (x, at) of `forward`, and ``later`` goes to the layer's backward as it is.

    Between the two, say ``at.recomputed(inner, ctx)``: `inner` is the layer's ctx that has come
    back, and `ctx` what was there all the time. Whoever counts activations counts by that.

    The gradients are those without this layer, bit for bit: so forward has to be at the same place,
    and what is done once without it is done once.
    """
    x, at = ctx
    raise NotImplementedError("09.2: forward again, tell at.recomputed, then backward")
    _, inner = ...
    return segment.layer.backward(inner, ...)


def segments(layers, length):
    """Return the layers in segments of `length`, each computed again: a list of `Recompute`.

    ``Recompute(layer)`` is a layer with the two methods above, and ``Chain(a, b, c)`` is one layer
    made of three. The last segment may be shorter.

    5 layers, length 2: Recompute(Chain(a, b)), Recompute(Chain(c, d)), Recompute(Chain(e))
    """
    if length < 1:
        raise ConfigError(f"segments of {length} layers: the length must be at least 1")
    raise NotImplementedError("09.3: cut the layers; put each cut into a Chain and a Recompute")
    return [Recompute(Chain(...)) for start in range(...)]


def segmented(layers, length, stream, whole):
    """Return the most bytes of activations at once, over the whole of backward.

    ``layers``    how many there are, all alike, 1 or more
    ``length``    of a segment, in layers
    ``stream``    bytes of a layer's input
    ``whole``     bytes of all that a layer keeps, its input included

    Backward comes from the end. While a segment is at work it is whole again, all its layers. The
    segments before it have their inputs only, the segments after it are gone. If `length` does not
    divide `layers`, the last segment is shorter, and the most may be there or at the one before.

    5 layers, length 2, stream 1, whole 3: the last one has 2 inputs before it and 3 of its own, 5;
    the one before it has 1 + 6 = 7; the first one 0 + 6. So 7.
    """
    full, rest = divmod(layers, length)
    raise NotImplementedError("09.4: the most at a full segment, and at a shorter last one, if any")
    return max(...)


def best_length(layers, stream, whole):
    """Return the segment length with the lowest peak; the shortest, if several have it.

    The arguments are those of `segmented`. 16 layers with whole = stream: 3, with a peak of 7.
    """
    raise NotImplementedError("09.5: which length from 1 to `layers` has the lowest `segmented`?")
