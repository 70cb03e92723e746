"""One dataclass is flags, TOML file and record: all three ways say the same."""

import argparse
from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.options import add_flags, dump_toml, option, resolve
from minidist.testing.mutants import mutate


@dataclass(frozen=True)
class Config:
    steps: int = option(100, "steps: 50 % of them warm up")
    rate: float = option(1e-3, "learning rate")
    tied: bool = option(False, "tie the tables")
    data: str = option("", "a file")
    kind: str = option("plain", "which", choices=("plain", "fancy"))
    seed: int | None = option(None, "seed")


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser, Config)
    return parser.parse_args(words)


def file(tmp_path, text: str):
    (tmp_path / "c.toml").write_text(text, "utf-8")
    return tmp_path / "c.toml"


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    path = file(tmp_path, 'steps = 7\nrate = 1\ndata = "a"\n')
    got = resolve(Config, parse("--config", str(path), "--steps", "9", "--tied"))
    assert got == Config(steps=9, rate=1.0, tied=True, data="a")
    assert type(got.rate) is float
    assert resolve(Config, parse("--no-tied", "--seed", "3")) == Config(seed=3)


def test_a_flag_equal_to_the_default_still_wins_over_the_file(tmp_path):
    path = file(tmp_path, "steps = 7\ntied = true\n")
    got = resolve(Config, parse("--config", str(path), "--steps", "100", "--no-tied"))
    assert got == Config()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepz = 1", ["stepz", "no option"]),
        ("steps = 1.5", ["steps", "1.5", "int"]),
        ("steps = true", ["steps", "True", "int"]),
        ("tied = 1", ["tied", "bool"]),
        ("data = 3", ["data", "str"]),
        ('kind = "other"', ["kind", "other", "plain, fancy"]),
        ("[steps]\nx = 1", ["steps", "int"]),
        ("steps 7", ["not TOML", "c.toml"]),
        ("steps = 1\nsteps = 2", ["not TOML"]),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        resolve(Config, parse(), file(tmp_path, text))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        resolve(Config, parse("--config", str(tmp_path / "none.toml")))
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        resolve(Config, parse("--config", str(tmp_path / "b.toml")))


def test_a_type_that_is_no_option_is_refused():
    @dataclass(frozen=True)
    class Odd:
        sizes: list[int] = option((), "sizes")  # noqa: RUF009

    with pytest.raises(ConfigError, match="sizes"):
        add_flags(argparse.ArgumentParser(), Odd)


def test_help_shows_every_option_and_its_default(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    assert all(f"--{f.name}" in shown and f.metadata["help"] in shown for f in fields(Config))
    assert "(0.001)" in shown


configs = st.builds(
    Config,
    steps=st.integers(-(2**63), 2**63 - 1),
    rate=st.floats(allow_nan=False),
    tied=st.booleans(),
    data=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    kind=st.sampled_from(["plain", "fancy"]),
    seed=st.none() | st.integers(0, 9),
)


def round_trip(dump, config, folder):
    path = file(folder, dump(config))
    assert resolve(Config, argparse.Namespace(), path) == config


@given(configs)
def test_dump_and_resolve_are_inverse(tmp_path_factory, config):
    round_trip(dump_toml, config, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("is not None", ""),  # drops 0 and False
        ("{toml(value)}", "{value}"),  # no quotes
        ("{toml(value)}", "{value!r}"),  # Python's words for true and false
    ],
)
def test_the_round_trip_rejects_a_wrong_dump(tmp_path, old, new):
    config = Config(steps=0, tied=True, seed=0, data='"\x7f')
    with pytest.raises((AssertionError, ConfigError)):
        round_trip(mutate(dump_toml, old, new), config, tmp_path)
