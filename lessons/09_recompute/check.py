"""The laws of lesson 09, in the order of its blanks; a test is about the blank in its name.

Your methods are put into a small decoder with dropout 1/2, which is then run with and without them:
forward of two micro-batches, then backward of both, the first one first.
"""

from dataclasses import replace

import numpy as np

from minidist.errors import ConfigError
from minidist.learn.laws import counted
from minidist.nn import At, Chain, DecoderConfig, Recompute, allocate, build_decoder
from minidist.nn.activations import alive
from minidist.plan import activations as plan
from minidist.testing.rows import compare_rows

DECODER = DecoderConfig(
    layers=3, width=8, heads=2, groups=1, hidden=8, vocabulary=7, bias=True, dropout=0.5
)
FIRST = At(4, True, np.arange(2), np.arange(3))
PLACES = [FIRST, replace(FIRST, samples=FIRST.samples + 7)]

SAME_BITS = (
    "recomputing changes no bit: forward runs again on the same input at the same place, so "
    "dropout falls on the same elements; and each gradient is added once."
)


def ids(at):
    """Tokens that are a function of sample and position, for inputs and for labels."""
    return (3 * at.samples[:, None] + 5 * at.positions + at.samples[:, None] ** 2) % 7


def built(wrap, dtype=np.float64):
    """A decoder whose blocks are as `wrap` makes them of a list of blocks."""
    first, *blocks, last = build_decoder(DECODER, ids)
    units = [first, *wrap(blocks), last]
    allocate((p for unit in units for p in unit.parameters()), dtype, gradients=True)
    return units


def ways(module, which):
    """A class of layer with the student's methods in it."""
    kind = type("YourRecompute", (Recompute,), {n: getattr(module, n) for n in which})
    return lambda blocks: [kind(block) for block in blocks]


def of_each(units):
    """Parameters by name, each once."""
    return {p.name: p for unit in units for p in unit.parameters()}


def trained(units, places=PLACES, deferred=False):
    """Losses and gradients, as rows of (name, bits); and how often each gradient was added to."""
    adds = []
    for name, p in of_each(units).items():
        p.grad[...] = 0
        p.accumulate = noted(p, name, adds)
    under_way, later = [], [] if deferred else None
    for at in places:
        x, contexts = ids(at), []
        for unit in units:
            x, ctx = unit.forward(x, at)
            contexts.append(ctx)
        under_way.append((x, contexts))
    for _, contexts in under_way:
        dy = 0.25
        for unit in reversed(units):
            dy = unit.backward(contexts.pop(), dy, later)
    for work in later or ():
        work()
    found = {f"loss {i}": float(x) for i, (x, _) in enumerate(under_way)}
    found["deferred computations"] = len(later or ())
    for name, p in of_each(units).items():
        found[f"gradient of {name}"] = p.grad.copy()
        found[f"additions to {name}"] = adds.count(name)
    return found


def noted(p, name, adds):
    """`accumulate` of a parameter, which notes that it was called."""

    def accumulate(gradient):
        adds.append(name)
        type(p).accumulate(p, gradient)

    return accumulate


def same_bits(world, want, found):
    """Compare two results of `trained`; gradients in their last bits."""
    rows = []
    for name, right in want.items():
        got = found.get(name)
        if isinstance(right, np.ndarray):
            same = right.tobytes() == got.tobytes()
            right, got = sums(right), sums(right) if same else sums(got, right)
        rows.append((name, right, got))
    compare_rows(SAME_BITS, world, rows)


def sums(x, right=None):
    """An array by two of its sums; if it is another than `right`, by how much."""
    text = f"sum {x.sum():.6g}, squares {(x * x).sum():.6g}"
    return text if right is None else f"{text}, off by up to {abs(x - right).max():.3g}"


def world_of(segments="each block", deferred=False):
    late = ", weight gradients deferred" if deferred else ""
    return f"a decoder of 3 blocks, dropout 1/2, {segments} recomputed{late}"


