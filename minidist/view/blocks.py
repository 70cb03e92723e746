"""Tables of blocks: who holds what, as rows of cells that fill up.

    start          a0   b0   c0        one table for each step; a row for each rank and a
                   a1   b1   c1        column for each chunk; a cell says whose values are in
                   a2   b2   c2        it, and is the darker the more of them there are

`steps` draws what a collective has sent: see `minidist.collectives.history`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from minidist.errors import ConfigError
from minidist.view.svg import COLOURS, INK, LETTER, PAPER, QUIET, Picture

CELL, SPACE, SIZE = 24, 12, 12


class Cell(NamedTuple):
    """One place in a table."""

    text: str
    share: float
    """How full it is, 0 to 1: its shade."""
    new: bool = False
    """It has just come, and gets a thick edge."""


class Table(NamedTuple):
    """Cells under a heading."""

    heading: str
    rows: Sequence[Sequence[Cell]]


def blocks(
    tables: Sequence[Table],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    words: str,
    width: float = 680,
) -> str:
    """Return tables side by side, in as many lines as it takes. All have the same labels.

    Raises ConfigError if a table has other rows and columns than there are labels, or a share is
    outside 0 to 1, and if there is nothing to draw.
    """
    if not tables or not rows or not columns:
        raise ConfigError(f"blocks: there is nothing to draw in '{title}'")
    for table in tables:
        if [len(row) for row in table.rows] != [len(columns)] * len(rows):
            raise ConfigError(
                f"blocks: '{table.heading}' must have {len(rows)} rows of {len(columns)} cells"
            )
        if not all(0 <= cell.share <= 1 for row in table.rows for cell in row):
            raise ConfigError(f"blocks: a share in '{table.heading}' is outside 0 to 1")
    picture = Picture(width, title, words)
    picture.text(8, 1.6 * SIZE, title, size=SIZE + 2, bold=True)
    texts = [*columns, *(cell.text for t in tables for row in t.rows for cell in row)]
    letters = max(map(len, texts))
    cell = max(CELL, LETTER * SIZE * letters + 8)
    left = 14 + LETTER * SIZE * max(map(len, rows))
    wide = left + cell * len(columns) + SPACE
    high = 2 * 1.6 * SIZE + CELL * len(rows) + SPACE
    across = max(1, int((width - 8) / wide))
    for number, table in enumerate(tables):
        down, right = divmod(number, across)
        _draw(picture, table, rows, columns, (8 + wide * right, 34 + high * down), left, cell)
    return picture.svg(34 + high * (1 + (len(tables) - 1) // across))


def _draw(
    picture: Picture,
    table: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    corner: tuple[float, float],
    left: float,
    width: float,
) -> None:
    """Draw one table with its upper left corner at `corner`."""
    x, y = corner[0] + left, corner[1] + 2 * 1.6 * SIZE
    picture.text(x, corner[1] + SIZE, table.heading, size=SIZE, bold=True)
    for number, column in enumerate(columns):
        picture.text(x + width * (number + 0.5), y - 5, column, size=SIZE, anchor="middle")
    for number, (label, cells) in enumerate(zip(rows, table.rows, strict=True)):
        top = y + CELL * number
        picture.text(x - 6, top + 16, label, size=SIZE, anchor="end")
        for place, cell in enumerate(cells):
            _cell(picture, cell, x + width * place, top, width)


def _cell(picture: Picture, cell: Cell, x: float, y: float, width: float) -> None:
    full = cell.share == 1
    picture.rect(x + 1, y + 1, width - 2, CELL - 2, COLOURS[0] if full else PAPER, edge=QUIET)
    if 0 < cell.share < 1:
        inner = (width - 2) * cell.share
        bottom = y + CELL - 5
        picture.rect(x + 1, bottom, inner, 4, COLOURS[0])
    if cell.new:
        picture.rect(x + 1.5, y + 1.5, width - 3, CELL - 3, "", edge=COLOURS[1], thick=2.5)
    fill = PAPER if full else INK
    if cell.text:
        picture.text(x + width / 2, y + 15, cell.text, size=SIZE, anchor="middle", fill=fill)
