"""A file of weights is whole or absent; a kill at any moment loses nothing."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import CheckpointError
from minidist.files import replace_file
from minidist.testing.mutants import mutate
from minidist.train import weights
from minidist.train.weights import check_same_shapes, load_weights, save_weights


def tensors(seed=1):
    """What a model might have, frozen, empty and without dimensions included."""
    rng = np.random.default_rng(seed)
    shapes = {"matrix": (2, 3), "frozen": (4,), "empty": (0, 5), "scalar": ()}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_what_was_saved_comes_back(tmp_path):
    path = tmp_path / "a.safetensors"
    save_weights(path, 17, tensors(), {"config": "x = 'ü'\n"})
    step, found, about = load_weights(path)
    assert (step, about) == (17, {"config": "x = 'ü'\n"})
    assert found.keys() == tensors().keys()
    for name, value in tensors().items():
        assert (found[name].shape, found[name].tobytes()) == (value.shape, value.tobytes())


def check_other_models_are_refused(check=check_same_shapes):
    wanted = {name: np.empty(t.shape, t.dtype) for name, t in tensors().items()}
    with pytest.raises(
        CheckpointError, match=r"matrix is \(2, 4\) float32, the model wants \(2, 3\)"
    ):
        check({**tensors(), "matrix": np.zeros((2, 4), np.float32)}, wanted)
    less = tensors()
    del less["scalar"]
    with pytest.raises(CheckpointError, match=r"scalar is absent, the model wants \(\) float32"):
        check(less, wanted)
    with pytest.raises(CheckpointError, match=r"more is \(3,\) float64, .* wants absent"):
        check({**tensors(), "more": np.zeros(3)}, wanted)


def test_another_model_is_refused():
    check_other_models_are_refused()


def test_a_check_that_does_not_look_is_seen():
    broken = mutate(check_same_shapes, "if a != b:", "if a == b == 0:")
    with pytest.raises(pytest.fail.Exception):
        check_other_models_are_refused(broken)


# --- damage ------------------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "a.safetensors"
    save_weights(path, 3, tensors())
    return path.read_bytes()


@given(st.data())
def test_a_file_cut_short_is_refused(file, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "a.safetensors"
    path.write_bytes(file[: data.draw(st.integers(0, len(file) - 1))])
    with pytest.raises(CheckpointError, match="damaged"):
        load_weights(path)


def flip(load, file, folder, position, bit):
    path = folder / "a.safetensors"
    damaged = bytearray(file)
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        found = load(path)
    except CheckpointError:
        return
    right = tensors()
    assert found.step == 3
    assert all(np.array_equal(found.tensors[name], right[name]) for name in right)


@given(st.data(), st.integers(0, 7))
def test_a_flipped_bit_is_refused(file, tmp_path_factory, data, bit):
    position = data.draw(st.integers(0, len(file) - 1))
    flip(load_weights, file, tmp_path_factory.mktemp("flip"), position, bit)


def test_a_load_that_does_not_check_is_seen(file, tmp_path):
    broken = mutate(load_weights, "!= _checksum(tensors, about)", "is None")
    with pytest.raises(AssertionError):
        flip(broken, file, tmp_path, len(file) - 1, 3)


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*x\.safetensors"):
        load_weights(tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        load_weights(tmp_path)
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        load_weights(tmp_path / "foreign.safetensors")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot save .*No such file"):
        save_weights(tmp_path / "absent" / "a.safetensors", 1, tensors())


# --- kill -9 -----------------------------------------------------

SAVES_AND_DIES = """
import io, os, pathlib, signal, sys
import numpy as np
from minidist.testing.mutants import mutate
from minidist import files
from minidist.train import weights

point, old, new = sys.argv[1:]
path = pathlib.Path("a.safetensors")
weights.save_weights(path, 1, {"w": np.full(1000, 1.0)})

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(io.FileIO):
    def write(self, data):
        super().write(data[: int(len(data) * float(point))])
        die()

if point.replace(".", "").isdigit():
    pathlib.Path.open = lambda self, mode: Dying(self, mode)
elif point == "at the flush":
    os.fsync = die
elif point == "before the rename":
    pathlib.Path.replace = die
elif point == "after the rename":
    os.open = die
if old:
    weights.replace_file = mutate(files.replace_file, old, new)
weights.save_weights(path, 2, {"w": np.full(1000, 2.0)})
"""


def killed_while_saving(folder, point, old="", new=""):
    """Return the step and the tensors of the file that a writer leaves which dies at `point`."""
    command = [sys.executable, "-c", SAVES_AND_DIES, point, old, new]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    step, tensors, _ = load_weights(folder / "a.safetensors")
    assert np.array_equal(tensors["w"], np.full(1000, float(step)))
    return step


POINTS = ["0", "0.001", "0.5", "0.999", "1", "at the flush", "before the rename"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_during_a_save_leaves_the_checkpoint_before(tmp_path, point):
    """pytorch-lightning#688: and the leftover is in nobody's way."""
    assert killed_while_saving(tmp_path, point) == 1
    assert (tmp_path / "a.safetensors.tmp").exists()
    save_weights(tmp_path / "a.safetensors", 3, {"w": np.full(1000, 3.0)})
    assert load_weights(tmp_path / "a.safetensors").step == 3
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_kill_after_the_rename_leaves_the_new_one(tmp_path):
    assert killed_while_saving(tmp_path, "after the rename") == 2


def test_writing_straight_to_the_name_is_seen(tmp_path):
    with pytest.raises(CheckpointError, match="damaged"):
        killed_while_saving(tmp_path, "0.5", 'path.with_name(path.name + ".tmp")', "path")


def test_bytes_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    """The order of system calls: flush the file, rename it, flush the folder."""
    calls = []
    fsync, replace = weights.replace_file.__globals__["os"].fsync, type(tmp_path).replace
    monkeypatch.setattr("os.fsync", lambda fd: calls.append("flush") or fsync(fd))
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda p, to: calls.append("rename") or replace(p, to)
    )
    replace_file(tmp_path / "x", b"data")
    assert calls == ["flush", "rename", "flush"]
    assert (tmp_path / "x").read_bytes() == b"data"