def check_same_bits(wrap, segments="each block"):
    for dtype in (np.float64, np.float32):
        for deferred in (False, True):
            want = trained(built(list, dtype), deferred=deferred)
            found = trained(built(wrap, dtype), deferred=deferred)
            same_bits(f"{world_of(segments, deferred)}, {np.dtype(dtype).name}", want, found)


# --- 09.1 -----------------------------------------------------------------------------------------


def test_forward(exercise):
    """09.1  forward is the layer's own, and keeps its input and no more."""
    for at in (*PLACES, replace(FIRST, samples=np.arange(0)), replace(FIRST, train=False)):
        block = built(list)[1]
        segment = ways(exercise, ["forward"])([block])[0]
        x = np.random.default_rng(1).normal(size=(len(at.samples), 3, 8))
        right = block.forward(x, at)[0]
        y, ctx = segment.forward(x, at)
        world = f"one block, input of {counted(x.nbytes, 'byte')}"
        law = "recomputing changes no result, and keeps the input and the place: (x, at)."
        kept = [
            ("y", "that of the layer", same(right, y, "that of the layer")),
            ("bytes kept", x.nbytes, alive(ctx)),
            ("ctx", "2 things", counted(len(ctx), "thing") if type(ctx) is tuple else repr(ctx)),
        ]
        compare_rows(law, world, kept)
        rows = [("ctx[0]", "x", same(x, ctx[0], "x")), ("ctx[1] is at", True, ctx[1] is at)]
        compare_rows(law, world, rows)


def same(want, got, name):
    """`name` if two arrays have the same bits, else what the second one is."""
    if isinstance(got, np.ndarray) and got.tobytes() == want.tobytes():
        return name
    return sums(got) if isinstance(got, np.ndarray) else repr(got)


def test_forward_leads_to_the_same_gradients(exercise):
    """09.1  ... and backward finds in it what it needs."""
    check_same_bits(ways(exercise, ["forward"]))


# --- 09.2 -----------------------------------------------------------------------------------------


def test_backward(exercise):
    """09.2  all gradients are the same to the last bit, with dropout on."""
    check_same_bits(ways(exercise, ["backward"]))


def test_backward_is_counted(exercise):
    """09.2  ... and what has come back is counted, once, without what was there."""
    told = []
    at = replace(FIRST, recomputed=lambda inner, kept: told.append(alive(inner, besides=kept)))
    block = built(list)[1]
    segment = ways(exercise, ["backward"])([block])[0]
    x = np.random.default_rng(1).normal(size=(2, 3, 8))
    y, ctx = segment.forward(x, at)
    right = alive(block.forward(x, at)[1]) - x.nbytes
    segment.backward(ctx, np.ones_like(y))
    law = "the input was kept all the time; backward brings the rest back, which counts once."
    rows = [("calls of at.recomputed", 1, len(told)), ("bytes that come back", right, sum(told))]
    compare_rows(law, "one block, backward", rows)


# --- 09.3 -----------------------------------------------------------------------------------------


def of_segment(segment, names):
    """A segment for people: a+b."""
    if not isinstance(segment, Recompute) or not isinstance(segment.layer, Chain):
        return f"no Recompute of a Chain but a {type(segment).__name__}"
    return "+".join(names.get(id(layer), "?") for layer in segment.layer.layers)


def test_segments(exercise):
    """09.3  every layer is in one segment, in order; only the last one is shorter."""
    law = "one after the other the segments are the layers; only the last one may be shorter."
    for count in range(8):
        layers = [Chain() for _ in range(count)]
        names = {id(layer): "abcdefgh"[i] for i, layer in enumerate(layers)}
        for length in range(1, count + 2):
            found = [of_segment(s, names) for s in exercise.segments(list(layers), length)]
            want = ["+".join("abcdefgh"[i:count][:length]) for i in range(0, count, length)]
            size = max(len(want), len(found))
            rows = [(f"segment {i}", want[i] if i < len(want) else "none",
                     found[i] if i < len(found) else "none") for i in range(size)]  # fmt: skip
            compare_rows(law, f"{counted(count, 'layer')}, length {length}", rows)
    try:
        exercise.segments([], 0)
        said = "no error"
    except ConfigError:
        said = "ConfigError"
    compare_rows("a segment has a layer at least.", "length 0", [("the end", "ConfigError", said)])


