"""The example of the README runs, without a GPU, and does what it seems to do."""

import re
from pathlib import Path

import pytest

from minidist import cuda

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.kernel
@pytest.mark.skipif(not cuda.emulator_available()[0], reason=cuda.emulator_available()[1])
def test_the_example_adds_up():
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)[1], names)
    assert names["total"].tolist() == [1000]
