"""The file of measured links: what is saved is loaded, whole or not at all, one a host."""

import json
import os
import platform
from pathlib import Path

import pytest

from minidist.comm import Link
from minidist.errors import ConfigError, DataError
from minidist.network import DEFAULT, LEVELS, Measured, load, measured, save

FOUND = Measured({"node": Link(1.25e-6, 5e9), "process": Link(0.1, 1 / 3)}, 2e-10, {"node": "now"})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_nothing_is_there_at_first():
    assert load() is None


def test_what_is_saved_is_loaded(cache):
    path = save(FOUND)
    assert path.parent == cache
    assert load() == FOUND
    assert [p.name for p in cache.iterdir()] == [path.name]


def test_a_host_has_its_own_file(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "ant")
    first = save(FOUND)
    monkeypatch.setattr(platform, "node", lambda: "bee")
    assert load() is None
    other = Measured({}, 0.0)
    assert save(other) != first
    assert load() == other
    monkeypatch.setattr(platform, "node", lambda: "ant")
    assert load() == FOUND


def test_where_the_file_is(monkeypatch):
    monkeypatch.delenv("MINIDIST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert measured.cache_file().parent == Path("/x/minidist")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert measured.cache_file().parent == Path("/home/me/.cache/minidist")


def test_a_user_without_a_home(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MINIDIST_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert load() is None
    with pytest.raises(ConfigError, match=r"home directory. Set MINIDIST_CACHE"):
        save(FOUND)


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_save_that_fails_leaves_what_was_there(broken, monkeypatch):
    save(FOUND)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[broken], full)
    with pytest.raises(ConfigError, match=r"No space left on device; set MINIDIST_CACHE"):
        save(Measured({}, 1.0))
    assert load() == FOUND


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match=r"cannot keep the links in .*Not a directory"):
        save(FOUND)


GOOD = json.dumps({"links": {"node": {"latency": 1, "bandwidth": 2}}, "add": 0, "about": {}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "\x00",
        GOOD[:-5],
        GOOD.replace("node", "moon"),
        GOOD.replace("latency", "delay"),
        GOOD.replace(": 1", ": -1"),
        GOOD.replace(": 1", ": NaN"),
        GOOD.replace(": 1", ': "1"'),
        GOOD.replace(": 2", ": 0"),
        GOOD.replace(": 2", ": Infinity"),
        GOOD.replace(": 2", ": 1" + "0" * 400),
        GOOD.replace('"add": 0', '"add": null'),
        GOOD.replace('"add": 0', '"add": -1'),
        GOOD.replace('"links": {', '"links": 3, "other": {'),
        GOOD.replace('"about": {}', '"about": null'),
        GOOD.replace('"about": {}', '"about": [1]'),
        "[" * 100_000,
    ],
)
def test_a_broken_file_is_one_error_with_a_remedy(text, cache):
    path = save(FOUND)
    path.write_text(GOOD)
    assert load().links["node"] == Link(1, 2)
    path.write_text(text)
    with pytest.raises(DataError, match="run minidist measure-links") as caught:
        load()
    assert str(path) in str(caught.value)


def test_bytes_that_are_no_text_and_a_folder_in_its_place(cache):
    path = save(FOUND)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="does not hold"):
        load()
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="Is a directory; set MINIDIST_CACHE"):
        load()


def test_a_file_where_the_folder_should_be(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="Not a directory; set MINIDIST_CACHE to a folder"):
        load()


def test_what_no_link_can_be_is_not_kept():
    for link in (Link(-1.0, 1.0), Link(1.0), Link(1.0, 0.0), Link(float("nan"), 1.0)):
        with pytest.raises(ConfigError, match="no measured link"):
            Measured({"node": link}, 0.0)


def test_default_has_every_level_and_stands_in_for_what_was_not_measured():
    assert list(DEFAULT.links) == list(LEVELS)
    assert FOUND.link("node") == FOUND.links["node"]
    assert FOUND.link("network") == DEFAULT.links["network"]
