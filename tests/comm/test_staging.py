"""Device arrays on their way to MPI, on stand-ins whose kernels and copies run late.

A real stream works behind the back of the program. Here it is a list of things to do, and only
`synchronise` does them: whoever reads before has old data, every time (mpi4py/mpi4py#60,
mpi4jax/mpi4jax#230).
"""

import sys
import types

import numpy as np
import pytest

from minidist.comm.cuda_aware import cuda_aware, proves_it
from minidist.comm.staging import Cupy, Device, Direct, Staged, Staging
from minidist.errors import ConfigError
from minidist.testing import fake_device
from minidist.testing.mutants import mutate


class Stream:
    """Work that has been asked for and not done."""

    def __init__(self):
        self.work = []

    def synchronize(self):
        while self.work:
            self.work.pop(0)()


class CupyArray:
    """As much of a CuPy array as staging uses."""

    __module__ = "cupy"

    def __init__(self, host, module):
        self.host, self.module = host, module
        self.nbytes, self.dtype, self.shape = host.nbytes, host.dtype, host.shape

    def reshape(self, *shape):
        return CupyArray(self.host.reshape(*shape), self.module)

    def view(self, dtype):
        return CupyArray(self.host.view(dtype), self.module)

    def launch(self, value):
        """A kernel that fills the array, later."""
        self.module.stream.work.append(lambda: self.host.fill(value))

    def get(self, out, blocking):
        self.module.stream.work.append(lambda: np.copyto(out, self.host))
        if blocking:
            self.module.stream.synchronize()
        return out

    def set(self, buffer):
        self.module.stream.work.append(lambda: np.copyto(self.host, buffer))


@pytest.fixture
def cupy(monkeypatch):
    module = types.ModuleType("cupy")
    module.uint8 = np.uint8
    module.stream = Stream()
    module.pinned = []
    module.cuda = types.SimpleNamespace(
        get_current_stream=lambda: module.stream,
        alloc_pinned_memory=lambda n: module.pinned.append(n) or bytearray(n),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def check_sends_what_kernels_wrote(way, cupy):
    for value in range(1, 4):
        x = CupyArray(np.zeros(5, np.float32), cupy)
        x.launch(value)
        buffer = way.outgoing(x)
        bits = (buffer.host if isinstance(buffer, CupyArray) else buffer).view(np.float32)
        assert bits.tolist() == [value] * 5
        way.release(buffer)


def check_receives_into_the_callers_memory(way, cupy):
    whole = np.zeros(9, np.float32)
    x = CupyArray(whole[2:7], cupy)
    for value in range(1, 4):
        x.launch(-1.0)  # work that still uses the array when the receive is posted
        buffer = way.incoming(x)
        if isinstance(buffer, CupyArray):
            buffer.host[...] = value
        else:
            buffer.view(np.float32)[...] = value
        way.arrived(buffer, x)
        way.release(buffer)
        for _ in range(2):  # now, and when all earlier work has ended
            assert whole.tolist() == [0, 0, *[value] * 5, 0, 0]
            cupy.stream.synchronize()


def staged(**methods):
    return type("Way", (Staged,), methods)(Cupy())


def direct(**methods):
    return type("Way", (Direct,), methods)(Cupy().synchronise)


@pytest.mark.parametrize("way", [staged, direct])
def test_neither_way_reads_or_writes_too_early(way, cupy):
    check_sends_what_kernels_wrote(way(), cupy)
    check_receives_into_the_callers_memory(way(), cupy)


@pytest.mark.parametrize(
    ("way", "name", "old", "check"),
    [
        (staged, "outgoing", "device.synchronise()", check_sends_what_kernels_wrote),
        (staged, "outgoing", "device.to_host", check_sends_what_kernels_wrote),
        (staged, "arrived", "device.synchronise()", check_receives_into_the_callers_memory),
        (staged, "arrived", "device.from_host", check_receives_into_the_callers_memory),
        (direct, "outgoing", "synchronise()", check_sends_what_kernels_wrote),
        (direct, "incoming", "synchronise()", check_receives_into_the_callers_memory),
    ],
)
def test_ways_that_do_not_wait_are_found(way, name, old, check, cupy):
    original = getattr(Staged if way is staged else Direct, name)
    broken = mutate(original, f"self.{old}", "(lambda *_: None)" + "()" * old.endswith("()"))
    with pytest.raises(AssertionError):
        check(way(**{name: broken}), cupy)


def test_pinned_buffers_are_lent_again(cupy):
    way = staged()
    large, small = (CupyArray(np.zeros(n, np.uint8), cupy) for n in (100, 10))
    for x in (large, small, large, small):
        way.release(way.incoming(x))
    assert cupy.pinned == [100]
    first, second = way.incoming(small), way.incoming(small)
    assert not np.shares_memory(first, second)
    assert cupy.pinned == [100, 10]


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_bits_pass_through_host_memory(dtype, shape):
    x, y = (fake_device.xp.asarray(np.full(shape, v, dtype)) for v in (1, 0))
    way = Staged(Device())
    way.arrived(way.outgoing(x), y)
    assert y.get().tobytes() == x.get().tobytes()


def test_the_way_is_chosen_and_told_once(cupy):
    for aware, words in [(False, "staging through host memory"), (True, "device pointers")]:
        told = []
        staging = Staging(lambda aware=aware: aware, told.append)
        x = CupyArray(np.zeros(1), cupy)
        assert isinstance(staging.way(x), Direct if aware else Staged)
        assert staging.way(x) is staging.way(x)
        assert staging.way(np.zeros(1)).name == "in place"
        assert len(told) == 1
        assert words in told[0]


def test_a_claim_of_cuda_awareness_is_tried_in_a_child_process():
    # The claim has been wrong (open-mpi/ompi#11399), and then the first message is a crash.
    yes, no = (lambda: True), (lambda: False)
    assert not cuda_aware({}, no, yes)
    assert cuda_aware({}, yes, yes)
    with pytest.warns(UserWarning, match="a trial message failed: staging"):
        assert not cuda_aware({}, yes, no)
    assert not cuda_aware({"MINIDIST_CUDA_AWARE": "0"}, yes, yes)
    assert cuda_aware({"MINIDIST_CUDA_AWARE": "1"}, no, no)
    with pytest.raises(ConfigError, match="MINIDIST_CUDA_AWARE='yes': give 0"):
        cuda_aware({"MINIDIST_CUDA_AWARE": "yes"})
    assert proves_it("pass")
    assert not proves_it("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
