"""Ranks one at a time: reproducible orders, deadlocks proved, failures that end everybody."""

import itertools

import numpy as np
import pytest

from minidist.collectives import ring
from minidist.comm import run
from minidist.errors import (
    ConfigError,
    DeadlockError,
    LivelockError,
    MismatchError,
    StuckError,
)


def test_results_come_by_rank_and_arguments_are_handed_on():
    assert run(lambda comm, a, b: (comm.rank, comm.size, a + b), 1, 2, ranks=3) == [
        (0, 3, 3),
        (1, 3, 3),
        (2, 3, 3),
    ]


@pytest.mark.parametrize("ranks", [0, -1, 2.0])
def test_a_world_has_at_least_one_rank(ranks):
    with pytest.raises(ConfigError, match=f"at least one rank, not {ranks}"):
        run(lambda comm: None, ranks=ranks)


def arrivals(seed):
    """The order in which rank 0 hears from the others."""
    order = []

    def program(comm):
        if comm.rank:
            comm.send(np.zeros(1), 0)
        else:
            requests = [comm.irecv(np.zeros(1), r) for r in range(1, comm.size)]
            while requests:
                done = comm.wait_any(requests)
                requests.remove(done)
                order.append(done.peer)

    run(program, ranks=5, seed=seed)
    return tuple(order)


def test_a_seed_is_an_order_of_events():
    assert [arrivals(s) for s in range(8)] == [arrivals(s) for s in range(8)]
    assert len({arrivals(s) for s in range(40)}) > 8


def test_a_deadlock_names_who_waits_for_whom_operation_and_tag():
    def program(comm):
        if comm.rank == 0:
            comm.recv(np.zeros(1), 1, tag=7)
        elif comm.rank == 1:
            ring.all_reduce(comm.channel("group"), np.zeros(1))
        elif comm.rank == 2:
            comm.barrier()

    with pytest.raises(DeadlockError) as failure:
        run(program, ranks=4)
    text = str(failure.value)
    assert "rank 0 waits: receive from rank 1, tag 7, in point to point of world" in text
    assert "rank 1 waits: receive from rank 0, tag 0, in all_reduce #2 (ring) of world" in text
    assert "rank 2 waits: barrier of world, which ranks 0, 1, 3 have not entered" in text
    assert "rank 3 has finished" in text


def test_a_rank_that_skips_a_collective_is_found():
    # Ranks that issue other collectives stall without a clue (horovod/horovod#100).
    def program(comm):
        for bucket in range(3):
            if (comm.rank, bucket) != (1, 1):
                ring.all_reduce(comm, np.zeros(4), label=f"bucket {bucket}")

    with pytest.raises(
        MismatchError, match=r"all_reduce #2 \(ring, bucket [12]\) .*\(ring, bucket [12]\)"
    ):
        run(program, ranks=3)


def test_two_swapped_collectives_of_equal_size_are_found():
    def program(comm):
        for bucket in ("b", "a") if comm.rank == 2 else ("a", "b"):
            ring.all_reduce(comm, np.zeros(4), label=bucket)

    with pytest.raises(MismatchError, match="must make the same calls, in the same order"):
        run(program, ranks=3)


def test_another_operation_is_found():
    def program(comm):
        (ring.all_gather if comm.rank == 1 else ring.all_reduce)(comm, np.zeros(6))

    with pytest.raises(MismatchError, match=r"in all_gather #1|in all_reduce #1"):
        run(program, ranks=3)


def test_another_control_operation_is_found():
    def program(comm):
        if comm.rank == 1:
            comm.gather_objects(1)
        else:
            comm.barrier()

    with pytest.raises(MismatchError, match=r"rank . calls .* where rank . calls"):
        run(program, ranks=3)


def test_polling_for_what_never_comes_is_a_livelock():
    def program(comm):
        request = comm.irecv(np.zeros(1), (comm.rank + 1) % comm.size, tag=3)
        while not request.test():
            pass

    with pytest.raises(LivelockError, match="rank 2 tests: receive from rank 0, tag 3"):
        run(program, ranks=3)


def test_long_polling_is_no_livelock_while_somebody_works():
    def program(comm):
        if comm.rank:
            for _ in range(5000):
                comm.compute(0)
            comm.send(np.ones(1), 0)
        else:
            request = comm.irecv(np.zeros(1), 1)
            while not request.test():
                pass

    run(program, ranks=2)


