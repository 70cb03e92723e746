"""What `minidist train` refuses: one sentence, on all ranks alike, and nothing is lost."""

import shutil

import pytest

from minidist.train.config import TrainConfig
from tests.train.runs import refused, rows, same_run, saved, train

pytestmark = pytest.mark.usefixtures("folder")


def test_a_folder_in_use_is_not_overwritten(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    before = saved(folder / "r")
    refused(capsys, train(out="r", in_process=3), "r already holds a run: .*--resume r")
    assert saved(folder / "r") == before


def test_a_missing_run_is_refused(capsys):
    refused(capsys, train(resume="nowhere"), "nowhere holds no run")


def test_a_run_that_saved_nothing_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    shutil.rmtree(folder / "r/checkpoints")
    refused(capsys, train(resume="r", in_process=2), "there is no whole checkpoint")


def test_a_run_that_ended_before_its_first_save_starts_again(folder, capsys):
    assert train(out="straight", in_process=2) == 0
    assert train(out="r", in_process=2, stop_after=3) == 0
    shutil.rmtree(folder / "r/checkpoints")
    (folder / "r/model.safetensors").unlink()
    assert train(resume="r", in_process=2) == 0
    same_run(folder / "straight", folder / "r")


def test_equal_runs_are_equal_files(folder):
    assert train(out="a", stop_after=2) == 0
    assert train(out="b", stop_after=2) == 0
    names = [str(p.relative_to(folder / "a")) for p in (folder / "a").rglob("*.safetensors")]
    assert sorted(names)[0] == "checkpoints/step-00000002/rank-00000.safetensors"
    for name in [*names, "checkpoints/step-00000002/manifest.json"]:
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
    assert saved(folder / "r").step == 3
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
    refused(capsys, train(resume="r", in_process=2), "r is finished, after 6 steps")


def test_a_checkpoint_cut_short_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    path = folder / "r/checkpoints/step-00000001/rank-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(capsys, train(resume="r", in_process=3), "rank-00000.safetensors is damaged")


def test_another_configuration_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    refused(capsys, train(resume="r", width=16), "the run has width = 8, not 16")
    assert train("--context", "8", resume="r", stop_after=2) == 0, "the same value is no change"


def test_a_checkpoint_of_another_model_is_refused(folder, capsys):
    assert train(out="r", stop_after=1) == 0
    path = folder / "r/config.toml"
    path.write_text(path.read_text().replace("width = 8", "width = 16"))
    refused(capsys, train(resume="r", in_process=2), r"the model wants \[8, 16\]")


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
