"""Mixed precision: half types are what layers read and send, float32 is what the optimiser changes.

    parameter (bfloat16)  -->  forward, backward  -->  gradient (float32 or bfloat16)
            ^                                                    |
            | rounded once                                       v
    master (float32)  <-------------- update -------------- moments (float32)

Why masters: next to 1, bfloat16 has a step of 2**-7 = 0.0078, so an update of 0.001 is rounded away
each time, and a thousand of them change nothing. `stalled` shows it.

Why a loss scale for float16: its smallest number is 6e-8, and gradients of a large model are often
smaller. Backward starts with the loss times a scale, the chain rule carries the factor to every
gradient, and the update divides by it. The scale should be as large as the range allows, so it
doubles now and then, and when a gradient overflows to infinity the step is skipped and the scale
halved. The verdict is the global norm, which is a number that all ranks have: it is infinite or NaN
if any element on any rank is, so all skip together and keep the same scale. bfloat16 has the range
of float32 and needs none of this.

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, sections 3.1 and 3.2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist.errors import ConfigError, DivergedError
from minidist.ops.half import down, named, is_half, up


@dataclass(frozen=True)
class Precision:
    """The types of a run, by name. ``grad_name`` None: that of the masters.

    Raises ConfigError where gradients would be of another type than float64 everything.
    """

    name: str
    grad_name: str | None = None

    def __post_init__(self) -> None:
        if self.name == "float64" and self.grad_name:
            raise ConfigError(
                f"--grad-dtype {self.grad_name} with --dtype float64: float64 is there to compare "
                "exactly; leave out --grad-dtype"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of parameters and activations."""
        return named(self.name)

    @property
    def master(self) -> np.dtype[Any]:
        """Of what the optimiser changes, and of the moments."""
        return np.dtype(np.float32) if is_half(self.dtype) else self.dtype

    @property
    def grad_dtype(self) -> np.dtype[Any]:
        """Of gradients, in memory and on the wire."""
        return named(self.grad_name) if self.grad_name else self.master

    def loss_scale(self) -> "LossScale":
        """Return a new loss scale: a dynamic one for float16."""
        return LossScale() if self.name == "float16" else LossScale.constant()


class LossScale:
    """The factor of the loss: ``scale`` holds for the whole of a step, backward and update alike.

    It starts at 2**16, at which the gradient 1 / tokens of a loss is safe for any batch, doubles
    after `every` good steps in a row, and is halved by a skipped one. Below 1 it would make small
    gradients smaller, so there training has diverged.
    """

    def __init__(self, scale: float = 2.0**16, every: int = 200, dynamic: bool = True) -> None:
        self.scale, self.every, self.dynamic = scale, every, dynamic
        self.good = 0

    @classmethod
    def constant(cls) -> "LossScale":
        """Return the factor 1, for types that need no other."""
        return cls(1.0, dynamic=False)

    def update(self, finite: bool) -> None:
        """End a step; `finite`: its global norm was. Raises DivergedError below a scale of 1.

        All ranks call it with the same verdict.
        """
        if not self.dynamic:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            if self.scale <= 1.0:
                raise DivergedError(
                    "gradients overflow float16 even with a loss scale of 1: training has "
                    "diverged; lower --lr, or take --dtype bfloat16"
                )
            self.scale /= 2
        elif self.good == self.every:
            self.scale, self.good = min(self.scale * 2, 2.0**24), 0

    def state(self) -> dict[str, float]:
        """Return what a checkpoint must keep."""
        return {"scale": self.scale, "good": self.good}

    def restore(self, state: dict[str, float]) -> None:
        """Take up what `state` returned."""
        self.scale, self.good = float(state["scale"]), int(state["good"])


def stalled(dtype: Any, times: int = 1000, step: float = 0.001) -> tuple[float, float]:
    """Return 1 after `times` additions of `step`: stored in `dtype`, and with a float32 master."""
    one = np.ones(1, dtype)
    master = np.ones(1, np.float32)
    for _ in range(times):
        one = down(up(one) + np.float32(step), one.dtype)
        master += np.float32(step)
    return float(up(one)[0]), float(up(down(master, one.dtype))[0])
