"""`minidist lesson [NN]`: the question, your prediction, the demo, and what to do next.

The texts are those of the lesson's README. The demo runs as it does by hand: in one process, and
on real ranks too if there is an MPI.
"""

import argparse
import os
import re
import subprocess
import sys

from minidist.comm.detect import outside_mpi
from minidist.errors import LessonError
from minidist.learn.manifest import Lesson
from minidist.learn.progress import Progress, chosen
from minidist.learn.ranks import missing

RANKS = 4
NEEDS = {"cpu": "any laptop", "mpi": "several MPI ranks", "gpu": "a GPU"}
FOLDED = re.compile(r"<details>.*?</details>\n*", re.S)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("lesson", metavar="NN", nargs="?", help="number of the lesson (current)")


def main(args: argparse.Namespace) -> int:
    """Show a lesson and run its demo; return the exit status of the demo."""
    lesson, _, progress = chosen(args.lesson)
    text = lesson.file("README.md").read_text("utf-8")
    print(f"lesson {lesson.id}: {lesson.title}")
    print(f"needs {NEEDS[lesson.needs]}, about {lesson.minutes} minutes\n")
    print(FOLDED.sub("", section(text, "Question")))
    predict(lesson, text, progress)
    status = run_demo(lesson)
    print(f"\npicture: {lesson.folder / 'figure.svg'}")
    print(f'read on: {lesson.folder / "README.md"}, from "Observe"')
    print(f"then write: minidist check {lesson.id}")
    return status


def section(text: str, heading: str) -> str:
    """Return what stands under a heading of a README."""
    found = re.search(rf"^## {heading}\n+(.*?)\n*(?=^## |\Z)", text, re.M | re.S)
    return f"{found[1]}\n" if found else ""


def predict(lesson: Lesson, text: str, progress: Progress) -> None:
    """Ask for a prediction, note it, and show it beside the answer of the README."""
    under = section(text, "Predict")
    print(FOLDED.sub("", under))
    if not sys.stdin.isatty():
        print("(Nobody is there to type a prediction; the answer is in the README.)\n")
        return
    try:
        typed = input("your prediction, in a line: ").strip()
    except EOFError:
        typed = ""
    if typed:
        try:
            progress.note("predicted", lesson.id, typed)
        except LessonError as error:
            print(error, file=sys.stderr)
    if answer := re.search(r"<summary>.*?</summary>\n*(.*?)\n*</details>", under, re.S):
        print(f"\n{answer[1]}\n")


def run_demo(lesson: Lesson) -> int:
    """Run the demo in one process and then, if there is an MPI, on real ranks."""
    demo = str(lesson.file("demo.py"))
    ways = {f"python {demo}": [demo]}
    if reason := missing():
        print(f"(No real ranks here: {reason})\n")
    else:
        launch = ["minidist", "launch", "-n", str(RANKS), "--"]
        ways[f"{' '.join(launch)} python {demo}"] = ["-m", *launch, demo]
    for shown, words in ways.items():
        print(f"$ {shown}", flush=True)
        done = subprocess.run([sys.executable, *words], env=outside_mpi(os.environ))
        if done.returncode:
            return done.returncode
    return 0
