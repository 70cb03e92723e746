"""The segmented ring: while one segment of a piece travels, the one before it is added.

In the plain ring a rank receives a whole piece, and the wire is idle while it adds; then it sends,
and the adder is idle. Cut each piece into K segments, and the two overlap:

    plain        wire  [ piece ]         [ piece ]             K = 3   wire  [0][1][2][0][1][2]
                 add            [ sum ]           [ sum ]              add      [0][1][2][0][1][2]

It costs K times as many messages, so it pays for large arrays only, and only where something else
than this core moves the bytes: a network card, a copy engine. Between processes of one node the
same core copies and adds, one after the other; there it gains a smaller work buffer (one piece and
two segments instead of two pieces), and no time. Open MPI calls it "segmented ring", in segments of
1 MiB.

All-gather adds nothing, so that half stays a plain ring.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minidist.arrays import Array
from minidist.collectives import ring
from minidist.collectives.buffers import check_result, flat_view, own_piece, pieces
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.errors import ConfigError
from minidist.ops.reduce import combine

SEGMENT = 1 << 20  # bytes


def segments(nbytes: int, segment: int = SEGMENT) -> int:
    """Return K, into how many segments a piece of ``nbytes`` is cut: at least 2."""
    return max(2, -(-nbytes // segment))


@Collective
def reduce_scatter(
    comm: Any,
    x: Array,
    out: Array | None = None,
    op: str = "sum",
    offsets: Sequence[int] | None = None,
    segment: int = SEGMENT,
) -> Steps:
    """Combine ``x`` over all ranks; rank r ends with piece r of the result, and returns it.

    As `ring.reduce_scatter`, with the same bits, in segments of about ``segment`` bytes (equal on
    all ranks). All ranks call it. Each sends K (N - 1) messages, with K = `segments` of the longest
    piece, and the bytes of the ring. The work buffer is one piece and two segments.
    """
    flat = flat_view(comm, x)
    piece = pieces(comm, flat, offsets)
    if not isinstance(segment, int) or segment < 1:
        raise ConfigError(f"{comm.at('segment')}: {segment!r} bytes; needs an integer from 1 up")
    own = own_piece(comm, flat, piece, out, op)
    n, r = comm.size, comm.rank
    longest = max(piece(i).size for i in range(n)) if n > 1 else 0
    count = segments(longest * flat.itemsize, segment)
    width = -(-longest // count)

    def part(whole: Array, g: int) -> Array:
        return whole[g * width : (g + 1) * width]

    with comm.scratch((count + 2) * width, like=flat) as room:
        landing, sums = room[: 2 * width], room[2 * width :]
        add: Callable[[], object] | None = None
        for step in range((n - 1) * count):
            s, g = divmod(step, count)
            mine = part(piece(r - 2 - s), g)
            passing = part(piece(r - 1) if s == 0 else sums[: piece(r - 1 - s).size], g)
            arriving = part(landing, step % 2)[: mine.size]
            yield Exchange(comm, passing, (r + 1) % n, arriving, (r - 1) % n, meanwhile=add)
            total = part(own if s == n - 2 else sums, g)[: mine.size]
            add = partial(combine, op, arriving, mine, out=total)
        if add is not None:
            add()
    return own


@Collective
def all_reduce(
    comm: Any, x: Array, out: Array | None = None, op: str = "sum", segment: int = SEGMENT
) -> Steps:
    """Combine ``x`` over all ranks, so that every rank has the same result, and return it.

    As `ring.all_reduce`, with the same bits. All ranks call it. Each sends (K + 1) (N - 1)
    messages and the bytes of the ring.
    """
    if out is None:
        yield from reduce_scatter.steps(comm, x, op=op, segment=segment)
        return (yield from ring.all_gather.steps(comm, x))
    check_result(comm, out, x)
    own = pieces(comm, flat_view(comm, out), None)(comm.rank)
    yield from reduce_scatter.steps(comm, x, own, op, segment=segment)
    return (yield from ring.all_gather.steps(comm, out))
