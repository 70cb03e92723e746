"""What CuPy is given: checked with a stand-in for it, since the arguments are made before it."""

import sys
import types

import numpy as np
import pytest
from ml_dtypes import bfloat16

from minidist import cuda
from minidist.errors import ArgumentError, CompileError


class CompileException(Exception):
    pass


class Device:
    def __init__(self, log: list, number: int) -> None:
        self.log, self.id = log, number

    def __enter__(self):
        self.log.append(("device", self.id))

    def __exit__(self, *_):
        self.log.append(("device left",))


class Array:
    """As much of a CuPy array as a launch looks at."""

    def __init__(self, log: list, host: np.ndarray, device: int = 0) -> None:
        self.host, self.device = host, Device(log, device)
        self.dtype, self.shape, self.strides = host.dtype, host.shape, host.strides
        self.nbytes, self.itemsize = host.nbytes, host.itemsize
        self.flags = types.SimpleNamespace(c_contiguous=host.flags.c_contiguous)
        self.data = types.SimpleNamespace(ptr=host.ctypes.data)


Array.__module__ = "cupy"


class Kernel:
    def __init__(self, log: list, name: str) -> None:
        self.log, self.name = log, name
        self.max_dynamic_shared_size_bytes = 48 * 1024

    def __call__(self, grid, block, args, *, shared_mem=0):
        self.log.append(("launch", self.name, grid, block, args, shared_mem))


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in; `cupy.log` is what was done, `cupy.modules` what RawModule was given."""
    module = types.ModuleType("cupy")
    module.log, module.modules, module.kernels, module.broken = [], [], {}, ""

    class RawModule:
        def __init__(self, **given) -> None:
            module.modules.append(given)

        def get_function(self, name):
            if module.broken:
                raise CompileException(module.broken)
            return module.kernels.setdefault(name, Kernel(module.log, name))

        def get_global(self, name):
            return f"memory of {name}"

    module.RawModule = RawModule
    module.ndarray = lambda shape, dtype, memory: (shape, dtype, memory)
    module.asarray = lambda x: Array(module.log, x)
    module.make = lambda host, device=0: Array(module.log, host, device)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


TEXT = """template <class T> __global__ void scale(T* x, T a, int n) {}
extern "C" __global__ void k(float* x, const __nv_bfloat16* y, float a, long long n, bool b,
                             __nv_bfloat16 h) {}
"""


def test_arguments_have_as_many_bytes_as_are_declared(cupy):
    x, y = cupy.make(np.zeros(4, np.float32)), cupy.make(np.zeros(4, np.uint16))
    kernel = cuda.load(code=TEXT).get_function("k")
    assert kernel(2, (8, 4), (x, None, 0.5, 3, True, 1.0)) is None
    kernel(2, 8, (x, y, 1, 3, False, bfloat16(1)), 1024)
    launches = [entry[1:] for entry in cupy.log if entry[0] == "launch"]
    assert [launch[:3] + launch[4:] for launch in launches] == [
        ("k", (2, 1, 1), (8, 4, 1), 0),
        ("k", (2, 1, 1), (8, 1, 1), 1024),
    ]
    args = launches[0][3]
    assert [type(arg) for arg in args] == [
        np.uint64,
        np.uint64,
        np.float32,
        np.int64,
        np.bool_,
        np.uint16,
    ]
    assert list(args) == [x.data.ptr, 0, 0.5, 3, True, 0x3F80]
    assert launches[1][3][1] == y.data.ptr


def test_the_module_gets_text_options_and_names(cupy, tmp_path):
    (tmp_path / "k.cu").write_text(f'#include "h.cuh"\n{TEXT}')
    (tmp_path / "h.cuh").write_text("\n")
    x = cupy.make(np.zeros(4, np.float32))

    def launch():
        module = cuda.load(
            tmp_path / "k.cu",
            name_expressions=["scale<float>"],
            defines={"TILE": 16, "FAST": True},
            cooperative=True,
        )
        assert len(cupy.modules) < 3  # nothing is compiled before the first launch
        module.get_function("scale<float>")(1, 1, (x, 2, 4))
        return cupy.modules[-1]

    first = launch()
    assert first["code"] == f'#line 1 "{tmp_path}/k.cu"\n#include "h.cuh"\n{TEXT}'
    assert first["name_expressions"] == ("scale<float>",)
    assert first["enable_cooperative_groups"] is True
    assert "-std=c++17" in first["options"]
    assert f"-I{tmp_path}" in first["options"]
    assert {"-DTILE=16", "-DFAST=1"} < set(first["options"])
    assert launch()["options"] == first["options"]
    (tmp_path / "h.cuh").write_text("// edited\n")
    assert launch()["options"] != first["options"]  # else CuPy runs what it has kept


def test_a_text_without_templates_asks_for_no_names(cupy):
    x = cupy.make(np.zeros(4, np.float32))
    cuda.load(code=TEXT).get_function("k")(1, 1, (x, None, 0.5, 3, True, 1))
    assert cupy.modules[0]["name_expressions"] is None
    assert cupy.modules[0]["code"].startswith('#line 1 "<code>"\n')


SHARED = 'extern "C" __global__ void k(float* x) {}'


def test_more_than_48_kb_of_shared_memory_is_asked_for(cupy):
    kernel = cuda.load(code=SHARED).get_function("k")
    x = cupy.make(np.zeros(4, np.float32))
    kernel(1, 1, (x,), shared_mem=48 * 1024)
    assert cupy.kernels["k"].max_dynamic_shared_size_bytes == 48 * 1024
    kernel(1, 1, (x,), shared_mem=100_000)
    assert cupy.kernels["k"].max_dynamic_shared_size_bytes == 100_000
    kernel(1, 1, (x,), shared_mem=60_000)
    assert cupy.kernels["k"].max_dynamic_shared_size_bytes == 100_000
    with pytest.raises(ArgumentError, match="227 KB"):
        kernel(1, 1, (x,), shared_mem=300_000)


class Stream:
    """A stream is entered as often as one likes."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append(("stream",))

    def __exit__(self, *error):
        self.log.append(("stream left",))


