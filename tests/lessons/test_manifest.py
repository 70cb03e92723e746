"""lessons.toml: what it says is what is read, and mistakes are named."""

import pytest

from minidist.errors import LessonError
from minidist.learn import manifest, subject

GOOD = """
[[lesson]]
id = "07"
folder = "07_x"
title = "X"
needs = "cpu"
minutes = 5

[[lesson.blank]]
id = "07.1"
name = "f"
solution = "minidist.bounds.bounds"
lines = 3
read = "Why."
hints = ["a", "b", "c"]
"""


def read(tmp_path, text):
    (tmp_path / "lessons.toml").write_text(text, "utf-8")
    return manifest.load(tmp_path)


def test_a_lesson_and_its_blanks(tmp_path):
    (lesson,) = read(tmp_path, GOOD)
    assert lesson == manifest.find([lesson], "7")
    assert (lesson.id, lesson.folder, lesson.minutes) == ("07", tmp_path / "07_x", 5)
    (blank,) = lesson.blanks
    assert blank == manifest.Blank(
        "07.1", "f", "minidist.bounds.bounds", 3, "Why.", ("a", "b", "c")
    )
    assert subject.blank_by_id(lesson, "07.1") == blank
    assert subject.solution(blank)(3, 2) == [0, 2, 3]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minutes = 5", 'minutes = "5"', "lesson 07 .*: minutes must be a int, is '5'"),
        ('title = "X"', "", "title must be a str, is None"),
        ('"cpu"', '"laptop"', "needs is 'laptop', not one of cpu, mpi, gpu"),
        ("lines = 3", "lines = 3\nscore = 1", r"blank 07\.1 .*: unknown score"),
        ('["a", "b", "c"]', '["a"]', "needs three hints"),
        ('"07.1"', '"08.1"', "it stands in lesson 07"),
        ("[[lesson]]", "[lesson", "is not TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, message):
    with pytest.raises(LessonError, match=message):
        read(tmp_path, GOOD.replace(old, new, 1))


def test_the_paragraph_that_explains_a_blank(tmp_path):
    (lesson,) = read(tmp_path, GOOD)
    (tmp_path / "07_x").mkdir()
    readme = tmp_path / "07_x/README.md"
    readme.write_text("# X\n\nIt is said\nWhy. Not here\n\n**Why.** Here.\n")
    assert lesson.paragraph(lesson.blanks[0]) == (readme, 6)
    readme.write_text("# X\n\nWhyever\n")
    with pytest.raises(LessonError, match=r"no paragraph of .* begins with 'Why\.', for 07\.1"):
        lesson.paragraph(lesson.blanks[0])


def test_what_stands_twice_or_nowhere(tmp_path):
    with pytest.raises(LessonError, match="07 stands there twice"):
        read(tmp_path, GOOD + GOOD)
    with pytest.raises(LessonError, match="cannot be read: No such file"):
        manifest.load(tmp_path / "gone")
    (lesson,) = read(tmp_path, GOOD.replace("minidist.bounds.bounds", "minidist.bounds.gone"))
    with pytest.raises(LessonError, match=r"there is no minidist\.bounds\.gone"):
        subject.solution(lesson.blanks[0])
    with pytest.raises(LessonError, match=r"has no blank 07\.9; it has 07\.1"):
        subject.blank_by_id(lesson, "07.9")


def test_a_test_is_about_the_longest_name():
    blanks = [
        manifest.Blank(f"07.{n}", n, "", 1, "", ("", "", "")) for n in ("reduce", "reduce_all")
    ]
    lesson = manifest.Lesson("07", None, "", "cpu", 1, tuple(blanks))
    about = {
        test: (found := subject.blank_of(lesson, test)) and found.name
        for test in ("test_reduce", "test_reduce_all_again", "test_reduced", "test_other")
    }
    assert about == {
        "test_reduce": "reduce",
        "test_reduce_all_again": "reduce_all",
        "test_reduced": None,
        "test_other": None,
    }


def test_a_file_is_loaded_afresh(tmp_path):
    file = tmp_path / "exercise.py"
    for value in (1, 2):  # within one second, and of one length
        file.write_text(f"x = {value}", "utf-8")
        assert subject.load_file(file).x == value
