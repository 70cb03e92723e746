"""`minidist train` from the command line: files, stopping, resuming, refusing. In-process ranks."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from minidist import cli
from minidist.comm import run
from minidist.errors import ConfigError, MismatchError
from minidist.testing.mutants import mutate
from minidist.train import command, metrics, trainer
from minidist.train.checkpoint import load_checkpoint
from minidist.train.config import Session, TrainConfig
from minidist.train.folder import together
from minidist.train.generate import printable
from minidist.train.step import Step
from minidist.train.stop import StopRequest

TINY = {
    "context": 8,
    "layers": 1,
    "width": 8,
    "heads": 2,
    "groups": 1,
    "batch": 5,
    "steps": 6,
    "dropout": 0.2,
    "lr": 0.02,
    "dtype": "float64",
    "log_every": 1,
    "validate_every": 4,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Each test works in a folder of its own, which holds a text."""
    (tmp_path / "text.txt").write_bytes(bytes(65 + i * i % 23 for i in range(900)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*more, **flags):
    """Run the command as a user would, and return its exit status."""
    flags = {**({} if "resume" in flags else {"data": "text.txt", **TINY}), **flags}
    words = [w for name, v in flags.items() for w in ("--" + name.replace("_", "-"), str(v))]
    return cli.main(["train", *words, *more])


def rows(folder):
    """The metrics without what a clock has measured."""
    return [replace(row, tokens_per_s=0.0) for row in metrics.read(folder / "metrics.jsonl")]


def weights(folder):
    return load_checkpoint(folder / "model.safetensors").tensors


def same_run(a, b):
    """Bit for bit: everything that was logged and everything that was saved."""
    assert rows(a) == rows(b)
    for name in ("model.safetensors", "checkpoint.safetensors"):
        x, y = load_checkpoint(a / name), load_checkpoint(b / name)
        assert (x.step, x.about) == (y.step, y.about)
        assert {n: t.tobytes() for n, t in x.tensors.items()} == {
            n: t.tobytes() for n, t in y.tensors.items()
        }


# --- what a run leaves -------------------------------------------


def test_a_run_leaves_its_files_and_tells_its_story(folder, capsys):
    assert train(out="r", in_process=3) == 0
    assert {p.name for p in (folder / "r").iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "checkpoint.safetensors",
        "model.safetensors",
        "trace.json",
    }
    lines = [json.loads(text) for text in (folder / "r/metrics.jsonl").read_text().splitlines()]
    keys = {"step", "loss", "val_loss", "tokens_per_s", "bytes_sent", "grad_norm"}
    assert all(row.keys() == keys for row in lines)
    assert [row["step"] for row in lines] == [1, 2, 3, 4, 5, 6]
    assert [row["val_loss"] is not None for row in lines] == [False] * 3 + [True, False, True]
    assert weights(folder / "r")["embed"].shape == (256, 8)
    assert len(json.loads((folder / "r/trace.json").read_text())["traceEvents"]) > 50
    out = capsys.readouterr().out
    assert out.startswith("corpus text.txt  900 bytes  sha256 ")
    assert len({len(line) for line in out.splitlines()[2:9]}) == 1, "columns are fixed"
    for words in ("all 3 ranks hold the same weights", "ROMEO:", "xz", "bytes, exactly"):
        assert words in out


def test_a_run_has_a_dated_folder_unless_it_is_given_one(folder):
    assert train() == 0
    (made,) = (folder / "runs").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", made.name)


def test_a_file_gives_options_and_flags_win(folder):
    (folder / "c.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in TINY.items()))
    assert (
        cli.main(
            ["train", "--config", "c.toml", "--data", "text.txt", "--steps", "2", "--out", "r"]
        )
        == 0
    )
    stored = command.resolve(TrainConfig, argparse.Namespace(), folder / "r/config.toml")
    assert stored == TrainConfig(**{**TINY, "data": "text.txt", "steps": 2})


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_any_number_of_ranks_gives_the_numbers_of_one(folder, ranks):
    assert train(out="one") == 0
    assert train(out="many", in_process=ranks) == 0
    for a, b in zip(rows(folder / "one"), rows(folder / "many"), strict=True):
        assert (a.loss, a.grad_norm) == pytest.approx((b.loss, b.grad_norm), rel=1e-10)
        assert (a.val_loss is None) == (b.val_loss is None)
        if a.val_loss is not None:
            assert a.val_loss == pytest.approx(b.val_loss, rel=1e-10)
    for name, tensor in weights(folder / "one").items():
        assert np.allclose(tensor, weights(folder / "many")[name], rtol=1e-10, atol=1e-10)


def test_training_needs_no_mpi(folder):
    program = (
        "import sys; from minidist.cli import main; status = main(sys.argv[1:]);"
        "assert not [m for m in sys.modules if m.startswith('mpi4py')]; sys.exit(status)"
    )
    words = [w for k, v in TINY.items() for w in ("--" + k.replace("_", "-"), str(v))]
    command_line = [sys.executable, "-c", program, "train", "--data", "text.txt", *words]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- stop and go on ----------------------------------------------


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
        assert load_checkpoint(folder / "cut/checkpoint.safetensors").step == stop
        assert "go on with --resume cut" in capsys.readouterr().out
        how = {"resume": "cut"}
    assert train(resume="cut", in_process=ranks) == 0
    same_run(folder / "straight", folder / "cut")


RESUME_MUTANTS = {
    "moments are lost": (
        "restore(saved.tensors, self.sync, self.optimizer)",
        "restore(saved.tensors, self.sync, self.config.make_optimizer())",
    ),
    "the step is lost": ("return saved.step", "return 0"),
    "one step is done twice": ("return saved.step", "return saved.step - 1"),
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
    end = load_checkpoint(folder / "killed/checkpoint.safetensors").step + 2
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
        if self.comm.rank == 1 and self.optimizer.state and not os.environ.get("SENT"):
            monkeypatch.setenv("SENT", "1")
            os.kill(os.getpid(), number)
        return real(self, *args)

    monkeypatch.setattr(Step, "_agree", interrupted)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    assert train(out="cut", in_process=3) == 130
    assert [
        signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    ] == handlers
    step = load_checkpoint(folder / "cut/checkpoint.safetensors").step
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


# --- refusals ----------------------------------------------------


def refused(capsys, status, words):
    """One sentence on standard error, and nothing else."""
    error = capsys.readouterr().err
    assert status == 1
    assert error.count("\n") == 1, error
    assert re.search(words, error), error


def test_a_folder_in_use_is_not_overwritten(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    before = (folder / "r/checkpoint.safetensors").read_bytes()
    refused(capsys, train(out="r", in_process=3), "r already holds a run: .*--resume r")
    assert (folder / "r/checkpoint.safetensors").read_bytes() == before


def test_a_missing_run_is_refused(capsys):
    refused(capsys, train(resume="nowhere"), "nowhere holds no run")


def test_a_run_that_saved_nothing_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    (folder / "r/checkpoint.safetensors").unlink()
    refused(capsys, train(resume="r", in_process=2), "there is no checkpoint")


def test_a_run_that_ended_before_its_first_save_starts_again(folder, capsys):
    assert train(out="straight", in_process=2) == 0
    assert train(out="r", in_process=2, stop_after=3) == 0
    (folder / "r/checkpoint.safetensors").unlink()
    (folder / "r/model.safetensors").unlink()
    assert train(resume="r", in_process=2) == 0
    same_run(folder / "straight", folder / "r")


def test_equal_runs_are_equal_files(folder):
    assert train(out="a", stop_after=2) == 0
    assert train(out="b", stop_after=2) == 0
    for name in ("checkpoint.safetensors", "model.safetensors"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_that_diverges_says_so_once_and_keeps_what_was_saved(
    folder, ranks, monkeypatch, capfd
):
    def rate(self, step):
        return float("inf") if step == 3 else 0.02

    monkeypatch.setattr(TrainConfig, "learning_rate", rate)
    assert train(out="r", in_process=ranks, save_every=1) == 1
    told = capfd.readouterr().err
    assert told.count("minidist train: ") == 1
    assert "after step 4: " in told
    assert "training has diverged; lower --lr" in told
    assert load_checkpoint(folder / "r/checkpoint.safetensors").step == 3
    assert "NaN" not in (folder / "r/metrics.jsonl").read_text()


def test_a_text_may_have_moved(folder):
    assert train(out="straight") == 0
    assert train(out="r", stop_after=2) == 0
    (folder / "text.txt").rename(folder / "moved.txt")
    assert train(resume="r", data="moved.txt") == 0
    assert rows(folder / "straight") == rows(folder / "r")


def test_what_is_done_already_is_refused(folder, capsys):
    assert train(out="r", stop_after=3) == 0
    refused(capsys, train(resume="r", in_process=2, stop_after=3), "r is at step 3 of")
    assert train(resume="r") == 0
    refused(capsys, train(resume="r", in_process=2), "already")


def test_a_checkpoint_cut_short_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    path = folder / "r/checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(capsys, train(resume="r", in_process=3), "checkpoint.safetensors is damaged")


def test_another_configuration_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    refused(capsys, train(resume="r", width=16), "the run has width = 8, not 16")
    assert train("--context", "8", resume="r", stop_after=2) == 0, "the same value is no change"


def test_a_checkpoint_of_another_model_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    path = folder / "r/config.toml"
    path.write_text(path.read_text().replace("width = 8", "width = 16"))
    refused(capsys, train(resume="r", in_process=2), r"the model wants \(8, 16\)")


def test_another_text_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    (folder / "text.txt").write_bytes(bytes(range(256)) * 4)
    refused(capsys, train(resume="r", in_process=2), "r was trained on another text than corpus")


def test_a_text_that_is_too_short_is_refused(folder, capsys):
    (folder / "short.txt").write_bytes(b"to be")
    refused(capsys, train(data="short.txt", in_process=3), "has 5 bytes, too few for windows of 8")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"batch": 0}, "batch = 0: must be at least 1"),
        ({"lr": -1}, "lr = -1.0: must be a number from 0 on"),
        ({"lr": "nan"}, "lr = nan: must be a number from 0 on"),
        ({"weight_decay": "inf"}, "weight_decay = inf: must be a number from 0 on"),
        ({"warmup": 2}, "warmup = 2.0: a share of the steps"),
        ({"heads": 3}, "3"),
        ({"in_process": -1}, "in_process = -1"),
        ({"out": "a", "resume": "b"}, "leave out --out"),
        ({"resume": "b", "config": "c"}, "leave out --config"),
    ],
)
def test_what_cannot_be_computed_is_refused(flags, words, capsys):
    refused(capsys, train(**flags), words)


def test_a_folder_that_cannot_be_made_is_refused_on_all_ranks(capsys):
    refused(capsys, train(out="text.txt/run", in_process=3), "cannot write the run to text.txt/run")


# --- the same start and the same end on every rank ---------------


def sit_with_own_seed(comm, sit, config, stop):
    return sit(comm, replace(config, seed=10 + comm.rank), Session(out="r"), stop)


def test_ranks_that_were_given_other_seeds_take_that_of_rank_0(folder):
    config = TrainConfig(**TINY, data="text.txt")
    with StopRequest() as stop:
        assert run(sit_with_own_seed, command.sit, config, stop, ranks=3) == [0, 0, 0]
    assert "seed = 10\n" in (folder / "r/config.toml").read_text()


def test_ranks_that_start_differently_are_seen(folder):
    broken = mutate(command.sit, "comm.bcast_object((config, session))", "config, session")
    with StopRequest() as stop, pytest.raises(MismatchError, match=r"ranks \[1, 2\]|ranks \[0, "):
        run(sit_with_own_seed, broken, TrainConfig(**TINY, data="text.txt"), stop, ranks=3)


def test_the_ranks_that_differ_are_named():
    def program(comm, others):
        return trainer.same_everywhere(comm, "b" if comm.rank in others else "a")

    assert run(program, [], ranks=3) == ["a"] * 3
    with pytest.raises(MismatchError, match=r"ranks \[1, 4\] hold other weights"):
        run(program, [1, 4], ranks=5)


def test_an_error_of_one_rank_is_raised_on_all():
    def program(comm):
        def work():
            if comm.rank == 1:
                raise ConfigError("rank 1 cannot")
            return comm.rank

        with pytest.raises(ConfigError, match="rank 1 cannot"):
            together(comm, work)
        return together(comm, lambda: comm.rank)

    assert run(program, ranks=3) == [0, 1, 2]


# --- generate ----------------------------------------------------


def generate(capsys, *words):
    status = cli.main(["generate", *words])
    return status, capsys.readouterr()


def test_generate_continues_a_text(folder, capsys):
    assert train(out="r") == 0
    capsys.readouterr()
    words = ["--from", "r", "ABC", "--tokens", "30", "--seed", "4"]
    status, first = generate(capsys, *words)
    assert (status, first.err) == (0, "")
    assert first.out.startswith("ABC")
    assert generate(capsys, *words)[1].out == first.out
    assert generate(capsys, *words[:-1], "5")[1].out != first.out
    cold = ["--from", "r", "ABC", "--temperature", "0", "--tokens", "9"]
    one = ["--from", "r", "ABC", "--top-k", "1", "--tokens", "9", "--seed", "6"]
    assert generate(capsys, *cold)[1].out == generate(capsys, *one)[1].out


def test_generate_says_what_is_wrong(folder, capsys):
    status, said = generate(capsys, "--from", "nowhere")
    assert status == 1
    assert said.err.startswith("minidist generate: nowhere holds no run")
    assert train(out="r", stop_after=1) == 0
    capsys.readouterr()
    path = folder / "r/config.toml"
    path.write_text(path.read_text().replace("width = 8", "width = 16"))
    status, said = generate(capsys, "--from", "r", "x")
    assert status == 1
    assert "the model wants" in said.err


def test_what_a_model_says_cannot_steer_a_terminal():
    assert printable(b"O, \xc3\xa9\tfie!\n\x1b[2J\xff") == "O, \u00e9\tfie!\n\ufffd[2J\ufffd"
