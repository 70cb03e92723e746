"""Files lost, damaged or exchanged, and disks that are full: one sentence, and nothing lost."""

import errno
import json
import re
import shutil

import pytest

from minidist import cli
from minidist.errors import CheckpointError
from minidist.files import replace_file
from minidist.train import folder as folder_module
from minidist.train import metrics, saves, trainer
from minidist.train.checkpoint import MANIFEST, newest
from minidist.train.weights import load_weights, save_weights, step_of
from tests.train.runs import refused, rows, same_run, state, train

pytestmark = pytest.mark.usefixtures("folder")

LIMITED = {"width": 32, "layers": 6, "batch": 4, "in_process": 4, "memory_limit": 1_400_000}


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def generated(capsys, run):
    """The exit status of `minidist generate`, and what it says."""
    status = cli.main(["generate", "--from", run, "ROMEO:", "--tokens", "20", "--seed", "1"])
    return status, capsys.readouterr()


def test_a_manifest_that_is_lost_does_not_begin_the_run_again(folder, capsys):
    """Under a limit there is no model.safetensors that would tell of a save."""
    assert train(out="r", zero=3, stop_after=3, **LIMITED) == 0
    kept = newest(folder / "r/checkpoints")
    text = (kept / MANIFEST).read_bytes()
    (kept / MANIFEST).unlink()
    before = sorted(kept.iterdir())
    capsys.readouterr()
    refused(capsys, train(resume="r", in_process=4), "no whole checkpoint .*step-00000003 is left")
    assert sorted(kept.iterdir()) == before
    assert len(rows(folder / "r")) == 3
    (kept / MANIFEST).write_bytes(text)
    assert train(resume="r", in_process=4) == 0


def test_a_run_that_begins_again_says_so(folder, capsys):
    assert train(out="r", stop_after=3) == 0
    shutil.rmtree(folder / "r/checkpoints")
    (folder / "r/model.safetensors").unlink()
    assert train(resume="r") == 0
    assert "r has not saved: it begins again\n" in capsys.readouterr().out


@pytest.mark.parametrize("last", [3, 6])
def test_a_stop_between_the_checkpoint_and_the_weights_is_made_up(
    folder, capsys, monkeypatch, last
):
    """The weights of an earlier save are there, or none; and the run may have been complete."""

    def fails(path, step, *rest):
        if step == last:
            raise CheckpointError("No space left")
        save_weights(path, step, *rest)

    assert train(out="straight", in_process=2) == 0
    with monkeypatch.context() as patch:
        patch.setattr(saves, "save_weights", fails)
        refused(capsys, train(out="r", in_process=2, save_every=3), "No space left")
    assert step_of(folder / "r/model.safetensors") == (3 if last == 6 else None)
    assert generated(capsys, "r")[0] == 0
    assert train(resume="r", in_process=2) == 0
    assert step_of(folder / "r/model.safetensors") == 6
    same_run(folder / "straight", folder / "r")
    assert (folder / "r/report.html").exists()
    capsys.readouterr()
    refused(capsys, train(resume="r", in_process=2), "r is finished, after 6 steps")


def test_text_comes_from_the_newer_of_weights_and_checkpoint(folder, capsys):
    assert train(out="r", stop_after=3) == 0
    old = (folder / "r/model.safetensors").read_bytes()
    assert train(resume="r") == 0
    capsys.readouterr()
    status, new = generated(capsys, "r")
    (folder / "r/model.safetensors").write_bytes(old)
    assert load_weights(folder / "r/model.safetensors").step == 3
    assert generated(capsys, "r") == (status, new)


def test_text_of_a_damaged_checkpoint_is_refused(folder, capsys):
    assert train(out="r", zero=3, **LIMITED) == 0
    part = newest(folder / "r/checkpoints") / "rank-00002.safetensors"
    data = bytearray(part.read_bytes())
    data[-5] ^= 1
    part.write_bytes(data)
    capsys.readouterr()
    status, said = generated(capsys, "r")
    assert status == 1
    assert "rank-00002.safetensors is damaged: its checksum does not fit" in said.err
    assert said.out == ""


