"""Data parallelism: buckets, rings, norms. Whole training steps: tests/train/test_step.py."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.comm import Link, run
from minidist.errors import ConfigError, StepError
from minidist.nn import Parameter
from minidist.parallel.bucket import GRADIENTS
from minidist.parallel.data import DataParallel, ParameterByParameter, mean, micro_batches
from minidist.parallel.mesh import Mesh
from minidist.testing import fake_device
from minidist.testing.mutants import mutate


class Unit:
    """A unit that owns some parameters and computes nothing."""

    def __init__(self, *parameters):
        self.own = parameters

    def parameters(self):
        return list(self.own)


def vector(name, size, **how):
    return Parameter(name, (size,), init=1.0, **how)


def gradient(rank, p):
    """Integers that tell rank, parameter and index: any wrong sum shows, and sums are exact."""
    number = int(p.name.split()[-1])
    return (1000.0 * (rank + 1) + 37 * number + np.arange(p.size)).reshape(p.local)


def total(ranks, p):
    return sum(gradient(rank, p) for rank in range(ranks))


def toy():
    """Four units: a tied table, a frozen and an empty parameter, sizes that nothing divides."""
    tied, frozen = vector("tied 0", 7), vector("frozen 1", 4, trainable=False)
    last = Parameter("matrix 5", (3, 5), init=1.0)
    return [
        Unit(tied),
        Unit(vector("a 2", 5), frozen, vector("empty 3", 0)),
        Unit(vector("one 4", 1)),
        Unit(last, tied),
    ]


def one_step(comm, sync, units, rounds=1):
    """Each unit adds its gradient `rounds` times and reports, from the last to the first."""
    sync.begin()
    for left in reversed(range(rounds)):
        for index in reversed(range(len(units))):
            for p in units[index].parameters():
                p.accumulate(sync.xp.asarray(gradient(comm.rank, p)))
            sync.ready(index, left == 0)
            sync.poll()
    sync.finish()


def check_sums(comm, make=toy, kind=DataParallel, rounds=1, steps=2):
    """Every rank holds the sum over ranks, users and rounds, after each of several steps."""
    units = make()
    sync = kind(units, Mesh(comm), np.float64)
    users = [p for unit in units for p in unit.parameters()]
    for _ in range(steps):
        one_step(comm, sync, units, rounds)
        for p in sync.parameters():
            if p.trainable:
                want = total(comm.size, p) * users.count(p) * rounds
                assert np.array_equal(p.grad, want), f"rank {comm.rank}: {p.name}"
    return sync


@given(st.integers(1, 5), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_gradients_are_the_sum_over_ranks_users_and_micro_batches(ranks, rounds, sync, seed):
    run(check_sums, toy, DataParallel, rounds, ranks=ranks, synchronous=sync, seed=seed)


MUTANTS = {
    "a tied table is reduced when its first user reports": (
        "final = finished == b.users",
        "final = len(finished) == 1",
    ),
    "the first micro-batch is reduced, the last is not": (
        "final = finished == b.users",
        "final = not b.ring and len(reported) == 1 and not last",
    ),
    "gradients are not cleared": ("b.begin()", "b.ring = None"),
    "the rings are not waited for": ("wait_all([b.ring", "list([b.ring"),
    "a bucket is forgotten": (
        "b for b in self.buckets if b.trainable",
        "b for b in self.buckets[1:] if b.trainable",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_sum_is_seen(name):
    broken = mutate(DataParallel, *MUTANTS[name])
    with pytest.raises((AssertionError, StepError, AttributeError)):
        run(check_sums, toy, broken, 2, ranks=3)


def test_accumulation_reduces_the_sum_of_all_micro_batches():
    """FunASR#3472: rank 0 has 1 and 3, rank 1 has 5 and 9. The sum is 18 on both, not 12 or 6."""

    def program(comm):
        p = vector("w 0", 1)
        sync = DataParallel([Unit(p)], Mesh(comm), np.float64)
        sync.begin()
        for value, last in zip([[1, 3], [5, 9]][comm.rank], [False, True], strict=True):
            p.accumulate(np.array([float(value)]))
            sync.ready(0, last)
        sync.finish()
        return p.grad.tolist()

    assert run(program, ranks=2) == [[18.0], [18.0]]


def test_a_bucket_is_the_parameters_with_the_same_users():
    units = toy()
    (sync,) = run(lambda comm: DataParallel(units, Mesh(comm), np.float64), ranks=1)
    names = [sorted(p.name for p in b.layout.parameters) for b in sync.buckets]
    assert names == [["a 2", "empty 3"], ["one 4"], ["matrix 5"], ["tied 0"], ["frozen 1"]]
    assert [b.name for b in sync.buckets] == ["unit 1", "unit 2", "unit 3", "unit 0+3", "unit 1"]


