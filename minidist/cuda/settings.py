"""How the emulator runs kernels: set around the calls, which stay the same as on a GPU.

with cuda.settings(order="random", seed=3):     a correct kernel gives the same in every order
kernel(grid, block, args)
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from minidist.errors import ConfigError

ORDERS = ("forward", "reverse", "random")
BACKENDS = (None, "emulator", "gpu")


@dataclass(frozen=True)
class Settings:
    """What `settings` may change.

    ``order`` and ``seed``: in which order threads and blocks get their turn. ``timeout``: seconds
    until a kernel is stopped, None for never. ``workers``: blocks that run at a time; one by
    default, so that a run can be repeated. ``preempt``: interrupt threads that only wait for
    others. ``backend``: "emulator" or "gpu" for launches without arrays, which otherwise decide.
    """

    order: str = "forward"
    seed: int = 0
    timeout: float | None = 30.0
    workers: int = 1
    preempt: bool = True
    backend: str | None = None

    def __post_init__(self) -> None:
        def refuse(name: str, wanted: str) -> None:
            raise ConfigError(f"cuda.settings: {name}={getattr(self, name)!r} is not {wanted}")

        if self.order not in ORDERS:
            refuse("order", f"one of {', '.join(ORDERS)}")
        if not _whole(self.seed) or not 0 <= self.seed < 2**64:
            refuse("seed", "a whole number of 0 or more, below 2**64")
        if self.timeout is not None and not _seconds(self.timeout):
            refuse("timeout", "a number of seconds above 0, or None")
        if not _whole(self.workers) or not 1 <= self.workers <= 1024:
            refuse("workers", "a whole number from 1 to 1,024")
        if self.backend not in BACKENDS:
            refuse("backend", "'emulator', 'gpu' or None")


def _whole(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _seconds(x: object) -> bool:
    return isinstance(x, (int, float)) and math.isfinite(x) and x > 0


_current: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039 frozen


def current() -> Settings:
    """Return the settings in force here."""
    return _current.get()


@contextmanager
def settings(**changes: Any) -> Iterator[Settings]:
    """Change settings inside a `with` block; see `Settings` for their names and meaning."""
    if unknown := set(changes) - set(Settings.__dataclass_fields__):
        known = ", ".join(Settings.__dataclass_fields__)
        raise ConfigError(f"cuda.settings has no {', '.join(sorted(unknown))}; it has {known}")
    token = _current.set(replace(_current.get(), **changes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)
