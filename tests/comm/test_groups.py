"""Splits, control objects, and counting."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.collectives import ring
from minidist.comm import run

colors_and_keys = st.tuples(st.sampled_from([None, "a", "b", 3]), st.integers(-2, 2))


@example([("a", 1), ("a", 0), (None, 0), ("b", 0)], 0)  # the key turns two ranks round
@given(st.lists(colors_and_keys, min_size=1, max_size=6), st.integers(0, 10**6))
def test_split_groups_by_color_and_orders_by_key_then_rank(places, seed):
    ranks, (colors, keys) = len(places), zip(*places, strict=True)

    def program(comm):
        group = comm.split(colors[comm.rank], keys[comm.rank], name="part")
        if group is None:
            return None
        members = group.gather_objects(comm.rank)
        assert members[group.rank] == comm.rank
        assert group.size == len(members)
        assert group.name == "part"
        total = ring.all_reduce(group, np.array([2.0**comm.rank]))[0]
        assert total == sum(2.0**r for r in members)
        return members

    for rank, members in enumerate(run(program, ranks=ranks, seed=seed)):
        mine = [r for r in range(ranks) if colors[r] == colors[rank]]
        want = sorted(mine, key=lambda r: (keys[r], r))
        assert members == (None if colors[rank] is None else want)


def test_groups_with_other_members_do_not_mix():
    # Data of one replica appeared in another one (NVIDIA/Megatron-LM#7452).
    def program(comm):
        group = comm.split(comm.rank % 2)
        return ring.all_gather(group, np.array([100.0 * (comm.rank % 2) + comm.rank]), np.zeros(2))

    results = [r.tolist() for r in run(program, ranks=4)]
    assert results == [[0, 2], [101, 103], [0, 2], [101, 103]]


def test_a_split_of_a_split():
    def program(comm):
        inner = comm.split(comm.rank // 4).split(comm.rank % 2)
        return inner.gather_objects(comm.rank)

    assert run(program, ranks=8)[5] == [5, 7]


def test_objects_are_gathered_and_broadcast_as_copies():
    def program(comm):
        mine = {"rank": comm.rank, "list": []}
        everyone = comm.gather_objects(mine)
        assert [e["rank"] for e in everyone] == list(range(comm.size))
        everyone[0]["list"].append(comm.rank)
        comm.barrier()
        assert everyone[0]["list"] == [comm.rank]
        assert mine["list"] == []
        return comm.bcast_object(("from", comm.rank), root=comm.size - 1)

    assert run(program, ranks=3) == [("from", 2)] * 3


def test_traffic_counts_per_operation_and_into_the_parent():
    def program(comm):
        group = comm.split(comm.rank // 2)
        group.exchange(np.zeros(5), 1 - group.rank, np.zeros(5), 1 - group.rank)
        ring.all_reduce(group, np.zeros(4, np.float32))
        comm.send(np.zeros(3, np.uint8), comm.rank)
        comm.recv(np.zeros(3, np.uint8), comm.rank)
        comm.gather_objects("control is not traffic")
        return comm.traffic, group.traffic

    for whole, part in run(program, ranks=4):
        assert (part.messages, part.bytes) == (3, 40 + 16)
        assert (whole.messages, whole.bytes) == (4, 40 + 16 + 3)
        by = {op: (count.messages, count.bytes) for op, count in whole.by.items()}
        assert by == {"point to point": (2, 43), "all_reduce": (2, 16)}


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_work_buffers_are_lent_again_and_never_to_two(ranks):
    def program(comm):
        for _ in range(3):
            started = [ring.all_reduce.start(comm, np.ones(64)) for _ in range(2)]
            for s in started:
                s.wait()
        return comm.state.scratch.nbytes

    piece = 8 * -(-64 // ranks)
    assert set(run(program, ranks=ranks)) == {2 * 2 * piece if ranks > 1 else 0}
