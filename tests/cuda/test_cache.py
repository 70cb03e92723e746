"""Compiled kernels are kept: once for all processes, anew when anything has changed."""

import fcntl
import os
import sys
from pathlib import Path

import pytest

from minidist import processes
from minidist.cuda.cache import kept, kernel_cache, key_of
from minidist.cuda.emulator import opened
from minidist.errors import KernelError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def test_keys_differ_where_texts_do():
    keys = [key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", ""), key_of()]
    assert len(set(keys)) == len(keys)
    assert key_of("ab", "c") == keys[0]


def test_a_file_is_made_once(folder):
    made = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("whole")

    first = kept("k", make)
    assert first == kept("k", make) == folder / "k.so"
    assert first.read_text() == "whole"
    assert len(made) == 1
    assert made[0] != first  # it gets its name when it is whole


def test_a_failure_leaves_nothing(folder):
    def fail(path: Path) -> None:
        path.write_text("half")
        raise KernelError("no")

    with pytest.raises(KernelError, match="no"):
        kept("k", fail)
    assert [path.name for path in folder.iterdir()] == ["k.lock"]
    assert kept("k", lambda path: path.touch() or None).exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        KernelError, match=r"cannot keep compiled kernels in .*file.*MINIDIST_CACHE"
    ):
        kernel_cache()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    with pytest.raises(KernelError, match=r"cannot keep compiled kernels .*Permission denied"):
        kept("k", lambda path: None)


def test_no_home_is_one_sentence(monkeypatch):
    monkeypatch.delenv("MINIDIST_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(KernelError, match=r"no folder for compiled kernels: .*MINIDIST_CACHE"):
        kernel_cache()


ONE_OF_FOUR = """
import sys
from minidist.cuda.cache import kept
from minidist.cuda.emulator import opened

def make(path):
    print("made", flush=True)
    path.write_text("whole")

print("ready", flush=True)
print(kept("k", make).read_text(), flush=True)
"""


def test_four_processes_at_once_make_a_file_once(folder, tmp_path):
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", ONE_OF_FOUR]
    with (folder / "k.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # none can go on before all have come
        four = [processes.start(command, tmp_path) for _ in range(4)]
        for process in four:
            assert process.stdout.readline() == "ready\n"
    said = [processes.finish(process, 60) for process in four]
    assert [(done.returncode, done.stderr) for done in said] == [(0, "")] * 4
    assert sorted("".join(done.stdout for done in said).split()) == ["made"] + ["whole"] * 4


def test_a_relative_folder_is_meant_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINIDIST_CACHE", "here")
    assert kernel_cache() == tmp_path / "here" / "kernels"


def test_what_cannot_be_loaded_is_one_sentence(tmp_path):
    (tmp_path / "bad.so").write_text("no library")
    with pytest.raises(KernelError, match=r"cannot load .*bad.so .*: delete it, or set MINIDIST"):
        opened(tmp_path / "bad.so")
