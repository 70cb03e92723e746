"""What the laws hand to the ranks, the result that is right, and how the two are compared."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minidist.comm import Comm
from minidist.testing import coded as coding
from minidist.testing.ranktable import compare, equal

REFERENCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def values(rank: int, n: int, dtype: Any = np.float64) -> np.ndarray:
    """The input of a rank: small integers, different for each rank and index.

    Sums of them over 8 ranks stay below 256, so they are exact in every order in every dtype, also
    in bfloat16, which holds integers up to 2**8.
    """
    return ((7 * rank * rank + 3 * np.arange(n) * (rank + 1)) % 23 + rank).astype(dtype)


def combined(ranks: int, n: int, op: str, dtype: Any = np.float64) -> np.ndarray:
    """The right result, from one process on all inputs, by a plainer route than the ring."""
    inputs = np.stack([values(r, n) for r in range(ranks)])
    result: np.ndarray = REFERENCE[op].reduce(inputs, axis=0).astype(dtype)
    return result


def same(got: np.ndarray, want: np.ndarray, who: str) -> None:
    """Assert equality to the last bit, and show the first difference."""
    assert got.dtype == want.dtype, f"{who}: dtype {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{who}: shape {got.shape}, not {want.shape}"
    wrong = np.flatnonzero(got.reshape(got.size) != want.reshape(want.size))
    assert not wrong.size, (
        f"{who}: element {wrong[0]} is {got.reshape(got.size)[wrong[0]]}, should be "
        f"{want.reshape(want.size)[wrong[0]]} ({wrong.size} of {got.size} are wrong)"
    )


@dataclass(frozen=True)
class Inputs:
    """What the ranks bring to a reduction, and what comes out of it.

    A sum in float64 is one of coded numbers, which say what is wrong with it (`testing.coded`);
    other operations and dtypes are checked with `values`.
    """

    ranks: int
    n: int
    op: str = "sum"
    dtype: Any = np.float64

    @property
    def coded(self) -> bool:
        """Whether the numbers say where they come from."""
        return self.op == "sum" and self.dtype == np.float64 and self.ranks <= coding.RANKS

    def of(self, rank: int) -> np.ndarray:
        """The input of a rank."""
        return coding.coded(rank, self.n) if self.coded else values(rank, self.n, self.dtype)

    def combined(self) -> np.ndarray:
        """The right result, from one process."""
        if not self.coded:
            return combined(self.ranks, self.n, self.op, self.dtype)
        result: np.ndarray = np.sum([self.of(r) for r in range(self.ranks)], axis=0)
        return result

    def unset(self, n: int) -> np.ndarray:
        """A place for a result, into which nothing has been written yet."""
        return np.full(n, coding.NOTHING, self.dtype)

    def hold(self, claims: "Claims", law: str, want: Any, got: Any, more: str = "") -> None:
        """Claim that this rank holds what it should."""
        words = coding.describe if self.coded else None
        kind = "" if self.coded else f", {self.op} of {np.dtype(self.dtype).name}"
        claims.hold(law, f"n = {self.n}{kind}{more}", want, got, words)


class Claim(NamedTuple):
    """What a rank should hold and holds; ``right`` if they are equal."""

    right: bool
    want: Any
    got: Any
    compare: Callable[[Sequence[Any], Sequence[Any]], None]


class Claims:
    """What each rank claims to hold. `settle` looks at the claims of all ranks in one meeting.

    All ranks make the same claims in the same order, and all of them settle.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.made: list[Claim] = []

    def hold(
        self, law: str, world: str, want: Any, got: Any, words: Any = None, what: str = "hold"
    ) -> None:
        """Claim that this rank holds what it should, by a law, in a world of n elements."""
        right = equal(want, got)
        ranks = f"{self.comm.size} rank{'' if self.comm.size == 1 else 's'}"
        shown = partial(compare, law, f"{ranks}, {world}", words=words, what=what)
        self.made.append(Claim(right, want, want if right else copy(got), shown))

    def settle(self) -> None:
        """Raise LawBroken on all ranks, with what all of them hold, at the first wrong claim."""
        made, self.made = self.made, []
        wrong = next((i for i, claim in enumerate(made) if not claim.right), len(made))
        first = min(self.comm.gather_objects(wrong))
        if first < len(made):
            claim = made[first]
            should, holds = zip(*self.comm.gather_objects((claim.want, claim.got)), strict=True)
            claim.compare(should, holds)
