"""Mixed precision: half types are what layers read and send, float32 is what the optimiser changes.

    parameter (bfloat16)  -->  forward, backward  -->  gradient (float32 or bfloat16)
            ^                                                    |
            | rounded once                                       v
    master (float32)  <-------------- update -------------- moments (float32)

Why masters: next to 1, bfloat16 has steps of 2**-7 = 0.0078, so 1 + 0.001 is rounded to 1 again,
and a thousand updates of 0.001 change nothing. A master has steps of 2**-23: it goes to 2, and its
rounded copy takes a step every now and then. `stalled` shows both.

Why a loss scale for float16: its smallest number is 2**-24 = 6e-8, and gradients are often smaller.
Backward starts with the loss times a scale, the chain rule carries the factor to every gradient,
and the update divides by it. The scale should be as large as the range allows, which nobody knows
beforehand: it is doubled after a while of good steps, and if a gradient overflows to infinity the
step is skipped and the scale halved. It is a power of 2, so scaling by it rounds nothing.

The verdict is the *global* norm, which all ranks have: it is infinite or NaN if any element on any
rank is, so all skip together and go on with the same scale. bfloat16 has the range of float32 and
needs none of this; there, and with wider types, the scale is the constant 1.

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, sections 3.1 and 3.2. PyTorch's
GradScaler starts at 2**16 too, and doubles every 2000 steps.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from minidist.errors import CheckpointError, ConfigError, DivergedError
from minidist.ops.half import down, named, up, wide

GRADIENTS = ("float32", "bfloat16")
"""Types that a gradient may be told to have; without a word it has that of the masters."""

FIRST, LEAST, MOST = 2.0**16, 1.0, 2.0**24
EVERY = 200


@dataclass(frozen=True)
class Precision:
    """The types of a run, from their names; ``grad_name`` None: that of the masters.

    Raises ConfigError for an unknown name, and for float64 with a type of gradients.
    """

    name: str
    grad_name: str | None = None

    def __post_init__(self) -> None:
        named(self.name)
        if self.grad_name is None:
            return
        if self.grad_name not in GRADIENTS:
            raise ConfigError(
                f"--grad-dtype {self.grad_name}: choose one of {', '.join(GRADIENTS)}; a sum over "
                "ranks in float16 would overflow too easily"
            )
        if self.name == "float64":
            raise ConfigError(
                f"--grad-dtype {self.grad_name} with --dtype float64: float64 is for exact "
                "comparison: leave out --grad-dtype"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of parameters and activations."""
        return named(self.name)

    @property
    def master(self) -> np.dtype[Any]:
        """Of what the optimiser changes, and of the moments."""
        return wide(self.dtype)

    @property
    def grad_dtype(self) -> np.dtype[Any]:
        """Of gradients, in memory and on the wire."""
        return named(self.grad_name) if self.grad_name else self.master

    def loss_scale(self) -> "LossScale":
        """Return a new loss scale: a dynamic one for float16."""
        return LossScale() if self.name == "float16" else LossScale.constant()


class LossScale:
    """The factor of the loss. ``scale`` is one number from a step's backward to its `update`.

    ``skipped`` counts the steps of the run that were skipped; whoever skips one adds to it.

    It is doubled after `every` good steps in a row and halved by a bad one, within 1 and 2**24. It
    starts at 2**16: backward's first gradient is at most 1 over the tokens of the batch, which with
    2 tokens fits float16's 65504 even so. Too high a scale costs one skipped step for each halving;
    too low a one loses gradients silently, and takes `every` steps for each doubling. So the start
    is high. With 200, one step in 200 at the most is lost to trying twice the scale.
    """

    def __init__(self, scale: float = FIRST, every: int = EVERY, dynamic: bool = True) -> None:
        self.scale, self.every, self.dynamic = scale, every, dynamic
        self.good = self.skipped = 0

    @classmethod
    def constant(cls) -> "LossScale":
        """Return the factor 1, for types that need no other."""
        return cls(1.0, dynamic=False)

    def update(self, finite: bool) -> None:
        """End a step, after its update. All ranks call it with the same verdict.

        `finite`: the *global* gradient norm was. Raises DivergedError where the scale would fall
        below 1: what overflows without a scale has diverged.
        """
        if not self.dynamic:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            if self.scale / 2 < LEAST:
                raise DivergedError(
                    f"the gradient overflows float16 even with a loss scale of {self.scale:g}: "
                    "training has diverged; lower --lr, or take --dtype bfloat16"
                )
            self.scale /= 2
        elif self.good >= self.every:
            self.scale, self.good = min(self.scale * 2, MOST), 0

    def quiet(self) -> AbstractContextManager[object]:
        """Return a `with` block in which NumPy does not warn of what the verdict will tell."""
        return np.errstate(over="ignore", invalid="ignore") if self.dynamic else np.errstate()

    def state(self) -> dict[str, float]:
        """Return what a checkpoint must keep: plain numbers."""
        return {"scale": self.scale, "good": self.good, "skipped": self.skipped}

    def restore(self, state: Mapping[str, float]) -> None:
        """Take up what `state` returned. Raises CheckpointError if it cannot have."""
        scale, good = float(state.get("scale", 0)), int(state.get("good", -1))
        skipped = int(state.get("skipped", -1))
        if not (isfinite(scale) and scale >= LEAST and good >= 0 and skipped >= 0):
            raise CheckpointError(f"{dict(state)} is no state of a loss scale: the file is damaged")
        self.scale, self.good, self.skipped = scale, good, skipped


def stalled(dtype: Any, times: int = 1000, step: float = 0.001) -> tuple[float, float]:
    """Return 1 after `times` additions of `step`: stored in `dtype`, and with a float32 master.

    With bfloat16: 1.0 and 2.0.
    """
    alone, master = np.ones(1, dtype), np.ones(1, np.float32)
    for _ in range(times):
        alone = down(up(alone) + np.float32(step), alone.dtype)
        master += np.float32(step)
    return float(up(alone)[0]), float(up(down(master, alone.dtype))[0])
