"""Two charts, lines and bars, as SVG text: the same input gives the same bytes.

    svg = lines(
        [Series("measured", sizes, times), Series("fitted", sizes, line, style="line")],
        x=Axis("message", "bytes"), y=Axis("time", "seconds"),
        title="One message", words="Flat at 1 us up to 1 KiB, then in proportion to the size.",
        marks=[Mark(knee, 2e-6, "knee: 1.0 KiB")],
    )

Every picture also says in words what is to be seen, for whoever does not see it. Series differ in
marker, dash or hatch as well as in colour. The background is white and opaque, so that a page in
dark colours does not swallow the text. Text stays text, which can be searched and read aloud.

matplotlib is asked for only when something is drawn: it costs half a second, and is an extra.
"""

import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from minidist.errors import ConfigError
from minidist.files import replace_file
from minidist.view.svg import COLOURS, GRID, INK
from minidist.view.units import even_step, readable, ticks

MARKERS, DASHES, HATCHES = (
    "os^Dv",
    ("-", "--", "-.", ":", (0, (5, 1))),
    ("", "//", "..", "xx", "\\"),
)
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "minidist",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
    **dict.fromkeys(("axes.titlecolor", "xtick.color", "ytick.color"), INK),
}


class Axis(NamedTuple):
    """What an axis shows: its label, its unit ("bytes", "seconds" or none), and if it is log."""

    label: str
    unit: str = ""
    log: bool = True