def test_every_parameter_lies_in_one_bucket_and_views_it():
    """Sizes of all buckets add up to the model; a write to the buffer is seen by the layer."""
    units = toy()
    (sync,) = run(lambda comm: DataParallel(units, Mesh(comm), np.float32), ranks=1)
    every = {p.name: p for unit in units for p in unit.parameters()}
    assert sorted(p.name for p in sync.parameters()) == sorted(every)
    assert sum(b.stored.size for b in sync.buckets) == sum(p.size for p in every.values())
    for number, bucket in enumerate(sync.buckets):
        bucket.stored[...] = number
        for p in bucket.layout.parameters:
            assert np.all(p.data == number)
            assert p.data.dtype == np.float32
            assert p.trainable == (p.grad is not None)


def test_first_values_are_the_same_on_all_ranks_and_in_all_groupings():
    def values(comm, units):
        sync = DataParallel(units(), Mesh(comm), np.float64)
        return {p.name: p.data.copy() for p in sync.parameters()}

    def flat():
        return [Unit(*[p for unit in toy() for p in unit.parameters()])]

    one, *rest = [*run(values, toy, ranks=3), *run(values, flat, ranks=1)]
    assert len({v.tobytes() for v in one.values() if v.size > 1}) == 4
    for other in rest:
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_gradients_do_not_depend_on_the_size_of_buckets(ranks):
    """DeepSpeed#6351: one bucket a parameter, one for all, and everything between."""
    parts = [vector(f"p {i}", n) for i, n in enumerate((1, 125, 3, 0, 40))]
    for cut in ([5], [1, 4], [1, 1, 1, 1, 1], [2, 3]):

        def units(cut=cut):
            new = [vector(p.name, p.size) for p in parts]
            ends = np.cumsum([0, *cut]).tolist()
            return [Unit(*new[a:b]) for a, b in pairwise(ends)]

        run(check_sums, units, ranks=ranks)


def test_a_slow_network_changes_no_bit():
    """DeepSpeed#3727: buffers must not be used again while a ring still reads them."""

    def program(comm):
        rng = np.random.default_rng(comm.rank)
        sizes = (64, 5, 33, 128, 1, 70)
        units = [Unit(vector(f"p {i}", n)) for i, n in enumerate(sizes)]
        sync = DataParallel(units, Mesh(comm), np.float32)
        result = []
        for _ in range(3):
            sync.begin()
            for index in reversed(range(len(units))):
                (p,) = units[index].parameters()
                p.accumulate(rng.normal(size=p.size).astype(np.float32))
                comm.compute(1e-3)
                sync.ready(index)
                sync.poll()
            sync.finish()
            result += [b.grad.tobytes() for b in sync.buckets]
        return result

    def links(a, b):
        return Link(50e-3 if a == 0 else 1e-3, 1e6)

    runs = [run(program, ranks=4, seed=s) for s in (0, 1)] + [run(program, ranks=4, links=links)]
    assert all(rank == runs[0][0] for ranks in runs for rank in ranks)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_traffic_is_what_the_formula_says(ranks):
    """Rank r sends all pieces of a bucket but its own, and then all but that of r + 1."""

    def program(comm):
        sync = check_sums(comm, steps=1)
        return comm.traffic.by[GRADIENTS].bytes, comm.traffic.by[GRADIENTS].messages, sync

    results = run(program, ranks=ranks)
    size = sum(b.grad.nbytes for b in results[0][2].buckets if b.trainable)
    assert size == 8 * (7 + 5 + 0 + 1 + 15)
    assert sum(sent for sent, _, _ in results) == 2 * (ranks - 1) * size
    for rank, (sent, messages, sync) in enumerate(results):
        sizes = [b.layout.size for b in sync.buckets if b.trainable]
        pieces = [np.diff(bounds(n, ranks)) for n in sizes]
        want = sum(
            2 * n - p[rank] - p[(rank + 1) % ranks] for n, p in zip(sizes, pieces, strict=True)
        )
        assert sent == 8 * want * (ranks > 1)
        assert messages == 2 * (ranks - 1) * len(sizes)


