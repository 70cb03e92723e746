"""What a training step tells somebody who looks on. This watcher looks away.

A step says "this block is forward of unit 3" and "this collective is the ring of unit 2", and works
the same whether a `minidist.train.trace.Trace` writes that down or nobody does.
"""

from contextlib import AbstractContextManager, nullcontext

from minidist.collectives import Steps


class Watch:
    """Records nothing."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return the context of a block of computation."""
        return nullcontext()

    def ring(self, name: str, steps: Steps) -> Steps:
        """Return the exchanges of a collective, as they are or with somebody listening."""
        return steps


UNSEEN = Watch()