def test_a_launch_is_on_the_device_of_the_arrays_and_the_stream(cupy):
    kernel = cuda.load(code=SHARED).get_function("k")
    kernel(1, 1, (cupy.make(np.zeros(4, np.float32), 1),), stream=Stream(cupy.log))
    del cupy.log[:2]  # the stream in which the arguments are made
    assert [entry[0] for entry in cupy.log] == [
        "device",
        "stream",
        "launch",
        "stream left",
        "device left",
    ]
    assert cupy.log[0] == ("device", 1)


def test_arrays_of_two_devices_are_refused(cupy):
    kernel = cuda.load(code='extern "C" __global__ void k(float* x, float* y) {}').get_function("k")
    x = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="k: argument 1 is on GPU 1, argument 0 on GPU 0"):
        kernel(1, 1, (cupy.make(x), cupy.make(x, 1)))
    with pytest.raises(ArgumentError, match="argument 1 is an array of NumPy, argument 0 one of C"):
        kernel(1, 1, (cupy.make(x), x))


def test_a_wrong_array_is_refused_as_on_the_host(cupy):
    kernel = cuda.load(code=SHARED).get_function("k")
    with pytest.raises(ArgumentError, match=r"'x' is float64\[4\], the kernel declares float32"):
        kernel(1, 1, (cupy.make(np.zeros(4)),))
    with pytest.raises(ArgumentError, match="not C-contiguous"):
        kernel(1, 1, (cupy.make(np.zeros(4, np.float32)[::2]),))


def test_what_nvrtc_says_is_a_compile_error(cupy):
    cupy.broken = "k.cu(3): error: expected a ;"
    kernel = cuda.load(code=SHARED).get_function("k")
    with pytest.raises(CompileError, match=r"<code> does not compile:\nk.cu\(3\): error: expected"):
        kernel(1, 1, (cupy.make(np.zeros(4, np.float32)),))


def test_a_table_of_arrays_is_an_array_on_the_device(cupy):
    kernel = cuda.load(code='extern "C" __global__ void k(float** x) {}').get_function("k")
    x = cupy.make(np.zeros(4, np.float32))
    tables = []
    cupy.asarray = lambda host: tables.append(Array(cupy.log, host)) or tables[-1]
    kernel(1, 1, ([x, None],))
    assert tables[0].host.tolist() == [x.data.ptr, 0]
    [launch] = [entry for entry in cupy.log if entry[0] == "launch"]
    assert launch[4] == (tables[0].data.ptr,)


def test_variables_are_those_of_the_device(cupy):
    module = cuda.load(code=SHARED)
    x = cupy.make(np.zeros(4, np.float32))
    wanted = ((2, 3), np.dtype("f4"), "memory of table")
    assert module.get_global("table", "f4", (2, 3), like=x) == wanted
    assert module.get_global("table", "f4", (2, 3)) == wanted  # where it has been used


def test_a_table_is_copied_in_the_stream_that_reads_it(cupy):
    cupy.asarray = lambda host: cupy.log.append(("table",)) or Array(cupy.log, host)
    text = 'extern "C" __global__ void k(float* const* rows) {}'
    x = cupy.make(np.zeros(4, np.float32))
    cuda.load(code=text).get_function("k")(1, 1, ([x, x],), stream=Stream(cupy.log))
    assert [entry[0] for entry in cupy.log][:3] == ["stream", "table", "stream left"]