def test_traffic_is_equal_where_ranks_divide_the_bucket():
    def program(comm):
        units = [Unit(vector("w 0", 12 * 35))]
        one_step(comm, DataParallel(units, Mesh(comm), np.float64), units)
        return comm.traffic.by[GRADIENTS].bytes

    for n in (2, 3, 4, 5):
        assert run(program, ranks=n) == [2 * (n - 1) * 12 * 35 * 8 // n] * n


def norm_and_clip(comm, values, limit, kind=DataParallel):
    """The gradient of each tensor on rank 0, zero elsewhere; then clipping as the step does it."""
    units = [Unit(vector(f"w {i}", len(v))) for i, v in enumerate(values)]
    sync = kind(units, Mesh(comm), np.float64)
    sync.begin()
    for index, v in enumerate(values):
        (p,) = units[index].parameters()
        p.accumulate(np.array(v, dtype=float) * (comm.rank == 0))
        sync.ready(index)
    sync.finish()
    norm = sum(comm.gather_objects(sync.squares())) ** 0.5
    return norm, [(p.grad * (limit / norm)).tolist() for u in units for p in u.parameters()]


def check_norm(kind=DataParallel):
    # fairscale#518: three pieces with norms 2, 3 and 6 make 7, on every rank
    for norm, grads in run(norm_and_clip, [[2, 3, 6]], 1.0, kind, ranks=3):
        assert norm == 7
        assert np.allclose(grads[0], [2 / 7, 3 / 7, 6 / 7], rtol=1e-15)
    # assignment1-basics: the norm is over all tensors, 5 and 12 make 13
    for norm, grads in run(norm_and_clip, [[3, 4], [0, 12, 0, 0, 0]], 1.0, kind, ranks=2):
        assert norm == 13
        assert np.allclose(grads[0], [3 / 13, 4 / 13], rtol=1e-15)
        assert np.allclose(grads[1][1], 12 / 13, rtol=1e-15)


def test_the_norm_is_over_all_parameters_and_all_ranks():
    check_norm()


def test_a_norm_of_the_whole_buffer_on_every_rank_is_seen():
    with pytest.raises(AssertionError):
        check_norm(mutate(DataParallel, "sum_of_squares(b.sum)", "sum_of_squares(b.grad)"))


def test_a_tied_table_counts_once_in_the_norm():
    """Megatron-LM#7227: the gradient [3, 4] has the norm 5, not 7.07."""

    def program(comm):
        p = vector("tied 0", 2)
        sync = DataParallel([Unit(p), Unit(p)], Mesh(comm), np.float64)
        sync.begin()
        p.accumulate(np.array([3.0, 4.0]) / comm.size)
        sync.ready(1)
        sync.ready(0)
        sync.finish()
        return sum(comm.gather_objects(sync.squares())) ** 0.5

    for ranks in (1, 2, 4):
        assert np.allclose(run(program, ranks=ranks), 5.0, rtol=1e-15)


def test_a_parameter_used_on_one_rank_only_and_one_used_by_none():
    """pytorch#28883: no rank waits, and an unused parameter has the gradient zero everywhere."""

    def program(comm):
        units = [Unit(vector("some 0", 1)), Unit(vector("none 1", 2))]
        sync = DataParallel(units, Mesh(comm), np.float64)
        sync.begin()
        if comm.rank == 0:
            units[0].own[0].accumulate(np.array([2.0]))
        sync.ready(1)
        sync.ready(0)
        sync.finish()
        return [u.own[0].grad.tolist() for u in units]

    assert run(program, ranks=3) == [[[2.0], [0.0, 0.0]]] * 3


@example(0)
@given(st.integers(0, 9))
def test_it_runs_on_a_device_that_refuses_host_functions(seed):
    def program(comm):
        units = toy()
        sync = DataParallel(units, Mesh(comm), np.float32, fake_device.xp)
        one_step(comm, sync, units)
        norm = sum(comm.gather_objects(sync.squares()))
        return norm, {p.name: p.grad.get() for p in sync.parameters() if p.trainable}

    def plain(comm):
        units = toy()
        sync = DataParallel(units, Mesh(comm), np.float32)
        one_step(comm, sync, units)
        return sum(comm.gather_objects(sync.squares()))

    results = run(program, ranks=3, seed=seed)
    assert [norm for norm, _ in results] == run(plain, ranks=3)
    for _, grads in results:
        assert np.array_equal(grads["tied 0"], 2 * total(3, vector("tied 0", 7)))


# --- the batch, and means over ranks --------------------------------------------------------------


def check_cut(batch, ranks, parts, kind=micro_batches):
    """All ranks' pieces, one after the other, are the batch; sizes differ by one on each level."""
    pieces = run(kind, batch, parts, ranks=ranks)
    assert [len(own) for own in pieces] == [parts] * ranks
    flat = [sample for own in pieces for start, stop in own for sample in range(start, stop)]
    assert flat == list(range(batch))
    each = [sum(stop - start for start, stop in own) for own in pieces]
    assert max(each) - min(each) <= 1
    for own in pieces:
        sizes = [stop - start for start, stop in own]
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 5))
def test_each_sample_is_in_one_micro_batch_of_one_rank(batch, ranks, parts):
    check_cut(batch, ranks, parts)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("share(comm, batch)", "0, batch"),
        ("start + a, start + b", "a, b"),
        ("bounds(stop - start, parts)", "bounds(batch, parts)"),
    ],
)
def test_a_wrong_cut_of_the_batch_is_seen(old, new):
    with pytest.raises(AssertionError):
        check_cut(7, 3, 2, mutate(micro_batches, old, new))


