"""Lanes, tables of blocks and curves: everything named in words, to scale, nothing on another."""

import re
from xml.etree import ElementTree

import pytest

from minidist.errors import ConfigError
from minidist.testing.mutants import mutate
from minidist.view import lanes as lanes_module
from minidist.view.blocks import Cell, Table, blocks
from minidist.view.curves import _Chart, apart, curves
from minidist.view.lanes import Block, Lane, Mark, lanes
from minidist.view.svg import COLOURS, INK, NAMES, PAPER, Picture

WORDS = 'Flat, then "steep" <as> told & so on.'
KINDS = {"forward": COLOURS[0], "waits": COLOURS[1]}


def two_ranks(**changes):
    rows = [[Block(0.0, 0.2, "forward", "0"), Block(0.2, 0.25, "waits")], []]
    places = [
        Lane("rank 0", rows, [(0.0, 1024), (0.1, 4096)], "250 ms"),
        Lane("rank 10", [[Block(0.1, 0.3, "forward", "a name that is too long " * 3, "unit 1")]]),
    ]
    return lanes(places, KINDS, title="A step", words=WORDS, **changes)


def one_table(**changes):
    cells = [[Cell("0", 0.5), Cell("01", 1.0, new=True)], [Cell("", 0.0), Cell("1", 0.5)]]
    given = {"rows": ["rank 0", "rank 1"], "columns": ["A", "B"], **changes}
    return blocks([Table("start", cells), Table("1", cells)], title="R", words=WORDS, **given)


def a_loss(**changes):
    series = {"training": [(0.0, 4.0), (5.0, 3.0), (10.0, 2.0)], "validation": [(10.0, 2.5)]}
    given = {"series": series, "levels": {"xz": 1.84, "zlib": 1.85}, **changes}
    return curves(**given, x="steps", y="nats", title="Loss", words=WORDS)


ALL = [two_ranks, one_table, a_loss]


def elements(svg, tag):
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}" + tag)]


def texts(svg):
    return [e.text for e in elements(svg, "text")]


@pytest.mark.parametrize("draw", ALL)
def test_the_same_bytes_each_time_and_all_of_it_in_words(draw):
    assert draw() == draw()
    root = ElementTree.fromstring(draw())
    assert root.get("role") == "img"
    assert WORDS in root.get("aria-label")
    assert [e.text for e in elements(draw(), "desc")] == [WORDS]


@pytest.mark.parametrize("draw", ALL)
def test_every_colour_is_also_a_class_for_dark_pages(draw):
    for element in ElementTree.fromstring(draw()).iter():
        for attribute, kind in (("fill", "fill"), ("stroke", "line")):
            colour = element.get(attribute)
            if colour in NAMES:
                assert f"{kind}-{NAMES[colour]}" in element.get("class").split()


@pytest.mark.parametrize("draw", ALL)
def test_nothing_lies_outside_of_the_picture(draw):
    root = ElementTree.fromstring(draw())
    width, height = map(float, root.get("viewBox").split()[2:])
    for e in elements(draw(), "rect")[1:]:
        assert 0 <= float(e.get("x")) <= float(e.get("x")) + float(e.get("width")) <= width
        assert 0 <= float(e.get("y")) <= float(e.get("y")) + float(e.get("height")) <= height
    for e in elements(draw(), "text"):
        long, x = 0.56 * float(e.get("font-size")) * len(e.text), float(e.get("x"))
        left = x - {"start": 0, "middle": long / 2, "end": long}[e.get("text-anchor")]
        assert -1 <= left < left + long <= width + 1, e.text
        assert 0 < float(e.get("y")) <= height


def check_scale(draw=two_ranks):
    """Widths of blocks are in the ratio of their seconds, and begin where the axis says."""
    told = {e.find("{*}title").text: e for e in elements(draw(), "rect") if len(e)}
    first, wait, second = (told[words] for words in ("0: 200 ms", "waits: 50 ms", "unit 1: 200 ms"))
    width = float(first.get("width"))
    assert float(second.get("width")) == pytest.approx(width, abs=0.02)
    assert float(wait.get("width")) == pytest.approx(width / 4, abs=0.02)
    assert float(wait.get("x")) == pytest.approx(float(first.get("x")) + width, abs=0.02)
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + width / 2, abs=0.02)


def test_lanes_are_to_scale_and_say_how_long_each_block_took():
    check_scale()


def test_lanes_that_are_not_to_scale_are_seen(monkeypatch):
    broken = mutate(lanes_module._Drawing, "return self.left + self.scale * time", "return time")
    monkeypatch.setattr(lanes_module, "_Drawing", broken)
    with pytest.raises(AssertionError):
        check_scale()


