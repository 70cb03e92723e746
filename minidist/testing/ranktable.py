"""A broken law as people read it: the world, what every rank should hold and what it holds.

3 ranks, n = 4: rank 2 should hold [3:4] of ranks 0+1+2, holds [2:4] of ranks 0+1+2

  rank  should hold             holds
     0  [0:2] of ranks 0+1+2    the same
     1  [2:3] of ranks 0+1+2    the same
  -> 2  [3:4] of ranks 0+1+2    [2:4] of ranks 0+1+2

the law: after a reduce-scatter rank r has piece r of the combination, and no rank has more.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidist.testing import coded

Words = Callable[[Any], str]
WIDEST = 120  # characters in which a table says what a rank holds


class LawBroken(AssertionError):
    """A counterexample to a law: the headline ``world``, a table, and the law in words."""

    def __init__(self, law: str, world: str, table: str = "") -> None:
        self.law, self.world, self.table = law, world, table
        parts = [world, "\n".join(f"  {line}" for line in table.splitlines()), f"the law: {law}"]
        super().__init__("\n\n".join(part for part in parts if part))


def compare(
    law: str,
    world: str,
    should: Sequence[Any],
    holds: Sequence[Any],
    words: Words | None = None,
    what: str = "hold",
) -> None:
    """Raise LawBroken unless every rank holds what it should; both lists go by rank.

    ``words`` puts what a rank holds into words (default: `plain`; `coded.describe` for arrays of
    coded numbers). ``world``: such as "3 ranks, n = 4". ``what``: a verb, as in "should hold" and
    "holds", for results that are not arrays; "send" gives "should send" and "sends".
    """
    say = _short(words or plain)
    wrong = [r for r, pair in enumerate(zip(should, holds, strict=True)) if not equal(*pair)]
    if not wrong:
        return
    first, because = wrong[0], ""
    if words is coded.describe and isinstance(holds[first], np.ndarray):
        want, got, because = coded.contrast(should[first], holds[first])
        want, got = cut(want, WIDEST), cut(got, WIDEST)
    else:
        want, got = say(should[first]), say(holds[first])
    if want == got:
        because = _detail(should[first], holds[first])
    headline = f"{world}: rank {first} should {what} {want}, {what}s {got}"
    headline += f": {because}" if because else ""
    raise LawBroken(law, headline, _table(should, holds, wrong, say, what))


def plain(value: Any) -> str:
    """Put a value into words: a long array by its beginning, other things by themselves."""
    if isinstance(value, np.ndarray):
        shown = [f"{v:g}" if isinstance(v, float) else str(v) for v in value.ravel()[:8].tolist()]
        rest = [f"... ({value.size} in all)"] if value.size > 8 else []
        return f"[{' '.join([*shown, *rest])}]"
    return str(value)


def cut(text: str, most: int) -> str:
    """The text, or its beginning if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters in all)"


def _short(words: Words) -> Words:
    """The same words in one line, not too long; and words for what is no array after all."""

    def say(value: Any) -> str:
        other = words is coded.describe and not isinstance(value, np.ndarray)
        return cut(" ".join(str(plain(value) if other else words(value)).split("\n")), WIDEST)

    return say


def equal(want: Any, got: Any) -> bool:
    """Equal to the last bit; arrays also in shape and dtype."""
    if isinstance(want, np.ndarray):
        return (
            isinstance(got, np.ndarray)
            and (want.shape, want.dtype) == (got.shape, got.dtype)
            and want.tobytes() == got.tobytes()
        )
    return bool(want == got)


def _detail(want: Any, got: Any) -> str:
    """What is different about two things that read alike."""
    if isinstance(want, np.ndarray) and isinstance(got, np.ndarray):
        if (want.shape, want.dtype) == (got.shape, got.dtype):
            return "the last bits differ, or elements that are not shown"
        return f"of shape {got.shape} and {got.dtype} instead of {want.shape} and {want.dtype}"
    if type(want) is type(got):
        return "the difference is not shown"
    return f"{type(got).__name__} instead of {type(want).__name__}"


def _table(
    should: Sequence[Any], holds: Sequence[Any], wrong: Sequence[int], say: Words, what: str
) -> str:
    rows = [("rank", f"should {what}", f"{what}s")]
    for rank, (want, got) in enumerate(zip(should, holds, strict=True)):
        arrow = "-> " if rank == wrong[0] else ""
        rows.append((f"{arrow}{rank}", say(want), say(got) if rank in wrong else "the same"))
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    return "\n".join(f"{a:>{first}}  {b:{second}}  {c}".rstrip() for a, b, c in rows)
