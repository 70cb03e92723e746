"""Point to point between in-process ranks: what goes beyond the contract of all worlds."""

import ml_dtypes
import numpy as np
import pytest

from minidist.comm import run
from minidist.errors import ArrayError, DeadlockError, MismatchError


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


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, ml_dtypes.bfloat16])
def test_a_receive_that_is_looked_at_too_early_has_no_value(dtype):
    def program(comm):
        x = np.full((2, 1), 3, dtype)
        request = comm.irecv(x, source=comm.rank)
        early = x.copy()
        comm.isend(np.full((2, 1), 7, dtype), to=comm.rank)
        request.wait()
        return early.tobytes(), x.tolist()

    early, late = run(program, ranks=1)[0]
    assert set(early) == {255}  # NaN, or -1
    assert late == [[7], [7]]