def test_a_name_stands_in_its_block_only_if_it_fits():
    said = texts(two_ranks(mark=Mark(0.2, "done")))
    assert "0" in said
    assert "done" in said
    assert "250 ms" in said
    assert "at most 4 KiB" in said
    assert not any("too long" in words for words in said)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([], "nothing to draw in 'A step'"),
        ([Lane("r", [[]])], "nothing to draw"),
        ([Lane("r", [[Block(2.0, 1.0, "forward")]])], "blocks begin before they end"),
        ([Lane("r", [[Block(0.0, float("nan"), "forward")]])], "begin before"),
        ([Lane("r", [[Block(0.0, 1.0, "sleeps")]])], "one of forward, waits"),
    ],
)
def test_lanes_that_cannot_be_drawn(places, told):
    with pytest.raises(ConfigError, match=told):
        lanes(places, KINDS, title="A step", words=WORDS)


def test_a_step_without_time_is_a_picture_as_well():
    drawn = lanes([Lane("r", [[Block(0.0, 0.0, "waits")]])], KINDS, title="A", words=WORDS)
    assert "nan" not in drawn


def test_a_cell_is_as_full_as_it_says():
    full = [e for e in elements(one_table(), "rect") if e.get("fill") == COLOURS[0]]
    cells = [e for e in full if float(e.get("height")) > 4]
    bars = [e for e in full if float(e.get("height")) == 4]
    assert (len(cells), len(bars)) == (2, 4)
    assert float(bars[0].get("width")) == pytest.approx(float(cells[0].get("width")) / 2)
    new = [e for e in elements(one_table(), "rect") if e.get("stroke") == COLOURS[1]]
    assert len(new) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rows": []}, "nothing to draw"),
        ({"rows": ["rank 0"]}, "'start' must have 1 rows of 2 cells"),
        ({"columns": ["A", "B", "C"]}, "2 rows of 3 cells"),
    ],
)
def test_tables_that_do_not_fit_their_labels(changes, told):
    with pytest.raises(ConfigError, match=told):
        one_table(**changes)
    with pytest.raises(ConfigError, match="a share in 't' is outside"):
        blocks([Table("t", [[Cell("", 1.5)]])], ["r"], ["c"], title="R", words=WORDS)


def points(svg, colour):
    """The ends of the pieces of a curve."""
    (way,) = (
        e.get("d")
        for e in elements(svg, "path")
        if e.get("stroke") == colour and e.get("stroke-width") == "2"
    )
    numbers = [float(n) for n in re.findall(r"[\d.]+", way)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def check_curve(draw=a_loss):
    """Equal steps in both directions are equal lengths, upwards is more."""
    (x0, y0), (x1, y1), (x2, y2) = points(draw(), COLOURS[0])
    assert 50 < x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert 50 < y1 - y0 == pytest.approx(y2 - y1, abs=0.02)


def test_a_curve_is_to_scale():
    check_curve()


def test_a_curve_upside_down_is_seen(monkeypatch):
    broken = mutate(_Chart, "HIGH * (self.high - y)", "HIGH * (y - self.low)")
    monkeypatch.setattr("minidist.view.curves._Chart", broken)
    with pytest.raises(AssertionError):
        check_curve()


def test_names_of_levels_stand_apart():
    names = [e for e in elements(a_loss(), "text") if re.match("xz|zlib", e.text)]
    high, low = sorted(float(e.get("y")) for e in names)
    assert low - high >= 13
    assert [e.text for e in names] == ["zlib 1.850", "xz 1.840"]
    assert apart([1.0, 2.0, 30.0], 10) == [1.0, 11.0, 30.0]
    assert apart([], 10) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"series": {}}, "1 to 5 series with points, in 'Loss'"),
        ({"series": {"a": []}}, "series with points"),
        ({"series": {str(n): [(0.0, 1.0)] for n in range(6)}}, "1 to 5 series"),
        ({"series": {"a": [(0.0, float("nan"))]}}, "a value in 'Loss' is not finite"),
        ({"levels": {"a": float("inf")}}, "not finite"),
    ],
)
def test_curves_that_cannot_be_drawn(changes, told):
    with pytest.raises(ConfigError, match=told):
        a_loss(**changes)


def test_a_curve_of_one_level_value_has_a_scale():
    assert "nan" not in a_loss(series={"a": [(0.0, 2.0)]}, levels={})


def test_a_legend_breaks_where_the_picture_ends():
    picture = Picture(200, "t", "w")
    end = picture.legend(8, 20, {f"kind number {n}": INK for n in range(4)})
    assert end > 20 + 3 * 13
    squares = elements(picture.svg(200), "rect")[1:]
    assert len({e.get("y") for e in squares}) == 4
    assert {e.get("fill") for e in squares} == {INK}
    assert elements(picture.svg(200), "rect")[0].get("fill") == PAPER
