"""What the laws hand to the ranks, the result that is right, and how the two are compared."""

from dataclasses import dataclass
from typing import Any

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

    def hold(self, comm: Comm, law: str, want: Any, got: Any, more: str = "") -> None:
        """Every rank of ``comm`` holds what it should; all ranks call it."""
        words = coding.describe if self.coded else None
        kind = "" if self.coded else f", {self.op} of {np.dtype(self.dtype).name}"
        hold(comm, law, f"n = {self.n}{kind}{more}", want, got, words)


def hold(
    comm: Comm, law: str, world: str, want: Any, got: Any, words: Any = None, what: str = "hold"
) -> None:
    """Raise LawBroken on all ranks, with what all of them hold, if one of them is wrong."""
    if not all(comm.gather_objects(equal(want, got))):
        both = comm.gather_objects((want, got))
        ranks = f"{comm.size} rank{'' if comm.size == 1 else 's'}"
        should, holds = zip(*both, strict=True)
        compare(law, f"{ranks}, {world}", should, holds, words, what)
