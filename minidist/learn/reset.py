"""`minidist reset NN`: the exercise of a lesson as it was, and what you wrote kept beside it.

The blank version is the newest one in the history of the repository in which every blank is blank,
so it is found also after you have committed what you wrote.
"""

import argparse
import os
import subprocess
from itertools import count
from pathlib import Path

import minidist
from minidist.errors import LessonError
from minidist.files import replace_file
from minidist.learn.manifest import Lesson
from minidist.learn.progress import chosen

FILES = ("exercise.py", "exercise.cu")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("lesson", metavar="NN", help="number of the lesson: 03")


def main(args: argparse.Namespace) -> int:
    """Put the blank files in place, and keep the changed ones under another name."""
    lesson, _, _ = chosen(args.lesson)
    commit = blank_version(lesson)
    for name in FILES:
        shipped = show(commit, lesson, name)
        path = lesson.folder / name
        if shipped is None:
            continue
        try:
            put(path, shipped)
        except OSError as error:
            raise LessonError(f"cannot reset {path}: {error.strerror}; it is as it was") from error
    return 0


def put(path: Path, shipped: bytes) -> None:
    """Replace a file; what was there goes beside it."""
    now = path.read_bytes() if path.exists() else None
    if now == shipped:
        print(f"{path} is blank already")
        return
    if now is not None:
        names = (path.with_name(f"{path.stem}.{n}.kept{path.suffix}") for n in count(1))
        kept = next(name for name in names if not name.exists())
        replace_file(kept, now)
        print(f"what you wrote is in {kept}")
    replace_file(path, shipped)
    print(f"{path} is blank again")


def blank_version(lesson: Lesson) -> str:
    """Return the newest commit in which all blanks of the lesson are blank."""
    commits = git("log", "--format=%H", "--", *(_path(lesson, name) for name in FILES)).split()
    for commit in commits:
        texts = [show(commit, lesson, name) or b"" for name in FILES]
        text = b"".join(texts).decode("utf-8", "replace")
        if all(f'"{blank.id}: ' in text for blank in lesson.blanks):
            return commit
    raise LessonError(
        f"the history of {checkout()} has no blank exercise of lesson {lesson.id}; clone the "
        "repository again, and take the file from there"
    )


def show(commit: str, lesson: Lesson, name: str) -> bytes | None:
    """Return a file as it was in a commit; None if it was not there."""
    words = ["git", "-C", str(checkout()), "show", f"{commit}:{_path(lesson, name)}"]
    done = subprocess.run(words, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def checkout() -> Path:
    """Return the folder of the repository that the package is imported from."""
    return Path(minidist.__file__).resolve().parent.parent


def _path(lesson: Lesson, name: str) -> str:
    return f"lessons/{lesson.folder.name}/{name}"


def git(*words: str) -> str:
    """Return what git says in the checkout. Raises LessonError if it cannot."""
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout()), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise LessonError(
            f"reset asks git for the blank file, and there is no git: {error}"
        ) from error
    if done.returncode:
        raise LessonError(f"reset asks git for the blank file: {done.stderr.strip()}")
    return done.stdout
