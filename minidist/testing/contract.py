"""What every world of ranks must do: one list of checks for in-process ranks, MPI, and any other.

    for check in contract.CHECKS:
        run(check, ranks=3)                     in-process ranks

    comm = world()                              the same under mpirun
    for check in contract.CHECKS:
        check(comm)

A stand-in that accepts what the real transport refuses lets tests pass and programs fail
(ai2cm/fv3gfs-wrapper#60), and a transport that takes any layout may transpose (numba-mpi#31). So
each check is written once, for any number of ranks, and returns or raises on every rank. `REFUSED`
is wrong use, with the words of the error: they are the same too.
"""

from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np

from minidist.collectives import ring
from minidist.comm import Comm
from minidist.errors import ArrayError, RankError
from minidist.testing import fake_device
from minidist.testing.laws import combined, values


def all_pairs_in_order(comm: Comm) -> None:
    """Every rank sends messages of many sizes to every rank; content and order are kept."""
    sizes, everyone = [3, 0, 1, 70_000, 2], range(comm.size)
    got = {(peer, i): np.full(n, -1.0) for peer in everyone for i, n in enumerate(sizes)}
    requests = [comm.irecv(x, peer) for (peer, _), x in got.items()]
    for i, n in enumerate(sizes):
        requests += [comm.isend(values(comm.rank, n) + 100 * i + peer, peer) for peer in everyone]
    comm.wait_all(requests)
    for (peer, i), x in got.items():
        np.testing.assert_array_equal(x, values(peer, x.size) + 100 * i + comm.rank)


def waits_in_another_order(comm: Comm) -> None:
    """Two receives with one source and tag get their own messages, whichever is waited for."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    first, second = np.zeros(2), np.zeros(2)
    one, two = comm.irecv(first, left), comm.irecv(second, left)
    sent = [comm.isend(np.full(2, 10.0 * i + comm.rank), right) for i in (1, 2)]
    two.wait()
    assert second[0] == 20 + left
    one.wait()
    assert first[0] == 10 + left
    comm.wait_all(sent)


def tags_and_channels(comm: Comm) -> None:
    """A message is received only under its own tag and channel."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    first, second = comm.channel("first"), comm.channel("second")
    got = np.zeros((6, 1))
    last = (1 << 15) - 1
    places = [(comm, 0), (first, 0), (second, 0), (second, 1), (comm, last), (comm, last - 1)]
    order = [3, 2, 0, 5, 4, 1]
    requests = [places[i][0].irecv(got[i], left, places[i][1]) for i in order]
    for i, (where, tag) in enumerate(places):
        requests.append(where.isend(np.array([10.0 * i + comm.rank]), right, tag))
    comm.wait_all(requests)
    np.testing.assert_array_equal(got[:, 0], 10.0 * np.arange(6) + left)


def any_number_travels(comm: Comm) -> None:
    """Every numeric dtype arrives bit by bit; so do arrays of no axes and with odd strides."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    whole = np.arange(6).reshape(2, 3)
    dtypes = ["i1", "u2", "f2", ml_dtypes.bfloat16, "f4", "c16", "?", "M8[s]"]
    likes: list[Any] = [whole.astype(dtype) for dtype in dtypes]
    likes += [np.array(7.0), np.zeros((1, 4))[:, :1], np.zeros((0, 5))[:, ::2]]
    likes += [np.lib.stride_tricks.as_strided(np.ones(1), (1, 1), (80, 16))]
    for like in likes:
        got = np.zeros(like.shape, like.dtype)
        comm.exchange(like, right, got, left)
        assert got.tobytes() == like.tobytes(), f"{like.dtype} of shape {like.shape}"


def halves_of_an_exchange(comm: Comm) -> None:
    """Either half may be left out, and a rank may send to itself."""
    got = np.zeros(1)
    for rank in range(comm.size):
        if comm.rank == 0:
            comm.exchange(np.array([5.0 + rank]), rank, got if rank == 0 else None, 0)
        elif comm.rank == rank:
            comm.exchange(None, None, got, 0)
    assert got[0] == 5.0 + comm.rank


def polling(comm: Comm) -> None:
    """`test` says when a message is there, `wait_any` which one is."""
    if comm.rank:
        comm.recv(np.zeros(1), 0)
        comm.send(np.array([float(comm.rank)]), 0)
        return
    got = np.zeros((comm.size, 1))
    waiting = {comm.irecv(got[r], r): r for r in range(1, comm.size)}
    for rank in range(comm.size - 1, 1, -1):  # only this rank may answer now
        comm.send(np.zeros(1), rank)
        assert waiting.pop(comm.wait_any(list(waiting))) == rank
    for request in waiting:
        assert not request.test()
        comm.send(np.zeros(1), 1)
        while not request.test():
            pass
    assert got[:, 0].tolist() == list(range(comm.size))


def groups(comm: Comm) -> None:
    """Splits order by (key, rank), exclude colour None, nest, and never mix their messages."""
    color = None if comm.rank == 1 else ("even", "odd")[comm.rank % 2]
    group = comm.split(color, key=-comm.rank, name="parity")
    mine = [r for r in range(comm.size) if r != 1 and r % 2 == comm.rank % 2][::-1]
    assert (group is None) == (comm.rank == 1)
    if group is not None:
        assert (group.size, group.name, group.gather_objects(comm.rank)) == (
            len(mine),
            "parity",
            mine,
        )
        assert ring.all_reduce(group, np.array([2.0**comm.rank]))[0] == sum(2.0**r for r in mine)
        inner = group.split(0)
        assert inner is not None
        assert inner.gather_objects(inner.rank) == list(range(len(mine)))
    comm.barrier()


def objects(comm: Comm) -> None:
    """Objects are gathered by rank and broadcast, as copies; control is not traffic."""
    before = comm.traffic.messages
    everyone = comm.gather_objects({"rank": comm.rank, "text": "x" * 1000 * comm.rank})
    assert [e["rank"] for e in everyone] == list(range(comm.size))
    assert [len(e["text"]) for e in everyone] == [1000 * r for r in range(comm.size)]
    assert comm.bcast_object(("from", comm.rank), root=comm.size - 1) == ("from", comm.size - 1)
    assert comm.traffic.messages == before


def collectives_in_flight(comm: Comm) -> None:
    """Collectives may be waited for in any order, and control in between does not block them."""
    started = [
        ring.all_reduce.start(comm, np.full(30_000, comm.rank + i, np.float32)) for i in range(4)
    ]
    if comm.rank == 0:
        started[0].wait()  # the others are in the barrier, and must take part from there
    comm.barrier()
    for i in np.roll([0, 1, 2, 3], comm.rank):
        total = sum(range(comm.size)) + i * comm.size
        assert (started[i].wait() == total).all()


def device_arrays(comm: Comm) -> None:
    """Arrays of a device travel, and what changes is the caller's memory, within its view."""
    n, xp = 10, fake_device.xp
    want = combined(comm.size, n, "sum", np.float32)
    room = xp.asarray(np.full(n + 2, -1, np.float32))
    room[1:-1] = xp.asarray(values(comm.rank, n, np.float32))
    out = xp.empty(n, np.float32)
    np.testing.assert_array_equal(ring.all_reduce(comm, room[1:-1], out).get(), want)
    np.testing.assert_array_equal(room[1:-1].get(), values(comm.rank, n))
    handle = ring.all_reduce.start(comm, room[1:-1])
    comm.barrier()
    handle.wait()
    np.testing.assert_array_equal(room.get(), [-1, *want, -1])


