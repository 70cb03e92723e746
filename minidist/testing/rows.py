"""A broken law without ranks: names, what each should be, and what it is.

    bfloat16, 2 times 2**-8: with a master should be 1.0078125, is 1.0

                        should be  is
                 alone  1.0        the same
      -> with a master  1.0078125  1.0

    the law: ...

The sister of `minidist.testing.ranktable` for laws about steps, layers or numbers.
"""

from collections.abc import Sequence

from minidist.testing.ranktable import WIDEST, LawBroken, cut

BEFORE, AFTER = 8, 3
"""Rows that are shown before and after the first wrong one."""

Row = tuple[str, object, object]


def compare_rows(law: str, world: str, rows: Sequence[Row]) -> None:
    """Raise LawBroken unless in each row (name, should be, is) the last two are equal."""
    wrong = [i for i, (_, want, got) in enumerate(rows) if want != got]
    if not wrong:
        return
    first = wrong[0]
    shown = [("", "should be", "is")]
    start = max(0, first - BEFORE)
    for i, (name, want, got) in enumerate(rows[start : first + 1 + AFTER], start):
        arrow = "-> " if i == first else ""
        shown.append((f"{arrow}{name}", _line(want), "the same" if want == got else _line(got)))
    left, middle = (max(len(row[i]) for row in shown) for i in (0, 1))
    table = "\n".join(f"{a:>{left}}  {b:{middle}}  {c}".rstrip() for a, b, c in shown)
    name, want, got = rows[first]
    raise LawBroken(law, f"{world}: {name} should be {_line(want)}, is {_line(got)}", table)


def _line(value: object) -> str:
    """The value in one line, not too long."""
    return cut(" ".join(str(value).split()), WIDEST)