class Series(NamedTuple):
    """Points (x[i], y[i]) under one label. ``style``: "points", "line", or "both"."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "both"


class Mark(NamedTuple):
    """A place in the picture that is pointed at, with a text."""

    x: float
    y: float
    text: str


def lines(
    series: Sequence[Series],
    *,
    x: Axis,
    y: Axis,
    title: str,
    words: str,
    marks: Sequence[Mark] = (),
) -> str:
    """Return a chart of several series. ``words`` says in a sentence or two what is to be seen.

    A series of points and the line through it may have one label: they get one colour, and stand
    in the legend once. Raises ConfigError for a value that is not finite, or not above zero on a
    log axis, and if there is nothing to draw, or no matplotlib.
    """
    if not any(len(one.x) for one in series):
        raise ConfigError(f"chart: there is nothing to draw in '{title}'")
    for one in series:
        if len(one.x) != len(one.y):
            raise ConfigError(
                f"chart: {one.label} has {len(one.x)} values of x and {len(one.y)} of y"
            )
        _check(one.label, one.x, x)
        _check(one.label, one.y, y)
    for mark in marks:
        _check(mark.text, [mark.x], x)
        _check(mark.text, [mark.y], y)
    labels = list(dict.fromkeys(one.label for one in series))
    _check_number(labels)

    def draw(axes: Any) -> None:
        named = set()
        for one in series:
            _plot(axes, one, labels.index(one.label), "" if one.label in named else one.label)
            named.add(one.label)
        _scale(axes, "x", x, [v for one in series for v in one.x])
        _scale(axes, "y", y, [v for one in series for v in one.y])
        for mark in marks:
            _point_at(axes, mark)
        if len(labels) > 1:
            axes.legend(loc="best")

    return _svg(draw, title, words)


def bars(
    groups: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    x: str,
    y: Axis,
    title: str,
    words: str,
) -> str:
    """Return a bar chart: for each group one bar of each label of ``values``, its value above it.

    ``values[label][i]`` belongs to ``groups[i]``. Raises as `lines` does.
    """
    _check_number(list(values))
    if not groups:
        raise ConfigError(f"chart: there is nothing to draw in '{title}'")
    for label, heights in values.items():
        if len(heights) != len(groups):
            raise ConfigError(f"chart: {label} has {len(heights)} bars for {len(groups)} groups")
        _check(label, heights, y)

    def draw(axes: Any) -> None:
        width = 0.8 / len(values)
        for look, (label, heights) in enumerate(values.items()):
            places = [i + (look - (len(values) - 1) / 2) * width for i in range(len(groups))]
            colour, hatch = COLOURS[look], HATCHES[look]
            fill = {"facecolor": "white" if hatch else colour, "edgecolor": colour, "hatch": hatch}
            drawn = axes.bar(places, heights, width * 0.92, label=label, **fill)
            axes.bar_label(drawn, [readable(v, y.unit) for v in heights], padding=2, fontsize=8)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlabel(x)
        _scale(axes, "y", y, [v for heights in values.values() for v in heights])
        axes.xaxis.grid(False)
        axes.margins(y=0.15)
        if len(values) > 1:
            axes.legend(loc="best")

    return _svg(draw, title, words)


def write(path: Path, svg: str) -> None:
    """Put a picture into a file, whole or not at all. Raises ConfigError if that cannot be done."""
    try:
        replace_file(path, svg.encode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot write the picture {path}: {error.strerror}") from error


def _plot(axes: Any, one: Series, look: int, label: str) -> None:
    """Draw one series; without a label it stays out of the legend."""
    axes.plot(
        one.x,
        one.y,
        color=COLOURS[look],
        linestyle="" if one.style == "points" else DASHES[look],
        marker="" if one.style == "line" else MARKERS[look],
        markersize=5,
        label=label or None,
    )


def _point_at(axes: Any, mark: Mark) -> None:
    """Draw a ring around a place, and its text above to the left, or else below to the right.

    Lines that are marked rise to the right as a rule, so that side is free of them.
    """
    place = axes.transAxes.inverted().transform(axes.transData.transform((mark.x, mark.y)))
    right = place[0] < 0.35  # of the width; a text takes up to a third
    axes.plot([mark.x], [mark.y], marker="o", markersize=10, color=INK, fillstyle="none")
    axes.annotate(
        mark.text,
        (mark.x, mark.y),
        (14, -14) if right else (-14, 14),
        textcoords="offset points",
        ha="left" if right else "right",
        va="top" if right else "bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        arrowprops={"arrowstyle": "-", "color": INK, "shrinkB": 5},
    )


def _check(label: str, values: Sequence[float], axis: Axis) -> None:
    """Refuse what matplotlib would leave out in silence."""
    for value in values:
        if not math.isfinite(value) or (axis.log and value <= 0):
            where = "log axis" if axis.log else "axis"
            raise ConfigError(f"chart: {label} has {value} on the {where} '{axis.label}'")


def _check_number(labels: Sequence[str]) -> None:
    if not 0 < len(labels) <= len(COLOURS):
        raise ConfigError(f"chart: {len(labels)} labels; 1 to {len(COLOURS)} can be told apart")
    for label in labels:
        if label.startswith("_"):  # which matplotlib leaves out of its legend
            raise ConfigError(f"chart: a label does not begin with an underscore: {label!r}")


def _scale(axes: Any, side: str, axis: Axis, values: Sequence[float]) -> None:
    """Set the scale, the ticks and the label of one side, "x" or "y"."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

    of = {"x": axes.xaxis, "y": axes.yaxis}[side]
    of.set_label_text(axis.label)
    of.grid(True, color=GRID, linewidth=0.8)
    if axis.log:
        axes.set(**{f"{side}scale": "log"})
        of.set_minor_locator(NullLocator())
        of.set_major_locator(FixedLocator(ticks(min(values), max(values), axis.unit)))
    elif max(values) > 0:
        of.set_major_locator(MultipleLocator(even_step(max(values), axis.unit)))
    of.set_major_formatter(FuncFormatter(lambda value, _: readable(value, axis.unit)))


def _svg(draw: Callable[[Any], None], title: str, words: str) -> str:
    """Draw on one pair of axes; return SVG text that is the same on every run."""
    with _style(), io.StringIO() as file:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.2), facecolor="white")
        axes = figure.add_axes((0.14, 0.13, 0.83, 0.77))
        axes.set_title(title, loc="left", fontsize=11)
        draw(axes)
        # Neither date nor version: a picture is compared with the one that was committed.
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
        text = file.getvalue()
    spoken = escape(f"{title}. {words}", {'"': "&quot;"})
    text = text.replace("<svg ", f'<svg role="img" aria-label="{spoken}" ', 1)
    return text.replace("</title>", f"</title>\n <desc>{escape(words)}</desc>", 1)


@contextmanager
def _style() -> Iterator[None]:
    """Let matplotlib have our settings for a while, whatever the user's are."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(
            f"a picture needs matplotlib: {sys.executable} -m pip install matplotlib"
        ) from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield
