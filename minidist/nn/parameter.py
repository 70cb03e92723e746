"""A parameter knows its place in the whole model.

    whole tensor, shape (6, 8)            this rank's box ((2, 4), (0, 8))
    +-----------------+                   rows 2 and 3, all columns:
    | . . . . . . . . |                   `local` is (2, 8), `size` is 16
    | . . . . . . . . |
    | # # # # # # # # |  <- box
    | # # # # # # # # |                   a Shard is a row-major range inside
    | . . . . . . . . |                   the box: here [3, 11) would be the
    | . . . . . . . . |                   state that one of several ranks keeps
    +-----------------+

A Parameter is a description: making one allocates nothing, so a rank can describe a model that is
larger than its memory. The first value of an element is a function of (seed, name, place in the
whole), so any rank computes any piece, and gluing the pieces gives the same tensor on any number
of ranks. Storage (`data`, `grad`) is handed in by whoever owns it: a test, a bucket, a server.

Real systems start from meta tensors and then either load a checkpoint or broadcast from rank 0.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from minidist.arrays import Array
from minidist.errors import ArrayError, ConfigError
from minidist.ops import accumulate, random

Box: TypeAlias = tuple[tuple[int, int], ...]
"""(start, stop) along each axis of the whole tensor."""

Init: TypeAlias = float | Literal["ones", "zeros"]
"""The standard deviation of a normal distribution around 0, or a constant."""

DATA = ("dp", "cp", "ep")
"""The data axes: ranks along them hold the same weight and have seen other data. (Experts differ
along ep: for them it is none.)"""


class Lender(Protocol):
    """Whoever gives a parameter storage for its gradient when it is needed."""

    def lend(self) -> None:
        """Put zeros where `parameter.grad` is, for all parameters that it looks after."""


class Parameter:
    """One tensor of the model, and the box of it that this rank holds.

    ``shape`` is that of the whole tensor; ``box`` is all of it unless given. ``partial`` names mesh
    axes over which ranks hold this same box and each has a part of the gradient's sum: the data
    axes, unless given. ``copies`` names axes over which they hold this same box and the same
    gradient. ``data`` and ``grad`` have the shape ``local``, and are None until storage is handed
    in; ``home``, if there is one, hands it in when the first gradient comes.
    """

    data: Array
    grad: Array

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        box: Box | None = None,
        init: Init = "zeros",
        seed: int = 0,
        partial: tuple[str, ...] = DATA,
        copies: tuple[str, ...] = (),
        trainable: bool = True,
    ) -> None:
        self.name, self.shape = name, tuple(shape)
        self.box: Box = tuple((0, n) for n in self.shape) if box is None else box
        self.init, self.seed = init, seed
        self.partial, self.copies, self.trainable = partial, copies, trainable
        self.data = self.grad = None
        self.home: Lender | None = None
        inside = (0 <= a <= b <= n for (a, b), n in zip(self.box, self.shape, strict=False))
        if len(self.box) != len(self.shape) or not all(inside):
            raise ConfigError(f"{name}: box {self.box} is not inside the shape {self.shape}")

    @property
    def local(self) -> tuple[int, ...]:
        """The shape of the box."""
        return tuple(b - a for a, b in self.box)

    @property
    def size(self) -> int:
        """The number of elements in the box."""
        return prod(self.local)

    def initial(self, start: int, stop: int) -> np.ndarray:
        """Return the first values of the row-major range [start, stop) of the box, as float64.

        Computed on the host for every backend, so that all backends start from the same bits.
        """
        if not 0 <= start <= stop <= self.size:
            raise ArrayError(f"{self.name}: no range [{start}, {stop}) in {self.size} elements")
        if self.init == "ones":
            return np.ones(stop - start)
        if self.init == "zeros":
            return np.zeros(stop - start)
        values: np.ndarray = random.normal(self.seed, self.name, self._place(start, stop))
        return values * self.init

    def accumulate(self, gradient: Array) -> None:
        """Add to the gradient, in float32 at least; a frozen parameter ignores it."""
        if not self.trainable:
            return
        if self.grad is None and self.home is not None:
            self.home.lend()
        if self.grad is None:
            raise ArrayError(f"{self.name}: no storage for the gradient; allocate it first")
        if gradient.shape != self.local:
            raise ArrayError(
                f"{self.name}: a gradient of shape {gradient.shape} does not fit {self.local}"
            )
        accumulate(self.grad, gradient)

    def _place(self, start: int, stop: int) -> np.ndarray:
        """Return the row-major index in the whole tensor of each element of the range."""
        rest, place, stride = np.arange(start, stop), np.zeros(stop - start, np.int64), 1
        for n, (first, last) in zip(reversed(self.shape), reversed(self.box), strict=True):
            rest, along = np.divmod(rest, max(last - first, 1))
            place += (first + along) * stride
            stride *= n
        return place

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, {self.shape}, box={self.box})"


class Shard(NamedTuple):
    """A row-major range [start, stop) of a parameter's box: the grain of optimiser state."""

    parameter: Parameter
    start: int
    stop: int


def allocate(
    parameters: Iterable[Parameter], dtype: Any, xp: Any = np, gradients: bool = False
) -> None:
    """Give each parameter storage of its own in the namespace ``xp``, holding its first values.

    A parameter that appears twice (a tied table) gets one storage. With ``gradients``, the
    gradients are allocated too and set to 0.
    """
    for p in dict.fromkeys(parameters):
        p.data = xp.asarray(p.initial(0, p.size).astype(dtype).reshape(p.local))
        p.grad = xp.zeros(p.local, dtype) if gradients else None
