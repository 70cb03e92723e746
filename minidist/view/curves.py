"""A curve against steps, and levels to compare it with: the loss of a run beside its baselines.

Drawn with `minidist.view.svg`, so that the report of a run needs no matplotlib; charts with log
axes are in `minidist.view.charts`.
"""

import math
from collections.abc import Mapping, Sequence

from minidist.errors import ConfigError
from minidist.view.svg import COLOURS, GRID, INK, LETTER, Picture
from minidist.view.units import even_step, readable

LEFT, TOP, HIGH = 44, 62, 230
SIZE = 13
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2")
FEW = 30
"""So many points still get a dot each."""


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    levels: Mapping[str, float],
    *,
    x: str,
    y: str,
    title: str,
    words: str,
    width: float = 480,
) -> str:
    """Return a chart. `series`: label -> points (x, y), in order; `levels`: label -> y.

    Raises ConfigError for a value that is not finite, for more series than can be told apart, and
    if there is nothing to draw.
    """
    points = [p for curve in series.values() for p in curve]
    values = [v for _, v in points] + list(levels.values())
    if not points or len(series) > len(COLOURS):
        raise ConfigError(f"curves: 1 to {len(COLOURS)} series with points, in '{title}'")
    if not all(map(math.isfinite, [*values, *(t for t, _ in points)])):
        raise ConfigError(f"curves: a value in '{title}' is not finite")
    names = {f"{label} {v:.3f}": v for label, v in levels.items()}
    right = width - 14 - LETTER * (SIZE - 1) * max(map(len, names), default=0)
    chart = _Chart(Picture(width, title, words), right, max(t for t, _ in points) or 1.0, values)
    chart.axes(x, y)
    chart.levels(names)
    for (_, curve), colour, dash in zip(series.items(), COLOURS, DASHES, strict=False):
        chart.curve(curve, colour, dash)
    picture = chart.picture
    picture.text(8, 1.6 * SIZE, title, size=SIZE + 1, bold=True)
    picture.legend(LEFT, 3.4 * SIZE, dict(zip(series, COLOURS, strict=False)), SIZE)
    return picture.svg(TOP + HIGH + 2.9 * SIZE)


class _Chart:
    """The scales of a chart, and the picture that it is drawn into."""

    def __init__(
        self, picture: Picture, right: float, until: float, values: Sequence[float]
    ) -> None:
        self.picture, self.right, self.until = picture, right, until
        margin = 0.06 * (max(values) - min(values)) or 0.5
        self.low, self.high = min(values) - margin, max(values) + margin

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (self.right - LEFT) / self.until
        return LEFT + across * x, TOP + HIGH * (self.high - y) / (self.high - self.low)

    def axes(self, x: str, y: str) -> None:
        """Draw a line and a number at each round value."""
        step = even_step(self.high - self.low)
        for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            value = number * step
            self.picture.line([self.at(0, value), self.at(self.until, value)], GRID)
            place = self.at(0, value)[1] + 4
            self.picture.text(LEFT - 6, place, readable(value), size=SIZE - 1, anchor="end")
        step = max(1.0, even_step(self.until))
        for number in range(int(self.until / step) + 1):
            across, down = self.at(number * step, self.low)
            text = readable(number * step)
            self.picture.text(across, down + SIZE + 2, text, size=SIZE - 1, anchor="middle")
        self.picture.text(8, TOP - 4, y, size=SIZE - 1)
        self.picture.text(self.right, TOP + HIGH + 2.4 * SIZE, x, size=SIZE - 1, anchor="end")

    def curve(self, curve: Sequence[tuple[float, float]], colour: str, dash: str) -> None:
        """Draw one series, and its points if they are few."""
        places = [self.at(*p) for p in curve]
        self.picture.line(places, colour, thick=2, dash=dash)
        for (across, down), (x, y) in zip(places, curve, strict=True) if len(curve) < FEW else ():
            self.picture.rect(across - 2, down - 2, 4, 4, colour, told=f"{x:g}: {y:.3f}")

    def levels(self, names: Mapping[str, float]) -> None:
        """Draw a dashed line across for each level; its name stands behind it, none on another."""
        high = sorted((self.at(0, value)[1], name) for name, value in names.items())
        for (y, name), below in zip(high, apart([y + 4 for y, _ in high], SIZE), strict=True):
            self.picture.line([(LEFT, y), (self.right, y)], INK, dash="3 4")
            self.picture.text(self.right + 5, below, name, size=SIZE - 1)


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Return ascending places, moved downwards as little as it takes to be `gap` apart."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    return moved