def test_a_rank_that_computes_for_ever_is_named():
    def program(comm):
        if comm.rank == 1:
            for _ in itertools.count():
                pass
        comm.barrier()

    with pytest.raises(
        StuckError, match=r"rank 1 has computed for more than 0.1 s .*test_scheduler"
    ):
        run(program, ranks=3, stuck_after=0.1)


def test_the_first_failure_is_raised_with_its_rank_and_the_others_are_cancelled():
    ended = []

    def program(comm):
        try:
            if comm.rank == 1:
                comm.recv(np.zeros(1), 0)
                raise KeyError("mine")
            if comm.rank == 0:
                comm.send(np.zeros(1), 1)
            try:
                comm.barrier()
            except Exception:
                ended.append("a handler of Exception kept a cancelled rank alive")
        finally:
            ended.append(comm.rank)

    with pytest.raises(KeyError, match="mine") as failure:
        run(program, ranks=3)
    assert failure.value.__notes__ == ["on rank 1 of 3"]
    assert [entry.name for entry in failure.traceback][-1] == "program"
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.parametrize("op", ["max", "min"])
def test_another_reduction_is_found(op):
    def program(comm):
        ring.all_reduce(comm, np.zeros(3), op=op if comm.rank == 0 else "sum")

    with pytest.raises(MismatchError, match=rf"all_reduce #1 \(ring, op {op}\)"):
        run(program, ranks=3)


def test_another_root_is_found():
    with pytest.raises(MismatchError, match=r"bcast_object from rank \d where rank"):
        run(lambda comm: comm.bcast_object(comm.rank, root=comm.rank), ranks=3)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (lambda comm: comm.isend(np.zeros(1), 0, tag=4), "rank 1: send to rank 0, tag 4"),
        (lambda comm: comm.irecv(np.zeros(1), 0, tag=5), "rank 1: receive from rank 0, tag 5"),
        (lambda comm: ring.all_reduce.start(comm, np.zeros(1)), "rank 1 has finished with 1 coll"),
    ],
)
def test_what_is_left_over_at_the_end_is_an_error(leave, words, synchronous):
    def program(comm):
        if comm.rank == 1:
            leave(comm)

    with pytest.raises(MismatchError, match=words):
        run(program, ranks=2, synchronous=synchronous)


def test_a_failure_during_a_collective_ends_all():
    # Survivors wait in the next collective (Pyomo/mpi-sppy#852).
    def program(comm):
        ring.all_reduce(comm, np.zeros(3))
        if comm.rank == 1:
            raise RuntimeError("between two all-reduces")
        ring.all_reduce(comm, np.zeros(3))

    with pytest.raises(RuntimeError, match="between two"):
        run(program, ranks=3)


def test_communication_in_a_finally_block_of_a_cancelled_rank_does_not_hang():
    def program(comm):
        if comm.rank == 0:
            raise ValueError("first")
        try:
            comm.barrier()
        finally:
            comm.send(np.zeros(1), 0)
            comm.recv(np.zeros(1), 0)

    with pytest.raises(ValueError, match="first"):
        run(program, ranks=3)


def test_interrupts_end_all_ranks():
    def program(comm):
        if comm.rank == 2:
            raise KeyboardInterrupt
        comm.barrier()

    with pytest.raises(KeyboardInterrupt):
        run(program, ranks=3)


def test_arrays_in_arguments_are_read_only():
    shared = np.zeros(3)

    def program(comm, x, nested):
        for array in (x, nested["deep"][0]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1

    run(program, shared, {"deep": [shared]}, ranks=2)
    shared[0] = 1  # the caller's own array stays writable


def test_a_world_inside_a_world():
    def program(comm):
        inner = run(lambda c: float(ring.all_reduce(c, np.ones(1))[0]), ranks=comm.rank + 1)
        return ring.all_reduce(comm, np.array([sum(inner)]))[0]

    assert run(program, ranks=3) == [1 + 4 + 9] * 3


def test_many_worlds_leave_nothing_behind():
    import threading

    for seed in range(50):
        run(lambda comm: ring.all_reduce(comm, np.ones(2)), ranks=3, seed=seed)
    names = [t for t in threading.enumerate() if t is not threading.main_thread()]
    for thread in names:
        thread.join(timeout=10)
    assert not any(t.is_alive() for t in names)
