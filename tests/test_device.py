"""Which rank gets which GPU, on machines that are only described."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from minidist import device
from minidist.comm import run
from minidist.device import Device, Sight, assign, choose_device, gpu
from minidist.errors import ConfigError, DeviceError
from minidist.testing.mutants import mutate

TWO_BY_TWO = [Sight("a", ("a0", "a1")), Sight("a", ("a0", "a1"))] + [Sight("b", ("b0", "b1"))] * 2
ONE_FOR_FOUR = [Sight("a", ("a0",))] * 4
ISOLATED = [Sight("a", (f"a{rank}",)) for rank in range(4)]  # each rank is shown one GPU of its own


@pytest.fixture
def fake_cupy(monkeypatch):
    """A CuPy that can only be asked to use a device."""
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda i: SimpleNamespace(use=lambda: i)))
    real = device.import_module
    monkeypatch.setattr(device, "import_module", lambda n: cupy if n == "cupy" else real(n))
    return cupy


def choose(name, sights, share=False):
    def body(comm):
        return choose_device(name, comm, share, look=lambda: sights[comm.rank])

    return run(body, ranks=len(sights))


def test_ranks_take_the_gpus_of_their_own_machine_in_turn(fake_cupy):
    got = choose("cuda", TWO_BY_TWO)
    assert [d.index for d in got] == [0, 1, 0, 1]
    assert {d.kind for d in got} == {"cuda"}
    assert all(d.xp is fake_cupy for d in got)
    assert str(got[3]) == "cuda:1 (b1)"


def test_ranks_of_two_machines_may_alternate(fake_cupy):
    a, b = TWO_BY_TWO[0], TWO_BY_TWO[3]
    assert [d.index for d in choose("cuda", [a, b, b, a])] == [0, 0, 1, 1]


def test_one_visible_gpu_per_rank_is_not_sharing(fake_cupy):
    assert [d.index for d in choose("cuda", ISOLATED)] == [0, 0, 0, 0]


def test_more_ranks_than_gpus_is_an_error(fake_cupy):
    with pytest.raises(DeviceError, match=r"ranks 0, 1, 2, 3 on a share one GPU .*--share-devices"):
        choose("cuda", ONE_FOR_FOUR)
    with pytest.raises(DeviceError, match="ranks 0, 2 on a"):
        choose("auto", [TWO_BY_TWO[0]] * 3)


def test_sharing_that_is_meant_is_one_warning(fake_cupy):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = choose("cuda", ONE_FOR_FOUR, share=True)
    assert [d.index for d in got] == [0, 0, 0, 0]
    assert [str(w.message) for w in seen] == [
        "ranks 0, 1, 2, 3 on a share one GPU (a0): correct, but slow"
    ]


def test_auto_takes_gpus_only_when_every_rank_has_one(fake_cupy):
    blind = Sight("b", (), "no driver")
    assert choose("auto", [TWO_BY_TWO[0], blind]) == [Device("cpu", 0, np)] * 2
    assert [d.kind for d in choose("auto", TWO_BY_TWO)] == ["cuda"] * 4
    with pytest.raises(DeviceError, match=r"rank 1 on b .*no driver.*--device cpu"):
        choose("cuda", [TWO_BY_TWO[0], blind])


def test_the_cpu_is_never_asked_for_a_gpu():
    def refuse():
        raise AssertionError("looked for a GPU")

    [got] = run(lambda comm: choose_device("cpu", comm, look=refuse), ranks=1)
    assert got == Device("cpu", 0, np)
    assert str(got) == "cpu"


def test_an_unknown_device_is_refused():
    with pytest.raises(ConfigError, match=r"'tpu'.*auto, cpu, cuda"):
        choose("tpu", TWO_BY_TWO)


def machines_are_counted_apart(assign):
    assert assign(TWO_BY_TWO) == [0, 1, 0, 1]
    assert assign(ONE_FOR_FOUR) == [0, 0, 0, 0]


def test_assignment_and_its_mutants():
    machines_are_counted_apart(assign)
    for old, new in [("hosts[:rank].count(s.host)", "rank % 3"), ("% len(s.gpus)", "")]:
        with pytest.raises(AssertionError):
            machines_are_counted_apart(mutate(assign, old, new))


def test_the_probe_gives_a_reason():
    works, reason = gpu()
    assert works == (reason == "")


@pytest.mark.gpu
def test_a_real_gpu_computes():
    [got] = run(lambda comm: choose_device("cuda", comm), ranks=1)
    assert float(got.xp.arange(4.0).sum()) == 6.0
