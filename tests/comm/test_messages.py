"""Point to point between in-process ranks: content, order, tags, and waiting."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.errors import ArrayError, DeadlockError, MismatchError, RankError
from minidist.testing.laws import values

worlds = st.fixed_dictionaries(
    {"ranks": st.integers(1, 6), "seed": st.integers(0, 10**6), "synchronous": st.booleans()}
)


@given(worlds, st.lists(st.integers(0, 9), max_size=6))
def test_every_rank_reaches_every_rank_in_order(world, sizes):
    def program(comm):
        everyone = range(comm.size)
        got = {(peer, i): np.full(n, -1.0) for peer in everyone for i, n in enumerate(sizes)}
        requests = [comm.irecv(got[p, i], p) for i in range(len(sizes)) for p in everyone]
        for i, n in enumerate(sizes):
            requests += [comm.isend(values(comm.rank, n) + 100 * i + p, p) for p in everyone]
        comm.wait_all(requests)
        for (peer, i), x in got.items():
            np.testing.assert_array_equal(x, values(peer, x.size) + 100 * i + comm.rank)

    run(program, **world)


@given(worlds)
def test_tags_and_channels_keep_messages_apart(world):
    def program(comm):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        first, second = comm.channel("first"), comm.channel("second")
        got = np.zeros((4, 1))
        requests = [
            second.irecv(got[3], left, tag=1),
            second.irecv(got[2], left),
            comm.irecv(got[0], left),
            first.irecv(got[1], left),
        ]
        for i, (where, tag) in enumerate([(comm, 0), (first, 0), (second, 0), (second, 1)]):
            requests.append(where.isend(np.array([10.0 * i + comm.rank]), right, tag))
        comm.wait_all(requests)
        np.testing.assert_array_equal(got[:, 0], 10.0 * np.arange(4) + left)

    run(program, **world)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint16, np.float16, ml_dtypes.bfloat16, np.complex128, np.bool_]
)
def test_any_number_travels(dtype):
    def program(comm):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        y = np.zeros((2, 3), dtype)
        comm.exchange(x, 1 - comm.rank, y, 1 - comm.rank)
        return y

    want = np.arange(6).reshape(2, 3).astype(dtype)
    for y in run(program, ranks=2):
        assert y.dtype == want.dtype
        assert y.tobytes() == want.tobytes()


def test_a_rank_may_send_to_itself():
    def program(comm):
        y = np.zeros(2)
        comm.exchange(np.array([1.0, 2.0]), comm.rank, y, comm.rank)
        return y.tolist()

    assert run(program, ranks=1) == [[1, 2]]


def test_half_an_exchange():
    def program(comm):
        y = np.zeros(1)
        if comm.rank == 0:
            comm.exchange(np.ones(1), 1, None, None)
        else:
            comm.exchange(None, None, y, 0)
        return y[0]

    assert run(program, ranks=2, synchronous=True) == [0, 1]


def test_a_send_is_a_copy():
    def program(comm):
        x = np.ones(1)
        if comm.rank == 0:
            comm.send(x, 1)
            x[0] = 5
            comm.barrier()
        else:
            comm.barrier()
            comm.recv(x, 0)
        return x[0]

    assert run(program, ranks=2) == [5, 1]


def test_a_synchronous_send_reads_the_buffer_when_it_is_taken():
    # As a real rendezvous: whoever writes into the buffer too early is found out.
    def program(comm):
        x = np.ones(1)
        if comm.rank == 0:
            request = comm.isend(x, 1)
            x[0] = 5
            comm.barrier()
            request.wait()
        else:
            comm.barrier()
            comm.recv(x, 0)
        return x[0]

    assert run(program, ranks=2, synchronous=True) == [5, 5]


def test_wait_any_returns_what_is_complete():
    def program(comm):
        if comm.rank:
            comm.recv(np.zeros(1), 0)
            comm.send(np.array([float(comm.rank)]), 0)
            return None
        got = np.zeros((3, 1))
        requests = {comm.irecv(got[r], r): r for r in (1, 2)}
        order = []
        for go in (2, 1):
            comm.send(np.zeros(1), go)
            done = comm.wait_any(list(requests))
            order.append(requests.pop(done))
            assert done.done
        return order, got[:, 0].tolist()

    for seed in range(5):
        assert run(program, ranks=3, seed=seed)[0] == ([2, 1], [0, 1, 2])


def test_test_says_whether_a_message_is_there():
    def program(comm):
        if comm.rank == 0:
            y = np.zeros(1)
            request = comm.irecv(y, 1)
            assert not request.done
            comm.send(np.ones(1), 1)
            polls = 0
            while not request.test():
                polls += 1
            assert request.test()
            return y[0]
        comm.recv(np.zeros(1), 0)
        comm.send(np.full(1, 7.0), 0)
        return None

    assert run(program, ranks=2)[0] == 7


@pytest.mark.parametrize("nbytes", [64, 8 << 20])
@pytest.mark.parametrize("ranks", [2, 4])
def test_sending_first_on_both_sides_is_a_deadlock_whatever_the_size(ranks, nbytes):
    # Works at 1 KiB and hangs at 1 MiB, for a library buffers small messages (NVIDIA/nccl#1279).
    def program(comm):
        x, y = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        comm.send(x, (comm.rank + 1) % comm.size)
        comm.recv(y, (comm.rank - 1) % comm.size)

    run(program, ranks=ranks)
    with pytest.raises(DeadlockError, match="rank 1 waits: send to rank"):
        run(program, ranks=ranks, synchronous=True)


def both(action):
    """Every rank does it, and gets the error before anything is sent."""

    def program(comm):
        try:
            action(comm)
        finally:
            assert comm.traffic.messages == 0

    return program


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda c: c.send(np.zeros(1), 3), RankError, "no rank 3; ranks are 0 to 2"),
        (lambda c: c.recv(np.zeros(1), -1), RankError, "no rank -1"),
        (lambda c: c.send(np.zeros(1), 1.0), RankError, "no rank 1.0"),
        (lambda c: c.send(np.zeros(1), True), RankError, "no rank True"),
        (lambda c: c.send(np.zeros(1), 0, tag=-1), RankError, "tag -1 is not an integer from 0"),
        (lambda c: c.recv(np.zeros(1), 0, tag=1 << 15), RankError, "tag 32768"),
        (lambda c: c.send(3.0, 0), ArrayError, "needs an array, got float"),
        (lambda c: c.send(np.zeros((2, 3)).T, 0), ArrayError, r"shape \(3, 2\) is not C-contig"),
        (lambda c: c.recv(np.zeros((2, 3), order="F"), 0), ArrayError, "not C-contiguous"),
        (lambda c: c.recv(np.zeros(6)[::2], 0), ArrayError, "not C-contiguous"),
        (lambda c: c.send(np.array(["a", None]), 0), ArrayError, "dtype object cannot travel"),
        (lambda c: c.send(np.zeros(2, ">i4"), 0), ArrayError, "native byte order"),
        (lambda c: c.recv(np.broadcast_to(1.0, ()), 0), ArrayError, "read-only"),
        (lambda c: c.bcast_object(1, root=9), RankError, r"rank ., bcast_object in .*no rank 9"),
        (lambda c: c.wait_any([]), RankError, "no request was given"),
    ],
)
def test_wrong_use_is_refused_with_rank_operation_value_and_remedy(action, error, message):
    with pytest.raises(error, match=message) as failure:
        run(both(action), ranks=3)
    assert "rank " in str(failure.value)


def test_contiguous_arrays_with_odd_strides_travel():
    # Strides of an axis of length 1 mean nothing (mpi4py/mpi4py#238).
    odd = [np.zeros((1, 4))[:, :1], np.zeros((3, 1), order="F"), np.zeros((0, 5))[:, ::2]]

    def program(comm):
        for like in odd:
            x = np.array(like + comm.rank)
            x = np.lib.stride_tricks.as_strided(x, x.shape, like.strides) if x.size < 2 else x
            y = np.zeros(like.shape)
            comm.exchange(x, 1 - comm.rank, y, 1 - comm.rank)
            np.testing.assert_array_equal(y, np.full(like.shape, 1.0 - comm.rank))

    run(program, ranks=2)


def test_overlapping_buffers_are_refused():
    def program(comm):
        x = np.zeros(10)
        with pytest.raises(
            ArrayError, match=r"rank 0, exchange in point to point of world: .*share"
        ):
            comm.exchange(x[:6], 0, x[4:], 0)
        comm.exchange(x[:5], 0, x[5:], 0)

    run(program, ranks=1)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (np.zeros(10), np.zeros(8)),
        (np.zeros(8), np.zeros(10)),
        (np.zeros(8), np.zeros(8, np.float32)),
        (np.zeros(4), np.zeros(8, np.float32)),
    ],
)
def test_another_size_or_dtype_is_an_error_that_names_both_sides(sent, wanted):
    # Never numbers (NVIDIA/nccl#1417): a float64 in a float32 buffer would be garbage.
    def program(comm):
        if comm.rank:
            comm.send(sent, 0)
        else:
            comm.recv(wanted.copy(), 1)

    message = f"rank 0 waits for {wanted.size} x {wanted.dtype} .* rank 1 has sent {sent.size} x"
    with pytest.raises(MismatchError, match=message):
        run(program, ranks=2)
