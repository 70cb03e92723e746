"""Runs that are stopped, killed and resumed compute what a straight run would have."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from minidist.testing.mutants import mutate
from minidist.train import command, trainer
from minidist.train.precision import LossScale
from minidist.train.step import Step
from minidist.train.stop import StopRequest
from tests.train.runs import TINY, rows, same_run, saved, train, weights

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("ranks", "dtype", "stops"),
    [(1, "float32", [3]), (3, "float32", [1, 2, 5]), (4, "float64", [3])],
)
def test_a_resumed_run_is_the_straight_run_bit_for_bit(folder, ranks, dtype, stops, capsys):
    """KempnerForge#51: through the command line. Moments, step, order of data, rate, dropout."""
    assert train(out="straight", in_process=ranks, dtype=dtype) == 0
    how = {"out": "cut", "dtype": dtype}
    for stop in stops:
        assert train(in_process=ranks, stop_after=stop, **how) == 0
        assert saved(folder / "cut").step == stop
        assert "go on with --resume cut" in capsys.readouterr().out
        how = {"resume": "cut"}
    assert train(resume="cut", in_process=ranks) == 0
    same_run(folder / "straight", folder / "cut")


def check_skipped(folder, monkeypatch, kind=LossScale):
    """The optimiser's number of an update is that of the run: skipped steps are none, ever.

    The scale starts so high that the first steps overflow.
    """
    monkeypatch.setattr(kind.__init__, "__defaults__", (2.0**24, 200, True))
    monkeypatch.setattr("minidist.train.precision.LossScale", kind)
    flags = {"dtype": "float16"}
    assert train(out="straight", **flags) == 0
    assert train(out="cut", stop_after=2, **flags) == 0
    assert json.loads(saved(folder / "cut").about["loss_scale"])["skipped"] > 0
    assert train(resume="cut") == 0
    same_run(folder / "straight", folder / "cut")


def test_skipped_steps_are_counted_over_sittings(folder, monkeypatch):
    check_skipped(folder, monkeypatch)


def test_skipped_steps_that_are_forgotten_are_seen(folder, monkeypatch):
    wrong = mutate(LossScale, 'skipped = int(state.get("skipped", -1))', "skipped = 0")
    with pytest.raises(AssertionError):
        check_skipped(folder, monkeypatch, wrong)


RESUME_MUTANTS = {
    "the step is lost": ("self.done = self.first = step", "self.done = 0"),
    "one step is done twice": ("self.first = step\n", "self.first = step - 1\n"),
    "metrics are kept": ("metrics.cut_after(self.folder.metrics, self.done)", "pass"),
}


@pytest.mark.parametrize("name", RESUME_MUTANTS)
def test_a_wrong_resume_is_seen(folder, name, monkeypatch):
    assert train(out="straight") == 0
    assert train(out="cut", stop_after=3) == 0
    with (folder / "cut/metrics.jsonl").open("a") as file:
        file.write((folder / "straight/metrics.jsonl").read_text().splitlines()[3] + "\n")
    monkeypatch.setattr(command, "Trainer", mutate(trainer.Trainer, *RESUME_MUTANTS[name]))
    assert train(resume="cut") == 0
    with pytest.raises(AssertionError):
        same_run(folder / "straight", folder / "cut")


def test_metrics_beyond_the_checkpoint_are_written_again(folder):
    """A run that was killed after step 5, when step 3 was saved, and in the middle of a line."""
    assert train(out="straight") == 0
    assert train(out="killed", stop_after=3) == 0
    whole = (folder / "straight/metrics.jsonl").read_text().splitlines()
    with (folder / "killed/metrics.jsonl").open("a") as file:
        file.write("\n".join(whole[3:5]) + '\n{"step": 6, "lo')
    assert train(resume="killed") == 0
    same_run(folder / "straight", folder / "killed")


def test_a_run_that_was_killed_goes_on_from_what_it_saved(folder):
    """By kill -9, wherever it is when its seventh line arrives; it saves after each step."""
    flags = {"data": "text.txt", **TINY, "steps": 400, "save_every": 1, "out": "killed"}
    words = [w for name, v in flags.items() for w in ("--" + name.replace("_", "-"), str(v))]
    command_line = [sys.executable, "-m", "minidist", "train", *words]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as job:
        seen = [job.stdout.readline() for _ in range(7)]
        job.kill()
    assert seen[-1].split()[0].isdigit(), seen
    end = saved(folder / "killed").step + 2
    assert train(resume="killed", stop_after=end) == 0
    assert train(out="straight", steps=400, stop_after=end) == 0
    same_run(folder / "straight", folder / "killed")


@pytest.mark.parametrize("ranks", [(1, 2), (4, 3), (5, 1)])
def test_a_run_goes_on_with_another_number_of_ranks(folder, ranks):
    assert train(out="straight") == 0
    assert train(out="cut", stop_after=3, in_process=ranks[0]) == 0
    assert train(resume="cut", in_process=ranks[1]) == 0
    for a, b in zip(rows(folder / "straight"), rows(folder / "cut"), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-10)
    for name, tensor in weights(folder / "straight").items():
        assert np.allclose(tensor, weights(folder / "cut")[name], rtol=1e-10, atol=1e-10)


def test_saving_now_and_then_changes_nothing(folder):
    assert train(out="a", save_every=0) == 0
    assert train(out="b", save_every=1) == 0
    same_run(folder / "a", folder / "b")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_the_step_saves_and_says_how_to_go_on(folder, number, monkeypatch, capsys):
    """The signal comes in the middle of a step of one rank; all ranks stop after the same step."""
    assert train(out="straight", in_process=3) == 0
    real = Step._agree

    def interrupted(self, *args):
        if self.comm.rank == 1 and args[0] > 0 and not os.environ.get("SENT"):
            monkeypatch.setenv("SENT", "1")
            os.kill(os.getpid(), number)
        return real(self, *args)

    monkeypatch.setattr(Step, "_agree", interrupted)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    assert train(out="cut", in_process=3) == 130
    assert [
        signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    ] == handlers
    step = saved(folder / "cut").step
    assert 2 <= step <= 3
    assert f"stopped after step {step}; go on with --resume cut" in capsys.readouterr().out
    assert train(resume="cut", in_process=3) == 0
    same_run(folder / "straight", folder / "cut")


def test_a_second_signal_ends_at_once():
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