REFUSED: list[tuple[Callable[[Comm], object], type[Exception], str]] = [
    (lambda c: c.send(np.zeros(1), c.size), RankError, "there is no rank"),
    (lambda c: c.recv(np.zeros(1), -1), RankError, "no rank -1"),
    (lambda c: c.send(np.zeros(1), cast(int, 0.0)), RankError, "no rank 0.0"),
    (lambda c: c.exchange(np.zeros(1), False, None, None), RankError, "no rank False"),
    (lambda c: c.send(np.zeros(1), 0, tag=-1), RankError, "tag -1 is not an integer from 0"),
    (lambda c: c.exchange(np.zeros(1), 0, np.zeros(1), 0, 1 << 15), RankError, "tag 32768"),
    (lambda c: c.exchange(np.ones(1), c.size, np.ones(1), 0), RankError, "there is no rank"),
    (lambda c: c.send([1.0], 0), ArrayError, "needs an array, got list"),
    (lambda c: c.send(3.0, 0), ArrayError, "needs an array, got float"),
    (lambda c: c.send(np.zeros((2, 3)).T, 0), ArrayError, "shape (3, 2) is not C-contiguous"),
    (lambda c: c.recv(np.zeros((2, 3), order="F"), 0), ArrayError, "not C-contiguous"),
    (lambda c: c.exchange(np.zeros(3), 0, np.zeros(6)[::2], 0), ArrayError, "not C-contiguous"),
    (lambda c: c.send(np.array(["a", None]), 0), ArrayError, "dtype object cannot travel"),
    (lambda c: c.send(np.zeros(2, ">i4"), 0), ArrayError, "native byte order"),
    (lambda c: c.recv(np.broadcast_to(1.0, ()), 0), ArrayError, "read-only"),
    (lambda c: ring.all_reduce(c, np.zeros((2, 3)).T), ArrayError, "not C-contiguous"),
    (lambda c: ring.all_reduce(c, np.zeros(4)[::2]), ArrayError, "not C-contiguous"),
    (lambda c: c.bcast_object(1, root=c.size), RankError, "bcast_object"),
    (lambda c: c.wait_any([]), RankError, "no request was given"),
]
"""Wrong use: what is done, the error, and words of its message."""


def refusals(comm: Comm) -> list[str]:
    """Wrong use is an error before anything is sent; return the messages."""
    before, messages = comm.traffic.messages, []
    for action, error, words in REFUSED:
        try:
            action(comm)
            raise AssertionError(f"rank {comm.rank}: not refused, should say {words!r}")
        except error as refusal:
            messages.append(str(refusal))
            assert words in messages[-1], messages[-1]
            assert messages[-1].startswith(f"rank {comm.rank}, "), messages[-1]
    assert comm.traffic.messages == before
    comm.barrier()
    return messages


CHECKS: list[Callable[[Comm], object]] = [
    all_pairs_in_order,
    waits_in_another_order,
    tags_and_channels,
    any_number_travels,
    halves_of_an_exchange,
    polling,
    groups,
    objects,
    collectives_in_flight,
    device_arrays,
    refusals,
]
