"""Charts: the same bytes every time, everything named in words, nothing drawn that is not there."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from minidist.errors import ConfigError
from minidist.testing.pictures import same_picture
from minidist.view import charts
from minidist.view.charts import Axis, Mark, Series

SIZE, TIME = Axis("message", "bytes"), Axis("time", "seconds")
SIZES = [8.0, 1024.0, 2.0**20]
WORDS = 'Flat, then "linear" <as> told & so on.'


def picture(times=(1e-6, 2e-6, 1e-3), **changes):
    given = {"x": SIZE, "y": TIME, "title": "One message", "words": WORDS, **changes}
    series = [
        Series("node", SIZES, times, "points"),
        Series("node", SIZES, times, "line"),
        Series("network", SIZES, [9 * t for t in times]),
    ]
    return charts.lines(series, marks=[Mark(1024, 2e-6, "knee: 1 KiB")], **given)


def table(values=((1e6, 2e6), (1e6, 1.5e6))):
    values = dict(zip(("server", "ring"), values, strict=True))
    height = Axis("sent", "bytes", log=False)
    return charts.bars(["2", "4"], values, x="ranks", y=height, title="Bytes", words=WORDS)


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text]


@pytest.mark.parametrize("draw", [picture, table])
def test_same_input_same_bytes(draw):
    assert draw() == draw()


def test_the_bytes_do_not_depend_on_the_users_settings_or_on_the_day(monkeypatch):
    import matplotlib

    before = picture()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.grid": True}):
        assert picture() == before
        assert matplotlib.rcParams["font.size"] == 20, "and the user's come back"


@pytest.mark.parametrize("draw", [picture, table])
def test_a_picture_says_itself_in_words(draw):
    root = ElementTree.fromstring(draw())
    assert root.get("role") == "img"
    assert WORDS in root.get("aria-label")
    assert [e.text for e in root.iter() if e.tag.endswith("}desc")] == [WORDS]
    assert root[0].tag.endswith("}title")


def test_text_is_text_and_in_units():
    found = texts(picture())
    for wanted in ("One message", "message", "time", "node", "network", "knee: 1 KiB"):
        assert found.count(wanted) >= 1, wanted
    assert {"32 B", "1 KiB", "32 KiB", "1 MiB", "1 µs", "10 µs", "1 ms"} <= set(found)
    assert found.count("node") == 1, "points and their line are one entry of the legend"
    assert {"977 KiB", "1.91 MiB", "1.43 MiB", "512 KiB"} <= set(texts(table()))


def test_series_differ_in_more_than_colour():
    svg = picture()
    assert "stroke-dasharray" in svg
    markers = re.findall(r'<path id="m\w+" d="([^"]+)" style="stroke: #(?:0072b2|b34700)', svg)
    assert len(set(markers)) == 2
    assert "<pattern" in table()


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_colour_is_readable_on_the_white_that_is_painted_behind():
    for colour in (charts.INK, *charts.COLOURS):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5, colour
    assert 1.05 / (luminance("#cc79a7") + 0.05) < 4.5, "the check rejects a pale one"
    first = next(e for e in ElementTree.fromstring(picture()).iter() if e.tag.endswith("}path"))
    assert first.get("style") == "fill: #ffffff"


def test_another_value_is_another_picture():
    assert same_picture(picture(), picture())
    for other in (picture((1e-6, 2.2e-6, 1e-3)), picture(title="Two messages"), table()):
        with pytest.raises(AssertionError, match="pictures"):
            same_picture(picture(), other)
    with pytest.raises(AssertionError, match="pictures"):
        same_picture(table(), table(((1e6, 2e6), (1e6, 1.6e6))))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: picture((0.0, 1.0, 2.0)), "node has 0.0 on the log axis 'time'"),
        (lambda: picture((1.0, float("nan"), 2.0)), "has nan"),
        (lambda: charts.lines([], x=SIZE, y=TIME, title="", words=""), "nothing to draw"),
        (
            lambda: charts.lines([Series("a", [], [])], x=SIZE, y=TIME, title="T", words=""),
            "in 'T'",
        ),
        (lambda: charts.bars([], {"a": []}, x="", y=TIME, title="T", words=""), "nothing to draw"),
        (
            lambda: charts.lines([Series("_a", [1], [1])], x=SIZE, y=TIME, title="", words=""),
            "underscore: '_a'",
        ),
        (
            lambda: charts.lines(
                [Series("a", [1], [1])],
                x=SIZE,
                y=TIME,
                title="",
                words="",
                marks=[charts.Mark(float("nan"), 1, "here")],
            ),
            "here has nan",
        ),
        (lambda: table(((1.0,), (1.0, 2.0))), "server has 1 bars for 2 groups"),
        (
            lambda: charts.lines(
                [Series(str(i), [1], [1]) for i in range(6)], x=SIZE, y=TIME, title="", words=""
            ),
            "6 labels; 1 to 5",
        ),
        (
            lambda: charts.lines([Series("a", [1, 2], [1])], x=SIZE, y=TIME, title="", words=""),
            "a has 2 values of x and 1 of y",
        ),
    ],
)
def test_refusals(draw, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        draw()


def test_without_matplotlib_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        picture()


def test_matplotlib_is_not_loaded_before_something_is_drawn():
    ask = "import sys, minidist.view.charts; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", ask]).returncode == 0


def test_writing_is_whole_or_not_at_all(tmp_path):
    charts.write(tmp_path / "a.svg", picture())
    assert (tmp_path / "a.svg").read_text("utf-8") == picture()
    with pytest.raises(ConfigError, match=r"cannot write the picture .*No such file"):
        charts.write(tmp_path / "none" / "a.svg", picture())
    assert [p.name for p in tmp_path.iterdir()] == ["a.svg"]
