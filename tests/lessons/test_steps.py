"""The second picture of lesson 03 is the one that its demo draws from the real ring."""

import sys
from pathlib import Path

from minidist import processes
from minidist.testing.pictures import same_picture

LESSON = Path(__file__).resolve().parents[2] / "lessons/03_ring_all_reduce"


def test_the_steps_of_the_ring_are_drawn_from_its_messages():
    words = [sys.executable, "-c", "import demo, sys; sys.stdout.write(demo.steps())"]
    done = processes.finish(processes.start(words, LESSON), 60)
    assert done.returncode == 0, done.stderr
    assert same_picture((LESSON / "steps.svg").read_text("utf-8"), done.stdout)
    assert "](steps.svg)" in (LESSON / "README.md").read_text("utf-8")
