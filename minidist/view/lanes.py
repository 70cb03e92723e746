"""Lanes: what each rank does, against time, and what it holds meanwhile.

    rank 0   |forward|forward|backward|backward|wait|update|      what it computes
                             |~ ring ~|  |~~ ring ~~|             what travels
             ____|-----------|______|______                        bytes held
    rank 1   ...

A lane has any number of thin rows, each with blocks, and perhaps a line of memory below. All lanes
share one axis of time and one of memory.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minidist.errors import ConfigError
from minidist.view.svg import COLOURS, GRID, INK, LETTER, PAPER, Picture
from minidist.view.units import even_step, readable

ROW, SPACE, MEMORY = 17, 3, 34
"""Heights: of a row of blocks, between rows, and of a line of memory."""


class Block(NamedTuple):
    """Something that takes time, in seconds."""

    start: float
    stop: float
    kind: str
    """Its colour: a key of `kinds`."""
    name: str = ""
    """Stands in it, if it is wide enough."""
    told: str = ""
    """Is read on pointing, with how long it took."""


class Lane(NamedTuple):
    """What happens at one place."""

    label: str
    rows: Sequence[Sequence[Block]]
    memory: Sequence[tuple[float, float]] = ()
    """(seconds, bytes held from then on)."""
    end: str = ""
    """A word behind the last block."""


class Mark(NamedTuple):
    """A moment that is pointed at, in all lanes."""

    time: float
    text: str


def lanes(
    places: Sequence[Lane],
    kinds: Mapping[str, str],
    *,
    title: str,
    words: str,
    mark: Mark | None = None,
    width: float = 480,
    size: float = 13,
) -> str:
    """Return lanes under each other. `kinds`: name of a kind -> its colour, for the legend.

    Raises ConfigError for a block that ends before it begins, or of no kind, and if there is
    nothing to draw.
    """
    blocks = [b for lane in places for row in lane.rows for b in row]
    if not blocks:
        raise ConfigError(f"lanes: there is nothing to draw in '{title}'")
    for b in blocks:
        if not b.start <= b.stop < float("inf") or b.kind not in kinds:
            raise ConfigError(
                f"lanes: {b.kind} {b.name} from {b.start} to {b.stop}: blocks begin before they "
                f"end, and are one of {', '.join(kinds)}"
            )
    picture = Picture(width, title, words)
    picture.text(8, 1.6 * size, title, size=size + 1, bold=True)
    y = picture.legend(8, 3.4 * size, kinds, size) + size
    y += size if mark else 0
    draw = _Drawing(picture, places, kinds, size, y)
    bottom = draw.all(mark)
    return picture.svg(bottom)


class _Drawing:
    """Scales, and the picture that is drawn into."""

    def __init__(
        self,
        picture: Picture,
        places: Sequence[Lane],
        kinds: Mapping[str, str],
        size: float,
        top: float,
    ) -> None:
        self.picture, self.places, self.kinds, self.size, self.top = (
            picture, places, kinds, size, top,
        )  # fmt: skip
        self.left = 16 + LETTER * size * max(len(p.label) for p in places)
        self.behind = 10 + LETTER * size * max(len(p.end) for p in places)
        rows = [row for p in places for row in p.rows]
        times = [b.stop for row in rows for b in row] + [t for p in places for t, _ in p.memory]
        self.until = max(times) or 1.0
        self.scale = (picture.width - self.left - self.behind) / self.until
        self.most = max((held for p in places for _, held in p.memory), default=0)

    def x(self, time: float) -> float:
        return self.left + self.scale * time

    def height(self, place: Lane) -> float:
        rows = len(place.rows) * (ROW + SPACE)
        return rows + (MEMORY + SPACE if place.memory else 0)

    def all(self, mark: Mark | None) -> float:
        """Draw it; return where it ends."""
        y = self.top
        bottom = y + sum(self.height(p) + 10 for p in self.places)
        self.axis(y - 4, bottom)
        for place in self.places:
            self.place(place, y)
            y += self.height(place) + 10
        if mark:
            x = self.x(mark.time)
            self.picture.line([(x, self.top - 4), (x, bottom)], INK, dash="4 3")
            half = LETTER * self.size * len(mark.text) / 2
            x = min(x, self.picture.width - half - 4)
            self.picture.text(x, self.top - 8, mark.text, size=self.size, anchor="middle")
        return bottom + 1.7 * self.size

    def axis(self, top: float, bottom: float) -> None:
        """Draw a line and a number at each round time."""
        step = even_step(self.until, "seconds")
        for number in range(int(self.until / step + 1e-9) + 1):
            x = self.x(number * step)
            self.picture.line([(x, top), (x, bottom)], GRID)
            text = readable(number * step, "seconds")
            self.picture.text(x, bottom + self.size, text, size=self.size - 1, anchor="middle")

    def place(self, place: Lane, y: float) -> None:
        """Draw one lane."""
        self.picture.text(
            self.left - 8, y + ROW - 4, place.label, size=self.size, anchor="end"
        )  # fmt: skip
        if place.end:
            last = max((b.stop for row in place.rows for b in row), default=0.0)
            self.picture.text(
                self.x(last) + 5, y + ROW - 4, place.end, size=self.size, bold=True
            )  # fmt: skip
        for row in place.rows:
            for b in row:
                self.block(b, y)
            y += ROW + SPACE
        if place.memory:
            self.memory(place.memory, y)

    def block(self, b: Block, y: float) -> None:
        wide = self.scale * (b.stop - b.start)
        took = readable(b.stop - b.start, "seconds")
        told = f"{b.told or b.name or b.kind}: {took}"
        edge = PAPER if wide > 2 else ""
        self.picture.rect(self.x(b.start), y, wide, ROW, self.kinds[b.kind], edge=edge, told=told)
        if b.name and LETTER * (self.size - 2) * len(b.name) < wide:
            x, colour = self.x((b.start + b.stop) / 2), self.kinds[b.kind]
            fill = PAPER if colour in COLOURS else INK
            size = self.size - 2
            self.picture.text(x, y + ROW - 5, b.name, size=size, anchor="middle", fill=fill)

    def memory(self, points: Sequence[tuple[float, float]], y: float) -> None:
        """Draw what was held as stairs over a base line, and the most of it in bytes."""
        base, scale = y + MEMORY, (MEMORY - self.size) / (self.most or 1)
        stairs = [(self.x(points[0][0]), base - scale * points[0][1])]
        for time, held in points[1:]:
            stairs += [(self.x(time), stairs[-1][1]), (self.x(time), base - scale * held)]
        self.picture.area([*stairs, (stairs[-1][0], base), (stairs[0][0], base)], COLOURS[3], 0.18)
        self.picture.line(stairs, COLOURS[3], thick=1.5)
        time, most = max(points, key=lambda p: p[1])
        text = f"at most {readable(most, 'bytes')}"
        half = LETTER * (self.size - 1) * len(text) / 2
        x = min(max(self.x(time), self.left + half), self.picture.width - half - 4)
        size = self.size - 1
        self.picture.text(x, base - scale * most - 3, text, size=size, anchor="middle")
