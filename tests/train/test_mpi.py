"""Training over real MPI ranks: the numbers of one process, stopping with Ctrl-C, resuming."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minidist import processes
from minidist.train import metrics
from tests.train.runs import TINY, same_run, saved, train
from tests.train.test_trace import check_trace

ROOT = Path(__file__).resolve().parents[2]

EQUAL_TO_PLAIN = """
import json
import numpy as np
from minidist.comm import world
from minidist.parallel.bucket import GRADIENTS
from tests.train import plain
from tests.train.test_step import CLOSE, WITNESSES, train

comm, size = world(), 0
for case, _ in WITNESSES:
    losses, norms, grads, weights = plain.train(case)
    l, n, g, w, _ = train(comm, case)
    scale = min(1.0, case.clip / norms[-1]) if case.clip else 1.0
    assert np.allclose(l, losses, **CLOSE) and np.allclose(n, norms, **CLOSE), (l, losses)
    assert all(np.allclose(w[name], weights[name], **CLOSE) for name in weights)
    assert all(np.allclose(g[name], grads[name] * scale, **CLOSE) for name in grads)
    size += case.steps * sum(g.nbytes for g in grads.values())
    everyone = comm.gather_objects(b"".join(w[name].tobytes() for name in sorted(w)))
    assert len(set(everyone)) == 1, "weights differ by rank"
sent = comm.gather_objects(comm.traffic.by[GRADIENTS].bytes)
if comm.rank == 0:
    print(json.dumps({"sent": sum(sent), "formula": 2 * (comm.size - 1) * size}))
"""


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_mpi_ranks_train_as_one_process_does(mpirun, ranks):
    """Losses, norms, gradients and weights within 1e-10; traffic exactly by the formula."""
    done = mpirun(EQUAL_TO_PLAIN, ranks=ranks, env={"PYTHONPATH": str(ROOT)})
    result = json.loads(done.stdout)
    assert result["sent"] == result["formula"] > 0


def words(**flags):
    flags = {"data": "text.txt", **TINY, **flags}
    return [w for name, v in flags.items() for w in ("--" + name.replace("_", "-"), str(v))]


def test_the_command_over_mpi_writes_what_it_writes_in_process(folder, mpirun):
    """The same ring in the same order: every bit of every weight."""
    done = mpirun(["minidist", "train", *words(out="mpi")], ranks=3)
    assert "3 ranks, the same weights on each" in done.stdout
    assert train(out="here", in_process=3) == 0
    same_run(folder / "mpi", folder / "here")
    check_trace(folder / "mpi/trace.json", ranks=3, units=3, buckets=3)


@pytest.mark.mpi
def test_ctrl_c_saves_and_the_run_goes_on_elsewhere(folder):
    """SIGINT to the launcher while it trains; resumed in process, it is the straight run."""
    launch = [sys.executable, "-m", "minidist", "launch", "-n", "2", "--", "minidist", "train"]
    job = processes.start([*launch, *words(out="cut", steps=400)], folder)
    seen = [job.stdout.readline() for _ in range(8)]  # text, ranks, their table, columns, 2 steps
    assert seen[-1].split()[0].isdigit(), seen
    os.kill(job.pid, signal.SIGINT)
    done = processes.finish(job, 60)
    assert done.returncode == 130, done.stderr
    step = saved(folder / "cut").step
    assert f"stopped after step {step}; go on with --resume cut" in done.stdout
    assert train(resume="cut", in_process=2, stop_after=step + 2) == 0
    assert train(out="straight", in_process=2, steps=400, stop_after=step + 2) == 0
    same_run(folder / "straight", folder / "cut")
    assert metrics.read(folder / "cut/metrics.jsonl")[-1].step == step + 2


def test_a_refusal_is_said_once_and_ends_all_ranks(folder, mpirun):
    done = mpirun(["minidist", "train", *words(data="absent.txt")], ranks=3, check=False)
    assert done.returncode == 1
    assert done.stderr.count("minidist train: --data absent.txt: cannot be read") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_default_run_beats_zlib(tmp_path):
    """`./run train`: below zlib's 2.21 nats a byte; the time is measured elsewhere."""
    launch = [sys.executable, "-m", "minidist", "launch", "-n", "4", "--", "minidist", "train"]
    done = subprocess.run(
        [*launch, "--out", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    last = metrics.read(tmp_path / "run/metrics.jsonl")[-1]
    assert last.val_loss < 2.21 - 0.1
    assert np.isfinite(last.loss)
