"""A folder of its own for each test that works with files."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Each test works in a folder of its own, which holds a text."""
    (tmp_path / "text.txt").write_bytes(bytes(65 + i * i % 23 for i in range(900)))
    monkeypatch.chdir(tmp_path)
    return tmp_path