@pytest.mark.parametrize("name", ["lr", "seed", "steps"])
def test_another_configuration_than_the_checkpoints(folder, capsys, name):
    assert train(out="r", stop_after=3) == 0
    path = folder / "r/config.toml"
    path.write_text(re.sub(rf"^{name} = .*$", f"{name} = 5", path.read_text(), flags=re.M))
    before = state(folder / "r")
    capsys.readouterr()
    status = train(resume="r")
    refused(capsys, status, rf"config.toml has {name} = 5(\.0)?, but the checkpoint was saved with")
    assert state(folder / "r").keys() == before.keys()


def test_a_disk_that_is_full_at_the_start_leaves_no_run(folder, capsys, monkeypatch):
    """An empty config.toml would be that of the default run."""

    def none(path, data):
        if path.name == "config.toml":
            full()
        replace_file(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "replace_file", none)
        refused(capsys, train(out="r"), "cannot write the run to r: .*No space")
    assert not (folder / "r/config.toml").exists()
    assert train(out="r", steps=1) == 0


LINES = ["{", '{"a": 1}', "5", "\xff", '{"step": "1"}', ""]


@pytest.mark.parametrize("line", LINES)
def test_a_log_that_is_damaged_is_named(folder, capsys, line):
    assert train(out="r", stop_after=3) == 0
    log = folder / "r/metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], line + "\n", lines[2]]), "latin-1")
    before = log.read_bytes()
    capsys.readouterr()
    refused(capsys, train(resume="r"), r"metrics.jsonl, line (1|2), is damaged: .*move it away")
    assert log.read_bytes() == before


def test_a_value_that_is_no_number_is_no_row(tmp_path):
    row = metrics.Metrics(1, 2.0, None, 3.0, 4, 5.0)
    metrics.append(tmp_path / "m", row)
    values = json.loads((tmp_path / "m").read_text())
    (tmp_path / "m").write_text(json.dumps({**values, "loss": "low"}) + "\n")
    with pytest.raises(CheckpointError, match=r"line 1, is damaged: .*no number"):
        metrics.read(tmp_path / "m")


def test_a_trace_that_cannot_be_written_does_not_end_the_run(folder, capsys, monkeypatch):
    monkeypatch.setattr(trainer, "write_trace", full)
    assert train(out="r") == 0
    assert "no trace: [Errno 28] No space left on device" in capsys.readouterr().err
    assert "Timeline" not in (folder / "r/report.html").read_text()


def test_a_log_that_cannot_be_written_ends_the_run_in_one_sentence(folder, capsys, monkeypatch):
    assert train(out="straight") == 0
    assert train(out="r", stop_after=2) == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(trainer.metrics, "append", full)
        refused(capsys, train(resume="r"), "No space left on device; go on with --resume r")
    assert train(resume="r") == 0
    same_run(folder / "straight", folder / "r")


def test_what_is_not_a_checkpoint_is_left_alone(folder):
    assert train(out="r", stop_after=2, save_every=1) == 0
    mine = folder / "r/checkpoints/my-backup"
    shutil.copytree(newest(folder / "r/checkpoints"), mine)
    (folder / "r/checkpoints/notes.new").write_text("mine")
    assert train(resume="r") == 0
    assert (mine / MANIFEST).exists()
    assert (folder / "r/checkpoints/notes.new").exists()
    assert newest(folder / "r/checkpoints").name == "step-00000006"


def test_micro_batches_that_are_empty_are_told(folder, capsys):
    assert train(out="r", steps=1, micro_batches=4, in_process=2) == 0
    assert "note: 4 micro-batches, but a rank has at most 3 samples" in capsys.readouterr().out