def check_mean(kind=mean):
    """torchtitan#1842: three losses of 1 here and one of 9 there have the mean 3, not 5."""
    have = [(3.0, 3), (9.0, 1), (0.0, 0)]
    for ranks in (2, 3):
        assert run(lambda comm: kind(comm, *have[comm.rank]), ranks=ranks) == [3.0] * ranks
    assert run(lambda comm: kind(comm, 0.0, 0), ranks=2) == [0.0, 0.0]


def test_a_mean_over_ranks_goes_by_counts():
    check_mean()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[total, count]", "[total / max(1, count), 1]"),
        ("max(1.0, count)", "comm.size"),
        ("max(1.0, count)", "count"),
    ],
)
def test_a_mean_of_means_is_seen(old, new):
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check_mean(mutate(mean, old, new))


# --- the rings run while units compute ----------------------------------------------------------


def seconds(comm, kind, polls):
    """Virtual seconds of the backward pass of eight units, each of which computes 1 s."""
    units = [Unit(vector(f"p {i}", 1000)) for i in range(8)]
    sync = kind(units, Mesh(comm), np.float64)
    comm.barrier()
    start = comm.time
    sync.begin()
    for index in reversed(range(8)):
        for _ in range(polls):
            comm.compute(1 / polls)
            sync.poll()
        sync.ready(index)
    sync.finish()
    return comm.time - start


def hidden_share(kind=DataParallel, polls=4, ranks=4):
    """The share of the communication that costs no time; the ring of one bucket takes 0.8 s."""
    wire = Link(0.0, 1000 * 8 * 1.5 / 0.8)
    took = max(run(seconds, kind, polls, ranks=ranks, links=wire))
    return 1 - (took - 8) / (8 * 0.8)


def test_communication_hides_behind_computation():
    assert hidden_share() > 0.6
    assert hidden_share(polls=16) > hidden_share(polls=1) > 0.3


def test_parameter_by_parameter_has_the_same_sums_and_hides_nothing():
    run(check_sums, toy, ParameterByParameter, 2, ranks=3)
    assert hidden_share(ParameterByParameter) < 0.05


def test_a_ring_that_starts_after_the_last_unit_hides_nothing():
    """The lesson's mutant: right sums, no overlap."""
    late = type("Late", (DataParallel,), {"ready": ready_at_the_end})
    run(check_sums, toy, late, ranks=3)
    assert hidden_share(late) < 0.05


def ready_at_the_end(self, unit, last=True):
    if unit == 0 and last:
        for index in reversed(range(len(self._of))):
            DataParallel.ready(self, index)


# --- wrong use ------------------------------------------------------------------------------------


def test_a_step_out_of_order_is_an_error():
    def program(comm):
        units = toy()
        sync = DataParallel(units, Mesh(comm), np.float64)
        with pytest.raises(StepError, match=r"rank 0: finish\(\) before ready\(\) of unit \[1\]"):
            sync.finish()
        sync.begin()
        sync.ready(2)
        with pytest.raises(StepError, match="rank 0: unit 2 was reported twice"):
            sync.ready(2)

    run(program, ranks=1)


def test_a_new_step_waits_for_the_old_one():
    def program(comm):
        units = toy()
        sync = DataParallel(units, Mesh(comm), np.float64)
        sync.begin()
        sync.ready(1)
        if comm.rank == 0:
            sync.begin()
        comm.barrier()

    with pytest.raises(StepError, match=r"rank 0: begin\(\) before finish\(\)"):
        run(program, ranks=3)


def test_two_parameters_of_one_name_are_refused():
    units = [Unit(vector("w 0", 2)), Unit(vector("w 0", 3))]
    with pytest.raises(ConfigError, match="two parameters are called w 0"):
        run(lambda comm: DataParallel(units, Mesh(comm), np.float64), ranks=1)
