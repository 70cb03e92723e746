"""Where the time of a training step goes, by kind of layer: measured from outside.

    Chain(RMSNorm, Attention, Dropout)  ->  Chain(Timed(RMSNorm), Timed(Attention), Timed(Dropout))

No layer knows of it: a `Timed` layer stands in for each one and looks at the clock before and
after. What is left, when all kinds are taken from the step, is the rest: sums of the residual
stream, reading the corpus, agreeing on loss and norm.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from minidist.arrays import Array
from minidist.nn import At, Chain, Later, Layer

NAMES = {"Linear": "head", "CrossEntropy": "loss"}
"""What a kind is called whose class has another name: the only Linear in a chain is the head."""


class Clock:
    """Adds up seconds by (kind, phase)."""

    def __init__(self, synchronise: Callable[[], object]) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.synchronise = synchronise  # a device's kernels count where they were asked for

    def call(self, kind: str, phase: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call the function on the clock."""
        start = time.perf_counter()
        result = function(*args)
        self.synchronise()
        self.seconds[kind, phase] += time.perf_counter() - start
        return result

    def watch(self, owner: Any, method: str, kind: str) -> None:
        """Put every call of a method on the clock."""
        function = getattr(owner, method)
        setattr(owner, method, lambda *args: self.call(kind, "between", function, *args))


class Timed(Layer):
    """A layer on the clock."""

    def __init__(self, layer: Layer, clock: Clock) -> None:
        self.layer, self.clock = layer, clock
        name = type(layer).__name__
        self.kind = NAMES.get(name, name.lower())

    def forward(self, x: Array, at: At) -> tuple[Array, Any]:
        return self.clock.call(self.kind, "forward", self.layer.forward, x, at)

    def backward(self, ctx: Any, dy: Array, later: Later = None) -> Array:
        return self.clock.call(self.kind, "backward", self.layer.backward, ctx, dy, later)


def put_on_clock(units: Iterable[Layer], clock: Clock) -> None:
    """Replace every layer of these chains, and of the chains in them, by a timed one."""
    for chain in units:
        assert isinstance(chain, Chain)
        inner = [layer for layer in chain.layers if isinstance(layer, Chain)]
        put_on_clock(inner, clock)
        chain.layers = tuple(
            layer if isinstance(layer, Chain) else Timed(layer, clock) for layer in chain.layers
        )


def time_kinds(trainer: Any, steps: int, synchronise: Callable[[], object]) -> dict[str, Any]:
    """Run `steps` steps of a trainer and return {kind: {phase: ms per step}} with "the rest"."""
    trainer.step(0)
    clock = Clock(synchronise)
    put_on_clock([held.unit for held in trainer.units], clock)
    for method in ("ready", "poll", "finish"):
        clock.watch(trainer.sync, method, "communication")
    for method in ("begin", "squares"):
        clock.watch(trainer.sync, method, "clear, norm")
    clock.watch(trainer.sync.optimizer, "update", "optimiser")
    start = time.perf_counter()
    for step in range(1, 1 + steps):
        trainer.step(step)
    whole = time.perf_counter() - start
    clock.seconds["the rest", "between"] = whole - sum(clock.seconds.values())
    table: dict[str, dict[str, float]] = {}
    for (kind, phase), seconds in clock.seconds.items():
        table.setdefault(kind, {})[phase] = seconds / steps * 1e3
    return table


def average(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of the ranks' tables."""
    first, n = tables[0], len(tables)
    return {
        kind: {phase: sum(t[kind].get(phase, 0.0) for t in tables) / n for phase in first[kind]}
        for kind in first
    }


def lines(table: dict[str, Any]) -> Iterable[str]:
    """Yield the table as text, the most expensive kind first."""
    total = sum(sum(phases.values()) for phases in table.values())
    yield f"# {'ms per step':<20}{'forward':>10}{'backward':>10}{'between':>10}{'share':>8}"
    for kind, phases in sorted(table.items(), key=lambda row: -sum(row[1].values())):
        cells = (f"{phases[p]:10.2f}" if p in phases else f"{'':10}" for p in PHASES)
        yield f"  {kind:<20}{''.join(cells)}{sum(phases.values()) / total:8.1%}"


PHASES = ("forward", "backward", "between")
