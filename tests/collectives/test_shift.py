"""One turn of the ring by itself, and its mutants."""

import numpy as np
import pytest

from minidist.collectives import ring
from minidist.comm import run
from minidist.errors import MinidistError
from minidist.testing import laws
from minidist.testing.mutants import mutate


def check_shift(shift):
    for ranks in (1, 2, 3, 5):
        for n in (0, 1, 4):

            def program(comm, n=n):
                x, out = laws.values(comm.rank, n), np.full(n, -1.0)
                sent = comm.traffic.messages, comm.traffic.bytes
                assert shift(comm, x, out) is out
                laws.same(out, laws.values((comm.rank - 1) % comm.size, n), f"rank {comm.rank}")
                laws.same(x, laws.values(comm.rank, n), f"rank {comm.rank}: the input")
                laws.cost(comm, sent, 1, n, x)

            run(program, ranks=ranks, synchronous=True)


def test_a_shift_moves_everything_one_to_the_right():
    check_shift(ring.shift)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(r + 1) % n, recv, (r - 1)", "(r - 1) % n, recv, (r + 1)"),
        ("recv[...] = send", "pass"),
        ("return out", "return x"),
    ],
)
def test_mutants_of_the_shift_are_rejected(old, new):
    with pytest.raises((AssertionError, MinidistError)):
        check_shift(mutate(ring.shift, old, new))
