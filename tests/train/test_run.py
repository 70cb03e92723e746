"""What a run from the command line leaves behind, on in-process ranks."""

import argparse
import json
import re
import shutil
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
from minidist.train.checkpoint import newest
from minidist.train.config import Layout, Session, TrainConfig
from minidist.train.folder import together
from minidist.train.stop import StopRequest
from tests.train.runs import TINY, rows, same_arrays, state, train, weights

pytestmark = pytest.mark.usefixtures("folder")


def test_a_run_leaves_its_files_and_tells_its_story(folder, capsys):
    assert train(out="r", in_process=3) == 0
    assert {p.name for p in (folder / "r").iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "layout.toml",
        "checkpoints",
        "model.safetensors",
        "trace.json",
        "report.html",
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
    said = out.splitlines()
    assert said[2] == "mesh dp 3"
    assert said[3].split() == ["rank", "dp", "host", "and", "device"]
    assert [line.split()[:2] for line in said[4:7]] == [["0", "0"], ["1", "1"], ["2", "2"]]
    assert len({len(line) for line in said[7:14]}) == 1, "columns are fixed"
    for words in ("3 ranks, the same weights on each", "ROMEO:", "xz", "bytes, exactly"):
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


def sit_with_own_seed(comm, sit, config, stop):
    own = replace(config, seed=10 + comm.rank)
    return sit(comm, own, Layout(), Session(out="r"), stop)


def test_ranks_that_were_given_other_seeds_take_that_of_rank_0(folder):
    config = TrainConfig(**TINY, data="text.txt")
    with StopRequest() as stop:
        assert run(sit_with_own_seed, command.sit, config, stop, ranks=3) == [0, 0, 0]
    assert "seed = 10\n" in (folder / "r/config.toml").read_text()


def test_ranks_that_start_differently_are_seen(folder):
    agreed = "comm.bcast_object((config, layout, session))"
    broken = mutate(command.sit, agreed, "config, layout, session")
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


def test_the_norm_of_a_skipped_step_is_null(tmp_path):
    """JSON knows no Infinity; jq and pandas would stop at it."""
    row = metrics.Metrics(1, 2.0, None, 3.0, 4, float("inf"))
    metrics.append(tmp_path / "m.jsonl", row)
    text = (tmp_path / "m.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["grad_norm"] is None
    assert metrics.read(tmp_path / "m.jsonl") == [row]
    metrics.cut_after(tmp_path / "m.jsonl", 1)
    assert (tmp_path / "m.jsonl").read_text() == text


def test_a_copy_beside_the_checkpoints_is_not_taken_for_one(folder):
    assert train(out="r", steps=2) == 0
    kept = newest(folder / "r/checkpoints")
    shutil.copytree(kept, kept.with_name("step-00000009-backup"))
    assert newest(folder / "r/checkpoints") == kept


def test_a_limit_that_is_met_in_a_step_says_how_to_go_on(folder, capsys):
    """The run has begun, so its folder is there; another stage goes on in it."""
    flags = {"out": "r", "batch": 5, "context": 64, "in_process": 2}
    assert train(memory_limit=230_000, **flags) == 1
    error = capsys.readouterr().err
    assert re.search(r"rank \d: [\d,]+ bytes of activations more than the limit", error)
    assert error.endswith("go on with --resume r\n")
    assert train(resume="r", in_process=2, zero=3, memory_limit=0) == 0


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_validation_between_steps_where_slices_differ(folder, batch):
    """Ranks with slices of 2, 1 and 1 samples must validate in the same number of batches."""
    assert train(out="one", steps=2, validate_every=1, batch=batch) == 0
    assert train(out="r", steps=2, validate_every=1, batch=batch, in_process=3, zero=3) == 0
    one, three = ([row.val_loss for row in rows(folder / run)] for run in ("one", "r"))
    assert np.allclose(one, three, rtol=0, atol=1e-10)


BIG = {"width": 32, "layers": 6, "batch": 4}


def test_a_model_too_large_for_one_rank_trains_on_four_and_speaks_elsewhere(folder, capsys):
    limit = 1_400_000
    assert train(out="one", memory_limit=limit, **BIG) == 1
    capsys.readouterr()
    assert train(out="r", memory_limit=limit, in_process=4, zero=3, **BIG) == 0
    assert "no sample: the whole model is more than --memory-limit" in capsys.readouterr().out
    assert not (folder / "r/model.safetensors").exists()
    assert train(out="free", in_process=4, zero=3, **BIG) == 0
    same_arrays(state(folder / "r"), state(folder / "free"))
    capsys.readouterr()
    told = []
    for name in ("r", "free"):
        assert cli.main(["generate", "--from", name, "ROMEO:", "--tokens", "20"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != ""


def test_weights_of_an_earlier_sitting_do_not_stay_beside_newer_steps(folder):
    assert train(out="r", stop_after=2, zero=3, in_process=4, **BIG) == 0
    assert (folder / "r/model.safetensors").exists()
    assert train(resume="r", in_process=4, memory_limit=1_400_000) == 0
    assert not (folder / "r/model.safetensors").exists()
