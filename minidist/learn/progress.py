"""What a student has done: one plain text file, a line for each event.

    2026-11-30 done 00
    2026-11-30 hint 03.2 1
    2026-11-30 looked 03.2
    2026-11-30 predicted 03 14 and 1.75

It lies beside lessons.toml as `progress.txt`, and git ignores it. Lines are only ever added, each
in one write, so two commands at once lose nothing; the file may be read, edited and deleted.
"""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from minidist.errors import LessonError
from minidist.learn import manifest
from minidist.learn.manifest import Lesson

FILE = "progress.txt"
EVENTS = ("done", "hint", "looked", "predicted")


@dataclass
class Progress:
    """What the lines add up to."""

    path: Path
    done: set[str] = field(default_factory=set)
    """Lessons whose check has passed."""
    hints: dict[str, int] = field(default_factory=dict)
    """Hints that were shown, by blank."""
    looked: set[str] = field(default_factory=set)
    """Blanks whose solution was shown before the lesson was done."""
    predicted: dict[str, str] = field(default_factory=dict)
    """The last prediction, by lesson."""

    def current(self, lessons: tuple[Lesson, ...]) -> Lesson:
        """Return the first lesson that is not done; the last one if all are."""
        return next((one for one in lessons if one.id not in self.done), lessons[-1])

    def mark(self, lesson: Lesson) -> str:
        """Return "done", "looked" (done after a solution was shown), or nothing."""
        if lesson.id not in self.done:
            return ""
        return "looked" if any(b.id in self.looked for b in lesson.blanks) else "done"

    def note(self, event: str, of: str, more: str = "") -> None:
        """Add an event, here and in the file. Raises LessonError if it cannot be written."""
        words = " ".join(more.split())
        line = f"{date.today().isoformat()} {event} {of} {words}".rstrip()
        self._add(line, "the new line")
        try:
            torn = self.path.is_file() and self.path.read_bytes()[-1:] not in (b"", b"\n")
            with self.path.open("ab") as file:
                file.write(("\n" * torn + line + "\n").encode())
        except OSError as error:
            raise LessonError(f"cannot note progress in {self.path}: {error.strerror}") from error

    def _add(self, line: str, where: str) -> None:
        words = line.split(maxsplit=3)
        event, of, more = (*words[1:], "", "", "")[:3]
        if event == "done" and of:
            self.done.add(of)
        elif event == "looked" and of:
            self.looked.add(of)
        elif event == "predicted" and of:
            self.predicted[of] = more
        elif event == "hint" and of and more.isdigit():
            self.hints[of] = max(self.hints.get(of, 0), int(more))
        else:
            raise LessonError(
                f"{where} of {self.path} is none of mine: {line[:80]!r}. A line is a date, one of "
                f"{', '.join(EVENTS)}, a number of a lesson or blank; correct or delete it"
            )


def load(folder: Path) -> Progress:
    """Return the progress in a folder of lessons. Raises LessonError that names a damaged line."""
    progress = Progress(folder / FILE)
    try:
        text = progress.path.read_text("utf-8") if progress.path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError(
            f"cannot read {progress.path}: {error}; delete it to begin anew"
        ) from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            progress._add(line, f"line {number}")
    return progress


def chosen(number: str | None) -> tuple[Lesson, tuple[Lesson, ...], Progress]:
    """Return the lesson of this number, or the current one; all lessons; and the progress."""
    lessons = manifest.load()
    progress = load(manifest.lessons_folder())
    lesson = manifest.find(lessons, number) if number else progress.current(lessons)
    return lesson, lessons, progress
