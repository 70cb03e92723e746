"""The doctor sees what is there, names a remedy for what is not, and fails only for CPU faults."""

import argparse
import os
import platform
import sys
from types import SimpleNamespace

import pytest

from minidist import doctor, launch, processes
from minidist.errors import LaunchError

NO_FLAGS = argparse.Namespace()


@pytest.mark.mpi
def test_a_healthy_machine_is_ready(capsys):
    assert doctor.main(NO_FLAGS) == 0
    shown = capsys.readouterr().out
    assert all(f"OK       {name}" in shown for name in ("Python", "MPI library", "MPI launcher"))
    assert "two ranks exchanged a message" in shown
    assert platform.python_version() in shown
    assert shown.endswith("ready for work on CPUs\n")


def test_each_fault_has_a_remedy_and_only_cpu_faults_count(monkeypatch, capsys):
    bad = doctor.Finding(False, "not there", "buy one")
    monkeypatch.setattr(doctor, "CHECKS", {"thing": lambda: bad})
    assert doctor.main(NO_FLAGS) == 0
    assert capsys.readouterr().out.splitlines() == [
        "missing  thing          not there",
        "                        -> buy one",
        "ready for work on CPUs",
    ]
    monkeypatch.setattr(doctor, "CHECKS", {"thing": lambda: bad._replace(fatal=True)})
    assert doctor.main(NO_FLAGS) == 1
    assert "stops all work: thing" in capsys.readouterr().out


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


def test_no_mpi_library_is_fatal(monkeypatch):
    monkeypatch.setattr(launch, "library", raises(LaunchError("no MPI library: pip install x")))
    for check in (doctor.mpi_library, doctor.launcher):
        found = check()
        assert not found.ok
        assert found.fatal
        assert "pip install x" in found.remedy


@pytest.mark.parametrize("error", [TimeoutError("no end"), AssertionError("status 1: why")])
def test_ranks_that_do_not_meet_are_fatal(monkeypatch, error):
    monkeypatch.setattr(processes, "mpirun", raises(error))
    found = doctor.two_ranks()
    assert (found.ok, found.fatal) == (False, True)
    assert found.remedy


@pytest.mark.parametrize(
    ("word", "ok"), [("1", True), ("2", True), ("3", False), ("0", False), ("many", False)]
)
def test_blas_threads_must_fit_the_cores(monkeypatch, word, ok):
    monkeypatch.setenv("OMP_NUM_THREADS", word)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    found = doctor.blas_threads()
    assert found.ok == ok
    assert word in found.what


@pytest.mark.parametrize(("blocks", "ok"), [(2**30 // 4096, True), (2**20 // 4096, False)])
def test_little_shared_memory_is_told(monkeypatch, blocks, ok):
    space = SimpleNamespace(f_bavail=blocks, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    found = doctor.shared_memory()
    assert (found.ok, found.fatal) == (ok, False)
    assert f"{blocks * 4096 // 2**20} MiB" in found.what


def test_an_old_python_is_fatal(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert (doctor.python().ok, doctor.python().fatal) == (False, True)


def test_no_gpu_and_no_compiler_are_not_fatal(monkeypatch):
    monkeypatch.setattr(doctor, "gpu", lambda: (False, "no device"))
    monkeypatch.setattr(doctor, "CDLL", raises(OSError("libcuda.so.1")))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    for check in (doctor.kernel, doctor.driver, doctor.compiler, doctor.kernel_lines):
        found = check()
        assert (found.ok, found.fatal) == (False, False)
        assert found.remedy


def test_the_compiler_of_kernels_is_named(monkeypatch, tmp_path):
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\necho 'g++ 12.2'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert doctor.compiler() == (True, f"g++ 12.2 ({fake})", "", False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "CXX=no-such-compiler" in doctor.compiler().remedy
    (tmp_path / "llvm-addr2line").symlink_to(fake)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.kernel_lines().what == str(tmp_path / "llvm-addr2line")
