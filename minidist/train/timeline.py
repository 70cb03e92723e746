"""The timeline of a step as lanes: reads what `minidist.train.trace` has written.

For each rank a row of what it computed and waited for, a row of when any message was under way, and
the bytes that it held. What stands beside computation in the second row has cost nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minidist.train.trace import COMPUTE, HELD
from minidist.view.lanes import Block, Lane, lanes
from minidist.view.svg import COLOURS, QUIET

FORWARD, BACKWARD, WAIT, UPDATE, TRAVEL = (
    "forward", "backward", "waits", "update", "messages under way",
)  # fmt: skip
KINDS = {
    FORWARD: COLOURS[0],
    BACKWARD: COLOURS[2],
    UPDATE: COLOURS[4],
    WAIT: QUIET,
    TRAVEL: COLOURS[1],
}
SHOWN = 8
"""Ranks in the picture at most."""

Times = tuple[float, float]


class Rank(NamedTuple):
    """What one rank did in the step. Seconds and bytes."""

    computed: list[Block]
    travelled: list[Times]
    """When any message was under way, merged."""
    memory: list[tuple[float, float]]

    @property
    def messages(self) -> float:
        """Return how long any message was under way."""
        return sum(stop - start for start, stop in self.travelled)

    @property
    def waited(self) -> float:
        """Return how long it waited for gradients."""
        return sum(b.stop - b.start for b in self.computed if b.kind == WAIT)


def read_timeline(path: Path) -> list[Rank]:
    """Return each rank's part of a trace file, in the order of ranks."""
    found: defaultdict[int, Rank] = defaultdict(lambda: Rank([], [], []))
    travelled: defaultdict[int, list[Times]] = defaultdict(list)
    records: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    for record in records:
        rank = found[record["pid"]]
        start = record.get("ts", 0.0) / 1e6
        if record["ph"] == "C" and record["name"] == HELD:
            rank.memory.append((start, record["args"]["bytes"]))
        if record["ph"] != "X":
            continue
        stop = start + record["dur"] / 1e6
        if record["cat"] != COMPUTE:
            travelled[record["pid"]].append((start, stop))
        elif kind := _kind(record["name"]):
            number = record["name"].rpartition(" ")[2]
            name = number if number.isdigit() else ""
            rank.computed.append(Block(start, stop, kind, name, record["name"]))
    for number, times in travelled.items():
        found[number].travelled.extend(merged(times))
    return [found[number] for number in sorted(found)]


def _kind(name: str) -> str:
    """Return the kind of a span of computation; nothing for the step as a whole."""
    first = name.partition(" ")[0]
    return {"wait": WAIT, "step": ""}.get(first, first)


def merged(times: Iterable[Times]) -> list[Times]:
    """Return where at least one of the intervals is, in order, as intervals that do not touch."""
    found: list[Times] = []
    for start, stop in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def words(ranks: Sequence[Rank]) -> str:
    """Say what the timeline shows of rank 0."""
    first = ranks[0]
    until = max((b.stop for b in first.computed), default=0.0)
    text = f"Rank 0 took {1e3 * until:.1f} ms for this step"
    if first.messages:
        text += (
            f"; messages of its rings were under way for {1e3 * first.messages:.1f} ms of it, and "
            f"for {1e3 * first.waited:.1f} ms it did nothing but wait for gradients"
        )
    if first.memory:
        text += f". It held at most {max(held for _, held in first.memory):,} bytes"
    more = f" Shown are the first {SHOWN} of {len(ranks)} ranks." if len(ranks) > SHOWN else ""
    return f"{text}.{more}"


def draw(ranks: Sequence[Rank]) -> str:
    """Return the lanes of the first ranks as SVG."""
    shown = ranks[:SHOWN]
    travel = [[Block(*times, TRAVEL) for times in rank.travelled] for rank in shown]
    places = [
        Lane(f"rank {n}", [rank.computed, *([row] if row else [])], rank.memory)
        for n, (rank, row) in enumerate(zip(shown, travel, strict=True))
    ]
    used = {b.kind for place in places for row in place.rows for b in row}
    kinds = {kind: colour for kind, colour in KINDS.items() if kind in used}
    return lanes(places, kinds, title="One step, the second of this sitting", words=words(ranks))
