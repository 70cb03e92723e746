"""SVG text from shapes: what `lanes`, `blocks` and `curves` draw with.

    picture = Picture(480, "What it shows", "The same in a sentence, for whoever does not see it.")
    picture.rect(10, 20, 100, 12, COLOURS[0], told="a tooltip")
    picture.text(10, 50, "words")
    svg = picture.svg(height=60)

Lengths are units of the picture, which scales as a whole. Colours stand in each element, so that
the picture is right as a file of its own, on white; and every colour is also a class (`fill-ink`,
`line-0`), by which a page in dark colours gives it another one: see `minidist.view.page`. Text
stays text, which can be searched and read aloud. The same shapes give the same bytes.
"""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

PAPER, INK, GRID, QUIET = "#ffffff", "#1f2328", "#d8dee4", "#d0d4d9"
COLOURS = ("#0072b2", "#b34700", "#00724f", "#8a3b79", "#5b5b5b")  # each 5:1 on white, or more
NAMES = {
    **{PAPER: "paper", INK: "ink", GRID: "grid", QUIET: "quiet"},
    **{colour: str(i) for i, colour in enumerate(COLOURS)},
}
"""Each colour as the end of a class."""

LETTER = 0.56
"""The width of a letter beside the size of the text, about: no font is measured here."""


class Picture:
    """Shapes in the order in which they are drawn, and what they say in words."""

    def __init__(self, width: float, title: str, words: str) -> None:
        self.width, self.title, self.words = width, title, words
        self.parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        edge: str = "",
        thick: float = 0.7,
        told: str = "",
    ) -> None:
        """Add a rectangle with its upper left corner at (x, y). `told` is read on pointing."""
        place = _attributes(x=x, y=y, width=width, height=height)
        look = _look(fill=fill, stroke=edge) + (_attributes(stroke_width=thick) if edge else "")
        end = f"><title>{escape(told)}</title></rect>" if told else "/>"
        self.parts.append(f"<rect{place}{look}{end}")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        anchor: str = "start",
        bold: bool = False,
        fill: str = INK,
    ) -> None:
        """Add a line of text. `anchor`: what of it is at x: its "start", "middle" or "end"."""
        weight = ' font-weight="bold"' if bold else ""
        at = _attributes(x=x, y=y, font_size=size)
        self.parts.append(
            f'<text{at} text-anchor="{anchor}"{weight}{_look(fill=fill)}>{escape(words)}</text>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], stroke: str = GRID, *, thick: float = 1,
        dash: str = "",
    ) -> None:  # fmt: skip
        """Add a line through points. `dash`: lengths of strokes and gaps, "4 3"."""
        self._path(points, _look(stroke=stroke) + _attributes(stroke_width=thick), dash)

    def area(self, points: Sequence[tuple[float, float]], fill: str, opacity: float = 1) -> None:
        """Fill what lies within a line through points."""
        self._path(points, _look(fill=fill) + _attributes(fill_opacity=opacity), closed="Z")

    def _path(
        self, points: Sequence[tuple[float, float]], look: str, dash: str = "", closed: str = ""
    ) -> None:
        way = " ".join(f"{_number(x)} {_number(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="M{way}{closed}"{look}{dashes}/>')

    def legend(self, x: float, y: float, kinds: Mapping[str, str], size: float = 13) -> float:
        """Add a square and a word for each kind: name -> colour; return the y below the last row.

        A new row begins where the picture would end.
        """
        left = x
        for name, colour in kinds.items():
            wide = size + 6 + LETTER * size * len(name) + size
            if left > x and left + wide - size > self.width:
                left, y = x, y + 1.5 * size
            self.rect(left, y - 0.85 * size, size - 1, size - 1, colour)
            self.text(left + size + 4, y, name, size=size)
            left += wide
        return y + size

    def svg(self, height: float) -> str:
        """Return the picture as SVG text, on white."""
        spoken = quoteattr(f"{self.title}. {self.words}")
        size = f"{_number(self.width)} {_number(height)}"
        back = f'<rect width="100%" height="100%"{_look(fill=PAPER)}/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            f'font-family="sans-serif" aria-label={spoken}>\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.words)}</desc>\n"
            + "\n".join([back, *self.parts])
            + "\n</svg>\n"
        )


def _look(fill: str = "", stroke: str = "") -> str:
    """Colours as attributes and as classes."""
    names = [
        f"{kind}-{NAMES[colour]}"
        for kind, colour in (("fill", fill), ("line", stroke))
        if colour in NAMES
    ]
    line = f' stroke="{stroke}"' if stroke else ""
    return f' fill="{fill or "none"}"{line}' + (f' class="{" ".join(names)}"' if names else "")


def _attributes(**values: float) -> str:
    return "".join(f' {name.replace("_", "-")}="{_number(v)}"' for name, v in values.items())


def _number(value: float) -> str:
    """Two digits behind the point at most, and no zeros at the end."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
