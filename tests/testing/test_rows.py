"""A broken law without ranks, as a table."""

import pytest

from minidist.testing.ranktable import LawBroken
from minidist.testing.rows import compare_rows

ROWS = [("m", 1, 1), ("v", 2.0, 2), ("data", "[1 2]", "[1 3]"), ("t", 5, 6), *[("x", 0, 0)] * 20]


def test_equal_rows_are_silent():
    compare_rows("a law.", "a world", [])
    compare_rows("a law.", "a world", ROWS[:2])


def test_the_first_wrong_row_is_told():
    with pytest.raises(LawBroken) as broken:
        compare_rows("a law.", "step 3", ROWS)
    assert str(broken.value).splitlines() == [
        "step 3: data should be [1 2], is [1 3]",
        "",
        "           should be  is",
        "        m  1          the same",
        "        v  2.0        the same",
        "  -> data  [1 2]      [1 3]",
        "        t  5          6",
        "        x  0          the same",
        "        x  0          the same",
        "",
        "the law: a law.",
    ]


def test_a_long_table_is_short():
    with pytest.raises(LawBroken) as broken:
        compare_rows("a law.", "a world", [("x", 0, 0)] * 100 + [("y", 0, 1)])
    lines = str(broken.value).splitlines()
    assert lines[2:] == [
        "        should be  is",
        *["     x  0          the same"] * 8,
        "  -> y  0          1",
        "",
        "the law: a law.",
    ]


def test_a_value_is_one_line_and_not_too_long():
    with pytest.raises(LawBroken) as broken:
        compare_rows("a law.", "a world", [("x", "a\n   b", "c" * 1000)])
    first = str(broken.value).splitlines()[0]
    assert first.startswith("a world: x should be a b, is ccc")
    assert len(first) < 200
