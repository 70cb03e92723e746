"""Lesson 03: all-reduce, from a server to a ring. Fill in the six blanks, from top to bottom.

    ./run check 03          which blank is next, or the smallest case that goes wrong

Each function is the body of a collective: a generator that says what to exchange, and computes in
between. It never waits itself: whoever drives it decides how. So the same few lines block, run
while something else is computed, or are simulated with a thousand ranks (minidist/collectives/
steps.py).

    yield Exchange(comm, send, to, recv, source)      send one array, receive another, at once
    yield Exchange(comm, send=x, to=3)                only send
    yield Exchange(comm, recv=y, source=3)            only receive

After the `yield` the array that came is in `recv`. Use these and nothing else to send:

    comm.rank, comm.size        who am I, and how many are we: r and n in the code, N in the text
    combine(op, a, b, out=c)    c = a op b, elementwise; c may be a or b
    piece(i)                    piece i of a flat array, a view; i counts modulo N, so piece(-1) is
                                the last one. 4 elements on 3 ranks: [0:2] [2:3] [3:4]

Arguments are checked and work arrays are there already; what is missing is the algorithm.
"""

from minidist.bounds import bounds
from minidist.collectives.buffers import (
    check_result,
    flat_view,
    own_piece,
    pieces,
    working_array,
)
from minidist.collectives.folding import folded
from minidist.collectives.steps import Collective, Exchange
from minidist.collectives.tree import family
from minidist.comm.checks import check_peer, check_writable
from minidist.ops.reduce import combine


@Collective
def server_all_reduce(comm, x, out=None, op="sum", root=0):
    """Combine ``x`` over all ranks on the server ``root``, which sends the result to everybody.

    Before    `result` holds this rank's own array, on every rank; `others` are all ranks but root.
    After     `result` holds the combination of all, on every rank.
    Bytes     root sends N - 1 whole arrays, each other rank one.

    3 ranks, x = [r + 1]:  rank 1 sends [2], rank 2 sends [3]; the server adds them to its own [1],
    one after the other, and sends [6] to ranks 1 and 2. Here is what the others do.
    """
    check_peer(root, comm, "root")
    result = working_array(comm, x, out, op)
    others = [r for r in range(comm.size) if r != root]
    if comm.rank != root:
        yield Exchange(comm, send=result, to=root)
        yield Exchange(comm, recv=result, source=root)
        return x if out is None else out
    with comm.scratch(result.size if others else 0, like=result) as arriving:
        raise NotImplementedError(
            "03.1: receive the array of each other rank into `arriving` and combine it with "
            "`result`; then send `result` to all of them"
        )
    return x if out is None else out


@Collective
def broadcast(comm, x, root=0):
    """Copy ``x`` of rank ``root`` into ``x`` of every rank.

    Before    `whole` is right on root. `parent` is the rank to hear from, None on root; `children`
              are the ranks to tell, the one with the fewest ranks behind it first.
    After     `whole` is right on every rank.
    Bytes     N - 1 whole arrays in all, of which root sends log2 N, rounded up.

    3 ranks, root 0: 0 sends to 2, then to 1. 8 ranks: 0 sends to 4, 2, 1; then 4 to 6, 5; 2 to 3;
    6 to 7. A rank with many ranks behind it should hear early.
    """
    check_peer(root, comm, "root")
    whole = flat_view(comm, x)
    parent, children = family(comm, root)
    if parent is not None:
        check_writable(whole, comm, "result")
    raise NotImplementedError("03.2: hear from `parent`, if there is one, then tell `children`")
    yield Exchange(comm, ...)
    return x


@Collective
def reduce_scatter(comm, x, out=None, op="sum", offsets=None):
    """Combine ``x`` over all ranks, so that rank r ends with piece r of the result, in `own`.

    Before    every rank has a whole array, `piece(0)` to `piece(n - 1)`. They may not change, and
              `own`, where the result goes, may be piece r itself.
    After     `own` of rank r holds piece r of the combination; nothing else has changed.
    Bytes     N - 1 messages: all pieces but piece r, each once. To the right, from the left.

    3 ranks, pieces A B C; c01 is piece C of ranks 0 and 1, combined:

        step 0    rank 0 sends c0 to 1      rank 1 sends a1 to 2      rank 2 sends b2 to 0
        step 1    rank 0 sends b20 to 1     rank 1 sends c01 to 2     rank 2 sends a12 to 0
        after     rank 0 has a120           rank 1 has b201           rank 2 has c012

    So in step s a rank sends piece r - 1 - s and receives piece r - 2 - s, and adds its own to it.
    `room` has space for two pieces of `longest` elements: a message that is still on its way must
    not be overwritten by the next one, so they take turns.
    """
    flat = flat_view(comm, x)
    piece = pieces(comm, flat, offsets)
    own = own_piece(comm, flat, piece, out, op)
    n, r = comm.size, comm.rank
    longest = max(piece(i).size for i in range(n)) if n > 1 else 0
    with comm.scratch(2 * longest, like=flat) as room:
        passing = piece(r - 1)
        for s in range(n - 1):
            mine = piece(r - 2 - s)
            arriving = room[s % 2 * longest :][: mine.size]
            raise NotImplementedError(
                "03.3: send `passing` to the right and receive `arriving` from the left; combine "
                "it with `mine`, into `arriving`, and in the last step into `own`; pass that on"
            )
            yield Exchange(comm, ...)
    return own


