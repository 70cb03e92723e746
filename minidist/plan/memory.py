"""Bytes of model state on each rank, and elements sent, by ZeRO stage.

    bytes a parameter            float32    bfloat16, float32 gradients    all bfloat16
    parameters                   4          2                              2
    gradients                    4          4                              2
    masters                      -          4                              4
    moments of AdamW             8          8                              8
                                 16         18                             16

Stage 1 cuts masters and moments over N ranks, stage 2 gradients too, stage 3 parameters too:

    2 + 2 + 12        2 + 2 + 12/N        2 + 14/N        16/N

The formulas take a whole number of elements for each bucket, cut by `bounds`, and are exact for
each rank; `ideal` is the formula of the paper. Activations are in `minidist.plan.activations`.

Source: Rajbhandari et al., "ZeRO", SC 2020, sections 3.1, 5 and 7, table 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from minidist.bounds import bounds
from minidist.errors import ConfigError

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
SLOTS = {"adamw": 2, "sgd": 0}
"""Numbers that an optimiser keeps for each parameter."""
CUT_FROM = {"parameters": 3, "gradients": 2, "masters": 1, "moments": 1}
"""The first stage that cuts each kind."""


@dataclass(frozen=True)
class State:
    """What is kept for a parameter, in bytes. Raises ConfigError for an unknown name."""

    dtype: str = "bfloat16"
    grad_dtype: str | None = None
    """None: that of the masters."""
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        for name, known in (
            (self.dtype, BYTES),
            (self.grad_dtype or self.dtype, BYTES),
            (self.optimizer, SLOTS),
        ):
            if name not in known:
                raise ConfigError(f"{name!r}: choose one of {', '.join(known)}")

    @property
    def master(self) -> int:
        """Bytes of what the optimiser changes."""
        return max(4, BYTES[self.dtype])

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each kind for one parameter."""
        half = BYTES[self.dtype] == 2
        return {
            "parameters": BYTES[self.dtype],
            "gradients": BYTES[self.grad_dtype] if self.grad_dtype else self.master,
            "masters": self.master if half else 0,
            "moments": self.master * SLOTS[self.optimizer],
        }

    def ideal(self, stage: int, ranks: int) -> Fraction:
        """Return the bytes a parameter on each of N ranks, as if everything could be cut evenly."""
        _check(stage, ranks)
        return sum(
            (
                Fraction(n, ranks if stage >= CUT_FROM[kind] else 1)
                for kind, n in self.bytes().items()
            ),
            Fraction(0),
        )

    def held(
        self,
        stage: int,
        ranks: int,
        rank: int,
        buckets: Sequence[int],
        frozen: Sequence[int] = (),
    ) -> dict[str, int]:
        """Return the bytes of each kind that a rank holds, for buckets of so many elements.

        Frozen buckets are parameters only.
        """
        _check(stage, ranks)

        def own(size: int) -> int:
            cut = bounds(size, ranks)
            return cut[rank + 1] - cut[rank]

        result = {}
        for kind, each in self.bytes().items():
            kept = [*buckets, *(frozen if kind == "parameters" else ())]
            result[kind] = each * sum(own(n) if stage >= CUT_FROM[kind] else n for n in kept)
        return result


def sent(stage: int, ranks: int, micro_batches: int = 1) -> tuple[Fraction, Fraction]:
    """Return the elements that a rank sends in a step, for each parameter: gradients, parameters.

    2, 2, M + 1 and 3M times (N - 1) / N in all, for stages 0 to 3 and M micro-batches.
    """
    _check(stage, ranks)
    share = Fraction(ranks - 1, ranks)
    m = micro_batches
    gradients, parameters = {0: (2, 0), 1: (1, 1), 2: (m, 1), 3: (m, 2 * m)}[stage]
    return gradients * share, parameters * share


def _check(stage: int, ranks: int) -> None:
    if stage not in (0, 1, 2, 3):
        raise ConfigError(f"there is no ZeRO stage {stage}: choose 0, 1, 2 or 3")
    if ranks < 1:
        raise ConfigError(f"{ranks} ranks hold nothing: give at least 1")
