"""Ranges and boxes: what a rank keeps, said in a way that any other cut understands.

    a (4, 5) tensor, elements [7, 17)         . . . . .
    in row-major order                        . . a a a       a  rows 1:2, columns 2:5
                                              b b b b b       b  rows 2:3, columns 0:5
                                              c c . . .       c  rows 3:4, columns 0:2

A flat range of an n-dimensional tensor is at most 2n - 1 boxes: a beginning, a middle of whole
rows, an end, and beginning and end are ranges of one dimension less. Boxes of two cuts meet in
boxes, so whoever reads a checkpoint need not know how many ranks wrote it.
"""

from collections.abc import Iterator, Sequence
from math import prod

from minidist.nn import Box, Shard


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[Box]:
    """Yield the boxes of the row-major range [start, stop) of a tensor, in the order of the range.

    None of them is empty; a tensor of no dimensions is one box, ().
    """
    if start >= stop:
        return
    if not shape:
        yield ()
        return
    row = prod(shape[1:])
    first, last = start // row, (stop - 1) // row
    if first == last and stop - start < row:
        for inner in boxes(shape[1:], start - first * row, stop - first * row):
            yield ((first, first + 1), *inner)
        return
    if start % row:
        yield from boxes(shape, start, (first + 1) * row)
        first += 1
    whole = stop // row
    if first < whole:
        yield ((first, whole), *((0, n) for n in shape[1:]))
    yield from boxes(shape, max(start, whole * row), stop)


def boxes_of(shard: Shard) -> Iterator[Box]:
    """Yield the boxes of a shard, by their place in the whole tensor."""
    p = shard.parameter
    for box in boxes(p.local, shard.start, shard.stop):
        origin = [a for a, _ in p.box]
        yield tuple((a + o, b + o) for (a, b), o in zip(box, origin, strict=True))


def size(box: Box) -> int:
    """Return the number of elements."""
    return prod(b - a for a, b in box)


def common(one: Box, two: Box) -> Box | None:
    """Return the box that two boxes of one tensor have in common; None if there is none."""
    met = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, two, strict=True))
    return met if all(a < b for a, b in met) else None


def inside(box: Box, outer: Box) -> tuple[slice, ...]:
    """Return the slices that cut a box out of an array that holds the box `outer`."""
    return tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(box, outer, strict=True))
