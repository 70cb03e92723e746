"""All-to-all: every rank has something for every rank.

    before   rank 0: [00 01 02]   rank 1: [10 11 12]   rank 2: [20 21 22]     "sr": from s to r
    after    rank 0: [00 10 20]   rank 1: [01 11 21]   rank 2: [02 12 22]     a transpose

In round s, rank r sends to r + s and receives from r - s: each rank sends one message and receives
one, so no wire carries two at once. Experts in a mixture of experts get their tokens this way, with
another number of tokens for each pair of ranks (MPI_Alltoallv).
"""

from collections.abc import Sequence
from typing import Any

from minidist.arrays import Array
from minidist.collectives.buffers import flat_view, pieces
from minidist.collectives.steps import Collective, Exchange, Steps
from minidist.comm.checks import check_disjoint, check_writable
from minidist.errors import ArrayError


@Collective
def all_to_all(
    comm: Any,
    x: Array,
    out: Array,
    send_offsets: Sequence[int] | None = None,
    recv_offsets: Sequence[int] | None = None,
) -> Steps:
    """Send piece r of ``x`` to rank r, for all r; piece s of ``out`` comes from rank s. Return it.

    ``x`` and ``out`` are cut by `bounds` (equal on all ranks if N divides the size), or by offsets:
    N + 1 rising numbers from 0 to the size, such that what a rank sends to another is as long as
    what that one expects. Empty pieces are legal; their empty messages are sent too.

    All ranks call it. Each sends N - 1 messages, all of ``x`` but its own piece.
    """
    send, recv = flat_view(comm, x), flat_view(comm, out)
    check_writable(recv, comm, "result")
    check_disjoint(send, recv, comm, "result")
    to, came = pieces(comm, send, send_offsets), pieces(comm, recv, recv_offsets)
    n, r = comm.size, comm.rank
    if (to(r).size, send.dtype) != (came(r).size, recv.dtype):
        raise ArrayError(
            f"{comm.at('result')}: its own piece is {to(r).size} x {send.dtype} in the input, but "
            f"{came(r).size} x {recv.dtype} in the result; make both equal"
        )
    came(r)[...] = to(r)
    for s in range(1, n):
        yield Exchange(comm, to(r + s), (r + s) % n, came(r - s), (r - s) % n)
    return out
