"""The benchmarks of training and of devices run, and say what they claim to say. No time counts."""

import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from minidist import ops
from minidist.arrays import namespace
from minidist.comm import run
from minidist.parallel.mesh import Mesh
from minidist.testing import fake_device
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.corpus import Text
from minidist.train.folder import RunFolder
from minidist.train.trainer import Trainer

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = ["timing", "table", "layer_kinds", "training"]
NAMES += ["device_ops", "device_kernels", "device_checks", "device_speed", "gpu_check"]
NAMES += ["memory_wall", "overlap"]
NAMES += ["kernel_speed", "kernel_speed_model", "kernels"]
TINY = ["--layers=1", "--width=8", "--heads=2", "--context=8", "--batch=3", "-n=2", "-w=0"]


@pytest.fixture
def scripts(monkeypatch):
    """The benchmarks, which are files beside each other and no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield types.SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


# --- training ------------------------------------------------------------------------------------


def test_ranks_together_are_timed_beside_copies(mpirun, tmp_path):
    done = mpirun([str(BENCHMARKS / "training.py"), *TINY, "--json", "out.json"])
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert written["ranks"] == 2
    assert written["config"]["width"] == 8
    assert {"communication", "attention", "optimiser", "the rest"} <= set(written["kinds_ms"])
    rows = {row["variant"]: row for row in written["rows"]}
    assert {name: row["samples"] for name, row in rows.items()} == {
        "together, 3 in all": 3,
        "copies of 2": 4,
        "together, 3 a rank": 6,
        "copies of 3": 6,
    }
    assert [row["beside"] for row in rows.values()] == ["copies of 2", None, "copies of 3", None]
    assert all(name in done.stdout for name in rows)


def test_one_rank_needs_no_mpi(scripts, monkeypatch, capsys):
    monkeypatch.setattr(scripts.training, "restart_with", lambda settings: None)
    monkeypatch.setattr(scripts.training, "launched", lambda: False)
    assert scripts.training.main(TINY) == 0
    assert "one rank" in capsys.readouterr().out


def test_a_missing_torch_is_one_sentence(scripts, monkeypatch, capsys):
    monkeypatch.setattr(scripts.training, "restart_with", lambda settings: None)
    monkeypatch.setattr(scripts.training, "launched", lambda: False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert scripts.training.main([*TINY, "--against", "torch"]) == 1
    assert capsys.readouterr().err == (
        "training.py: --against torch needs PyTorch: pip install torch\n"
    )


def test_torch_computes_the_same(scripts, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(scripts.training, "restart_with", lambda settings: None)
    monkeypatch.setattr(scripts.training, "launched", lambda: False)
    assert scripts.training.main([*TINY, "--tied", "--against", "torch"]) == 0
    assert "of torch" in capsys.readouterr().out


def test_a_difference_to_torch_is_an_error(scripts):
    x = np.array([1.0, 2.0])
    scripts.training.close("x", x, x + 1e-11)
    with pytest.raises(scripts.training.ConfigError, match=r"differ in the x by 5\.0e-07"):
        scripts.training.close("x", x, x + 1e-6)


def test_speed_is_the_quotient_of_each_round(scripts):
    # Round two was slow for both: the quotient of the medians would be 1.5 or so.
    assert scripts.timing.speed([1.0, 30.0, 1.0], [2.0, 60.0, 2.0]).median == 2.0


def test_a_row_names_its_figures(scripts):
    t = scripts.timing.Times(0.1, 0.09, 0.12)
    row = scripts.training.Row("together", 16, 20480.0, t, "copies", t)
    text = scripts.training.line(row).split()
    assert text == ["together", "16", "100.0", "90.0-120.0", "20,480", "0.100", "0.09-0.12"]
    assert len(scripts.training.header("copies")) == len(scripts.training.line(row))


def test_layers_on_the_clock_compute_the_same(scripts):
    config = TrainConfig(layers=2, width=8, heads=2, context=8, batch=3, dropout=0.1)
    text = Text("squares", bytes(i * i % 251 for i in range(2000)))

    def program(comm):
        plain, timed = (
            Trainer(Mesh(comm), config, Layout(), Session(), RunFolder("none"), text, np)
            for _ in range(2)
        )
        for step in range(3):
            plain.step(step)
        kinds = scripts.layer_kinds.time_kinds(timed, 2, lambda: None)  # steps 0, 1 and 2
        assert timed.step(3) == plain.step(3)
        return kinds

    for kinds in run(program, ranks=2):
        assert set(kinds) == {
            *("embedding", "dropout", "rmsnorm", "attention", "swiglu", "head", "loss"),
            *("communication", "clear, norm", "optimiser", "the rest"),
        }
        assert set(kinds["attention"]) == {"forward", "backward"}
        assert all(ms >= 0 for phases in kinds.values() for ms in phases.values())


def test_tables_of_ranks_are_averaged(scripts):
    tables = [{"head": {"forward": 1.0}, "loss": {"between": 4.0}}, {"head": {"forward": 3.0}}]
    tables[1]["loss"] = {}
    mean = scripts.layer_kinds.average(tables)
    assert mean == {"head": {"forward": 2.0}, "loss": {"between": 2.0}}
    first = list(scripts.layer_kinds.lines(mean))[1].split()
    assert first == ["head", "2.00", "50.0%"]


# --- the memory wall -----------------------------------------------------------------------------


def test_overlap_is_told_on_the_virtual_clock(scripts):
    """Naive sums hide nothing; every stage hides on a fast link, and stage 3 less on a slow one."""
    o = scripts.overlap
    fast, slow = (5e-6, 2e9), (5e-6, 1e8)
    naive = o.measure("naive", o.naive(4, 1 << 14), fast, 4, 3)
    assert abs(naive.hidden) < 0.02
    for stage in range(4):
        assert o.measure("stage", o.zero(stage, 4, 1 << 14), fast, 4, 3).hidden > 0.6
    one, three = (o.measure("stage", o.zero(n, 4, 1 << 16), slow, 4, 3) for n in (1, 3))
    assert three.step > one.step > 1.2


def test_the_memory_wall_is_measured(scripts, monkeypatch, capsys):
    monkeypatch.setattr(scripts.memory_wall, "restart_with", lambda settings: None)
    monkeypatch.setattr(scripts.memory_wall, "launched", lambda: False)
    assert scripts.memory_wall.main([*TINY, "--ranks", "2"]) == 0
    rows = [text.split() for text in capsys.readouterr().out.splitlines() if text[0] != "#"]
    assert len(rows) == sum(map(len, scripts.memory_wall.TABLES.values()))
    stages = rows[:4]
    states = [float(row[-2]) for row in stages]
    assert states == sorted(states, reverse=True)
    assert [float(row[-1]) for row in stages[:3]] == [0.0] * 3, "no extra copies at stages 1, 2"
    assert float(stages[3][-1]) > 0


# --- devices -------------------------------------------------------------------------------------


def test_every_check_passes_on_the_fake_device(tmp_path):
    path = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--fake", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(path.read_text("utf-8"))
    assert {"commit", "numpy", "device", "checks", "timings"} <= set(written)
    status = {check["name"]: check["status"] for check in written["checks"]}
    assert status.pop("choose_device and a trial kernel") == "skipped"
    status.pop("a message over MPI")  # skipped where there is no MPI
    assert set(status.values()) == {"ok"}
    assert {row["unit"] for row in written["timings"]} == {"GFLOP/s", "GB/s", "tokens/s"}


def test_without_a_gpu_it_is_one_sentence(scripts, monkeypatch, capsys):
    monkeypatch.setattr(scripts.gpu_check, "gpu", lambda: (False, "no device"))
    assert scripts.gpu_check.main([]) == 2
    assert capsys.readouterr().out.startswith("gpu_check.py: no usable GPU here (no device);")


def test_every_operation_is_checked(scripts):
    checked = {name.split()[0] for name in scripts.device_ops.cases()}
    checked -= {"combine", "sum_of_squares"}
    assert checked == set(ops.__all__) - {
        "random",
        "rope_angles",
        "half",
    }  # angles are checked with rope


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_imprecise_device_is_found(scripts, monkeypatch, dtype):
    """As with TF32, which keeps eleven bits of each factor."""
    exact = namespace(fake_device.xp.zeros(1)).matmul

    def matmul(a, b):
        return exact(a.astype(np.float16).astype(a.dtype), b)

    monkeypatch.setattr(fake_device.xp, "matmul", matmul)
    target = scripts.gpu_check.find_target(fake=True)
    same, case = scripts.device_ops.same, scripts.device_ops.cases()["attention"]
    found = scripts.gpu_check.examine("attention", lambda: same(target, case, dtype))
    assert found.status == "failed"
    assert "of the largest element, allowed" in found.detail
    assert "device_ops.py:" in found.detail


def test_a_failed_check_fails_the_run_and_the_others_go_on(scripts, monkeypatch, capsys):
    def broken(target):
        raise RuntimeError("out of memory")

    def absent(target):
        raise scripts.device_ops.Skip("no greenlet")

    every = [("one", broken), ("two", absent), ("three", lambda target: "fine")]
    monkeypatch.setattr(scripts.gpu_check, "checks", lambda: every)
    monkeypatch.setattr(scripts.gpu_check, "timings", lambda target: [])
    assert scripts.gpu_check.main(["--fake"]) == 1
    out = capsys.readouterr().out
    assert "failed   one" in out
    assert "RuntimeError: out of memory (test_benchmarks.py:" in out
    assert "skipped  two" in out
    assert "no greenlet" in out
    assert "# 1 ok, 1 failed, 1 skipped" in out


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.kernel
def test_the_cost_of_emulated_kernels_is_measured(scripts, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(scripts.kernels, "find_place", lambda rehearse: "no device")
    path = tmp_path / "out.json"
    words = ["--elements", "1000", "-n", "2", "--json", str(path)]
    assert scripts.kernels.main(words) == 0
    assert "no usable GPU here (no device)" in capsys.readouterr().out
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert [row["what"].split(":")[0] for row in rows] == [
        *("compile the emulator and a kernel", "compile a file", "launch", "thread", "barrier"),
        *("element", "element"),
    ]


@pytest.mark.kernel
def test_the_gpu_part_runs_emulated_and_every_way_gives_the_same(scripts, capsys, tmp_path):
    path = tmp_path / "out.json"
    assert scripts.kernels.main(["--rehearse", "-n", "2", "--json", str(path)]) == 0
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert {row["operation"] for row in rows} == set(scripts.kernels.OPERATIONS)
    assert all(row["wrong"] == 0 for row in rows)
    assert "not measured" not in capsys.readouterr().out


@pytest.mark.kernel
def test_a_way_that_is_wrong_or_cannot_run_is_said(scripts, monkeypatch, capsys):
    def broken(place, n):
        x = np.ones(n, np.float32)
        ways = {"right": lambda: None, "wrong": lambda: x.__imul__(2), "none": lambda: x[n]}
        return scripts.kernel_speed.Operation("float", 4 * n, ways, x, 1e-3)

    monkeypatch.setattr(scripts.kernels, "OPERATIONS", {"broken": broken, "gone": None})
    said = []
    place = scripts.kernels.find_place(rehearse=True)
    rows = list(scripts.kernel_speed.measure(place, "broken", broken, 10, 2, 1, said.append))
    assert [(row.way, row.wrong) for row in rows] == [("copy", 0), ("right", 0), ("wrong", 10)]
    assert said[0].startswith("# broken, none: not measured: IndexError: index 10 is out of bounds")
    assert scripts.kernels.main(["--rehearse", "-n", "2"]) == 0
    assert "# gone, 1000 elements: not measured: TypeError" in capsys.readouterr().out
