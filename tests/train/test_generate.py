"""`minidist generate`: continuing a text."""

import pytest

from minidist import cli
from minidist.train.generate import printable
from tests.train.runs import train

pytestmark = pytest.mark.usefixtures("folder")


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
