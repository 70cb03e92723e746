"""Every pair of flags of `minidist train`: what the table says, and that pairs which run do run."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from minidist import cli
from minidist.errors import ConfigError
from minidist.options import option
from minidist.train import config, flags
from minidist.train.config import Layout
from tests.tiers import fast_and_slow
from tests.train.runs import TINY, rows, train

PAGE = Path(flags.__file__).with_name("FLAGS.md")

NEW = {
    "zero": [0, 1, 2, 3],
    "dtype": ["float64", "float32", "bfloat16", "float16"],
    "grad_dtype": [None, "float32", "bfloat16"],
    "recompute": ["none", "unit", "attention"],
    "bucket_mb": [0.0, 0.01],
    "micro_batches": [1, 3],
}
"""The flags of memory, with values small enough to run."""


def test_the_page_is_what_the_program_says():
    assert PAGE.read_text("utf-8") == flags.page()


def test_a_wrong_refusal_is_seen(monkeypatch):
    @dataclass(frozen=True)
    class Stricter(Layout):
        def __post_init__(self):
            super().__post_init__()
            if self.zero == 1 and self.micro_batches > 1:
                raise ConfigError("--zero 1 with --micro-batches: leave one out")

    monkeypatch.setattr("minidist.train.command.Layout", Stricter)
    assert PAGE.read_text("utf-8") != flags.page()


def test_a_lost_refusal_is_seen(monkeypatch):
    monkeypatch.setattr(config.Precision, "__post_init__", lambda self: None)
    assert PAGE.read_text("utf-8") != flags.page()


def test_a_refusal_names_the_flags_and_says_what_to_do():
    for (one, two), text in flags.pairs().items():
        if text != flags.RUNS:
            for flag in (one.split()[0], two.split()[0]):
                assert flag in text or f"has {flag[2:].replace('-', '_')} =" in text, text
            assert any(word in text for word in ("leave", "take")), text


def test_every_flag_of_a_new_kind_needs_a_value_to_try(monkeypatch):
    @dataclass(frozen=True)
    class Longer(Layout):
        another: int = option(0, "one more")

    monkeypatch.setattr(flags, "Layout", Longer)
    with pytest.raises(KeyError):
        list(flags.flags())


def legal(line):
    if line["zero"] == 3 and line["bucket_mb"]:
        return False
    return not (line["dtype"] == "float64" and line["grad_dtype"])


def covering():
    """Command lines in which each legal pair of values of the new flags stands at least once."""
    lines = [dict(zip(NEW, v, strict=True)) for v in itertools.product(*NEW.values())]
    lines = [line for line in lines if legal(line)]
    missing = {pair for line in lines for pair in pairs_of(line)}
    chosen = []
    while missing:
        best = max(lines, key=lambda line: len(missing & pairs_of(line)))
        chosen.append(best)
        missing = missing - pairs_of(best)
    return chosen


def pairs_of(line):
    return set(itertools.combinations(line.items(), 2))


@pytest.mark.parametrize(("number", "line"), fast_and_slow(list(enumerate(covering())), 12))
def test_the_flags_of_memory_run_together(number, line, folder):
    given = {name: value for name, value in line.items() if value is not None}
    given |= {"in_process": (1, 3, 2)[number % 3], "memory_limit": number % 2 * 10**9}
    assert train(**{**TINY, "steps": 2, "validate_every": 0, "out": "r", **given}) == 0
    first, second = (row.loss for row in rows(folder / "r"))
    assert 4.0 < first < 8.0
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_every_pair_that_may_run_does(part, folder):
    small = {"context": 8, "layers": 1, "width": 16, "batch": 4, "steps": 2, "log_every": 1}
    running = [pair for pair, text in flags.pairs().items() if text == flags.RUNS]
    for number, (one, two) in enumerate(running[part::20]):
        words = [w for flag in (one, two) for w in flag.split()]
        if "--resume" in words or "cuda" in words:
            continue  # a run to resume, and a device, are needed: tested by themselves
        (folder / "FILE.toml").write_text("tied = true\nmicro_batches = 2\n")
        names = {w[2:].replace("-", "_") for w in words if w.startswith("--")}
        rest = {k: v for k, v in small.items() if k not in names}
        if "out" not in names:
            rest["out"] = f"r{part}-{number}"
        else:
            words[words.index("elsewhere")] = f"r{part}-{number}"
        if "data" not in names:
            rest["data"] = "text.txt"
        flat = [w for k, v in rest.items() for w in ("--" + k.replace("_", "-"), str(v))]
        assert cli.main(["train", *words, *flat]) == 0, words