def test_segments_change_no_bit(exercise):
    """09.3  ... and the gradients are the same for every length."""
    for length in (1, 2, 3):
        name = f"segments of {counted(length, 'block')}"
        check_same_bits(lambda blocks, n=length: exercise.segments(blocks, n), name)


# --- 09.4 and 09.5 --------------------------------------------------------------------------------

PEAK = (
    "at the segment at work all its layers are whole; each segment before it has its input; those "
    "after it are gone."
)


def by_walking(layers, length, stream, whole):
    """Bytes at each segment, from the end to the start."""
    sizes = [len(range(start, min(start + length, layers))) for start in range(0, layers, length)]
    return [i * stream + n * whole for i, n in reversed([*enumerate(sizes)])]


def test_segmented(exercise):
    """09.4  the most bytes are where the walk through backward finds them."""
    for layers in range(1, 10):
        for length in range(1, layers + 2):
            for stream, whole in ((1, 1), (1, 3), (2, 34)):
                walk = by_walking(layers, length, stream, whole)
                got = exercise.segmented(layers, length, stream, whole)
                world = (
                    f"{counted(layers, 'layer')}, length {length}, stream {stream}, whole {whole}"
                )
                world += f" (at each segment, from the end: {' '.join(map(str, walk))})"
                compare_rows(PEAK, world, [("the most", max(walk), got)])


def test_segmented_is_what_is_counted(exercise):
    """09.4  ... and where a decoder holds them, counted to the byte."""
    law = "the formula is what is there: bytes of the arrays in all ctx, each storage once."
    blocks = DECODER.layers
    x = np.random.default_rng(1).normal(size=(2, 3, 8))
    whole = alive(built(list)[1].forward(x, FIRST)[1])
    for length in range(1, blocks + 1):
        again = []
        at = replace(FIRST, recomputed=lambda *both, to=again: to.append(both))
        units = built(lambda made, n=length: _given_segments(made, n))[1:-1]
        y, contexts, most = x, [], 0
        for unit in units:
            y, ctx = unit.forward(y, at)
            contexts.append(ctx)
        dy = np.ones_like(y)
        for unit in reversed(units):
            dy = unit.backward(contexts[-1], dy)
            most = max(most, alive(*contexts, *(inner for inner, _ in again)))
            contexts.pop()
            again.clear()
        got = exercise.segmented(blocks, length, x.nbytes, whole)
        compare_rows(law, world_of(f"segments of {length}"), [("bytes, the most", most, got)])


def _given_segments(blocks, length):
    return [Recompute(Chain(*blocks[i : i + length])) for i in range(0, len(blocks), length)]


def test_best_length(exercise):
    """09.5  no other length needs less memory, and no shorter one as little."""
    law = (
        "the best length is about sqrt(layers stream / whole): it is sqrt(layers) only if a layer "
        "keeps no more than its input. Of several with the lowest peak it is the shortest."
    )
    for layers in (1, 2, 3, 4, 9, 16, 32, 64, 100):
        for stream, whole in ((1, 1), (1, 4), (1, 17), (5, 9)):
            peaks = [max(by_walking(layers, n, stream, whole)) for n in range(1, layers + 1)]
            want = peaks.index(min(peaks)) + 1
            got = exercise.best_length(layers, stream, whole)
            rows = [("the best length", want, got)]
            if got != want and isinstance(got, int) and 1 <= got <= layers:
                rows[0] = ("the best length", f"{want}, with a peak of {min(peaks)}",
                           f"{got}, with a peak of {peaks[got - 1]}")  # fmt: skip
            world = f"{counted(layers, 'layer')}, stream {stream}, whole {whole}"
            compare_rows(law, world, rows)
    shape = plan.Activations(2, 3, 8, 2, 1, 4, 8, 7, layers=3, dropout=True)
    got = exercise.best_length(3, shape.stream, shape.whole_block)
    compare_rows(law, "the decoder of this check", [("the best length", 1, got)])
