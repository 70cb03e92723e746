"""Stopping in good order: a signal asks, and the training step decides for all ranks together.

A handler may run at any moment, also between two messages of a ring. So it only notes the wish; the
step carries it in its all-reduce, all ranks learn of it in the same step, and none is left waiting
for another. A second signal ends the process at once.
"""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C; what batch systems send; what `minidist launch` makes of a Ctrl-C."""


class StopRequest:
    """Notes signals while it is entered: `with StopRequest() as stop: ... stop.requested`."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
