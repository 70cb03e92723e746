"""Numbers that say where they come from, and the decoder that puts them into words.

Element ``i`` of rank ``r`` is 8**r + i * 2**24. Adding such numbers keeps both apart, exactly in
float64 and int64: the octal digits below 2**24 count how often each rank (0 to 7) takes part, and
what is above is the index, once for each part:

    coded(0, 5)[3] + coded(2, 5)[3]  =  0o101 + 2 * 3 * 2**24     "[3:4] of ranks 0+2"

So a wrong sum tells what is wrong with it: a rank is missing, a rank is there twice, or an element
was added to another one.
"""

from itertools import groupby
from typing import Any

import numpy as np

RANKS = 8
NOTHING = -1
"""What results are filled with before a collective writes into them."""

_SHIFT = 2**24


def coded(rank: int, n: int, start: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """Return elements ``start`` to ``start + n`` of a rank; exact in sums up to index 2**25."""
    if not 0 <= rank < RANKS:
        raise ValueError(f"rank {rank} has no code; ranks are 0 to {RANKS - 1}")
    numbers: np.ndarray = (8**rank + _SHIFT * np.arange(start, start + n)).astype(dtype)
    return numbers


def decode(value: float) -> tuple[tuple[int, ...], int] | None:
    """Return the ranks that a number is the sum of, with repetitions, and its index.

    None for a number that is not such a sum, or is one of elements with different indices.
    """
    if not (np.isfinite(value) and value >= 1 and float(value).is_integer()):
        return None
    index, digits = divmod(int(value), _SHIFT)
    ranks = tuple(r for r in range(RANKS) for _ in range(digits // 8**r % 8))
    if not ranks or index % len(ranks):
        return None
    return ranks, index // len(ranks)


def describe(x: np.ndarray) -> str:
    """Say what an array of coded numbers holds: '[0:2] of ranks 0+1+2, [2:4] of rank 1'."""
    parts = [_words(list(run)) for run in _runs(x.reshape(x.size).tolist())]
    return ", ".join(parts) or "no elements"


def contrast(want: np.ndarray, got: np.ndarray) -> tuple[str, str, str]:
    """Say what should be held, what is held, and what is wrong with the first wrong element.

    As short as can be: indices alone where the ranks are right, '[3:4]' and '[2:4]'. The last text
    is empty where the first two say it all.
    """
    should, does = (_decoded(x) for x in (want, got))
    if None not in does and {d[0] for d in does} == {d[0] for d in should} and len(should) > 0:
        short = _ranges(should), _ranges(does)
        if short[0] != short[1]:
            return *short, ""
    return describe(want), describe(got), _difference(should, does)


def _decoded(x: np.ndarray) -> list[Any]:
    return [decode(v) for v in x.reshape(x.size).tolist()]


def _ranges(codes: list[Any]) -> str:
    """The indices that an array holds, without the ranks: '[0:4]'."""
    runs = groupby(enumerate(code[1] for code in codes), key=lambda at: at[1] - at[0])
    parts = [[index for _, index in run] for _, run in runs]
    return ", ".join(_slice(run[0], len(run)) for run in parts)


def _difference(should: list[Any], does: list[Any]) -> str:
    """What is wrong with the first element whose ranks are wrong; '' if no ranks are."""
    for right, wrong in zip(should, does, strict=False):
        if right is None or wrong is None or right == wrong:
            continue
        if right[1] != wrong[1]:
            return f"element {wrong[1]} stands where {right[1]} belongs"
        return ", ".join(
            f"rank {r} {_times(wrong[0].count(r), right[0].count(r))}"
            for r in range(RANKS)
            if wrong[0].count(r) != right[0].count(r)
        )
    return ""


def _times(does: int, should: int) -> str:
    if does == 0:
        return "is missing"
    if should == 0:
        return "does not belong there"
    return "is there twice" if (does, should) == (2, 1) else f"is there {does} times"


def _runs(values: list[float]) -> list[list[float]]:
    """Cut a list into runs that go on: the same ranks at rising indices, or the same number."""

    def place(at: tuple[int, float]) -> Any:
        found = decode(at[1])
        return ("code", found[0], found[1] - at[0]) if found else ("number", str(at[1]))

    return [[v for _, v in run] for _, run in groupby(enumerate(values), key=place)]


def _words(run: list[float]) -> str:
    found = decode(run[0])
    if found is None:
        what = "nothing" if run[0] == NOTHING else _number(run[0])
        return f"{len(run)} times {what}" if len(run) > 1 else what
    ranks, index = found
    names = "+".join(map(str, ranks))
    return f"{_slice(index, len(run))} of rank{'s' if len(ranks) > 1 else ''} {names}"


def _number(value: float) -> str:
    """A number in words; a sum of elements that do not belong together shows its ranks."""
    if value >= _SHIFT and float(value).is_integer():
        digits = int(value) % _SHIFT
        ranks = [str(r) for r in range(RANKS) for _ in range(digits // 8**r % 8)]
        if len(ranks) > 1:
            return f"a mixture of indices of ranks {'+'.join(ranks)}"
    return f"{value:g}"


def _slice(index: int, length: int) -> str:
    return f"[{index}:{index + length}]"