@Collective
def all_gather(comm, x, out=None, offsets=None):
    """Collect the pieces of all ranks, so that every rank has the whole.

    Before    piece(r) is right on rank r, on every rank.
    After     piece(0) to piece(n - 1) are right, on every rank.
    Bytes     N - 1 messages: all pieces but piece r + 1, each once. To the right, from the left.

    3 ranks, pieces A B C:

        step 0    rank 0 sends A to 1       rank 1 sends B to 2       rank 2 sends C to 0
        step 1    rank 0 sends C to 1       rank 1 sends A to 2       rank 2 sends B to 0
    """
    whole = x if out is None else out
    flat = flat_view(comm, whole)
    check_writable(flat, comm, "result")
    piece = pieces(comm, flat, offsets)
    n, r = comm.size, comm.rank
    if out is not None:
        mine = flat_view(comm, x)
        check_result(comm, piece(r), mine)
        piece(r)[...] = mine
    for s in range(n - 1):
        raise NotImplementedError("03.4: pass the piece on that came in the step before")
        yield Exchange(comm, ...)
    return whole


@Collective
def all_reduce(comm, x, out=None, op="sum"):
    """Combine ``x`` over all ranks, so that every rank has the whole result: a ring all-reduce.

    Before    every rank has a whole array x.
    After     `out` holds the combination of all, and x is as it was; without `out`, x holds it.
    Bytes     2 (N - 1) messages; all pieces but r, then all but r + 1: 2 (N - 1) / N of the array.

    A collective is a part of another one by `yield from other.steps(comm, ...)`, which gives what
    the other one returns. 3 ranks: reduce-scatter leaves A on 0, B on 1, C on 2; all-gather does
    the rest. Here are both; with `out`, let the first one write where the second one will read:
    `pieces(comm, flat_view(comm, out))(comm.rank)`.
    """
    if out is not None:
        check_result(comm, out, x)
    raise NotImplementedError(
        "03.5: reduce_scatter, then all_gather; first in place, then with out"
    )
    return (yield from all_gather.steps(comm, ...))


@Collective
def halving_all_reduce(comm, x, out=None, op="sum"):
    """Combine ``x`` over all ranks by halving and doubling. Given; the work is 03.6, below.

    `folded` makes a power of two of workers from any number of ranks (minidist/collectives/
    folding.py): the others give their array to a worker before, and get the result after.
    """
    result = working_array(comm, x, out, op)
    yield from folded(comm, result, op, halve_and_double)
    return x if out is None else out


def halve_and_double(comm, result, room, op, workers):
    """Combine `result` in place over all workers, whose number is a power of two.

    Before    `result` is this worker's whole array, `room` a work array of the same size; `me` is
              the number of this worker, and `rank(w)` the rank of worker w, to send to.
    After     `result` holds the combination of all workers.
    Bytes     2 log2(power) messages, 2 (power - 1) / power of the array.

    part(w, width) is the range of the `width` workers around worker w. 4 workers, pieces A B C D:

        width 2    0 gives [C D] to 2 and keeps [A B]; 2 gives [A B] to 0; 1 and 3 do the same
        width 1    0 gives [B] to 1 and keeps [A]; 1 keeps [B], 2 keeps [C], 3 keeps [D]: complete
        width 1    0 and 1 exchange [A] and [B], 2 and 3 exchange [C] and [D]
        width 2    0 and 2 exchange [A B] and [C D], 1 and 3 do the same

    With 3 ranks, rank 0 gives its array to rank 1, and there are two workers: ranks 1 and 2.
    """
    me, power, rank = workers
    cut = bounds(result.size, power)

    def part(worker, width):
        first = worker // width * width
        return result[cut[first] : cut[first + width]]

    raise NotImplementedError(
        "03.6: halve: width = power / 2, power / 4, ... 1; then double: width = 1, 2, ... "
        "power / 2; the partner is worker me ^ width"
    )
    yield Exchange(comm, ...)
