"""The page stands alone, says itself in words, and is well formed."""

import re
from html.parser import HTMLParser

import pytest

from minidist.errors import ConfigError
from minidist.view.page import DARK, STYLE, Section, figure, page, quote, table
from minidist.view.svg import INK, NAMES, PAPER, Picture

VOID = {"meta", "br", "path", "rect"}


class Reader(HTMLParser):
    """Checks that elements nest, and collects them."""

    def __init__(self):
        super().__init__()
        self.open, self.found, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style",):
            self.texts.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def example():
    picture = Picture(100, "Title <1>", 'Says "it".')
    picture.rect(1, 2, 3, 4, INK, told="a & b")
    body = figure(picture.svg(50)) + table(["", "n", "x"], [("a<b", "1,024", "exactly")], 'of "r"')
    return page(
        "Run <r>", "A & B", [Section("Loss", "Lower.", body), Section("The end", "", quote("<x>"))]
    )


def test_the_page_nests_and_needs_nothing_from_elsewhere():
    text, reader = example(), read(example())
    assert text == example()
    assert {tag for tag, _ in reader.found}.isdisjoint(
        {"script", "link", "img", "iframe", "object"}
    )
    links = [attributes["href"] for tag, attributes in reader.found if tag == "a"]
    names = [attributes["id"] for tag, attributes in reader.found if tag == "h2"]
    assert links == [f"#{name}" for name in names] == ["#loss", "#the-end"]
    assert "url(" not in text
    assert "@import" not in text
    for words in ("Run <r>", "A & B", "a<b", "<x>", 'of "r"', 'Says "it".'):
        assert words in reader.texts, words


def test_it_is_readable_aloud_and_by_keyboard():
    reader = read(example())
    tags = [tag for tag, _ in reader.found]
    assert dict(reader.found[0][1]) == {"lang": "en"}
    assert [t for t in tags if t in ("h1", "h2", "h3")] == ["h1", "h2", "h2"]
    scopes = [a["scope"] for tag, a in reader.found if tag == "th"]
    assert scopes == ["col", "col", "col", "row"]
    (region,) = [a for _, a in reader.found if a.get("role") == "region"]
    assert (region["tabindex"], region["aria-label"]) == ("0", 'of "r"')
    (picture,) = [a for tag, a in reader.found if tag == "svg"]
    assert picture["aria-label"] == 'Title <1>. Says "it".'
    assert ("td", {"class": "words"}) in reader.found
    assert ("td", {}) in reader.found


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    """WCAG 2.1: 4.5 is asked for."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_told_from_the_paper_in_light_and_dark():
    lines = {colour for colour, name in NAMES.items() if name.isdigit() or name == "ink"}
    for colour in lines:
        assert contrast(colour, PAPER) >= 4.5, colour
        assert contrast(DARK[colour], DARK[PAPER]) >= 4.5, colour
    quiet = re.search(r"--quiet: (#\w+)", STYLE)[1]
    assert contrast(quiet, PAPER) >= 4.5
    assert DARK.keys() == NAMES.keys()
    for name in NAMES.values():
        assert f".fill-{name} {{" in example()


def test_two_sections_with_one_heading_could_not_both_be_linked():
    with pytest.raises(ConfigError, match="'R' have the same heading"):
        page("R", "", [Section("A b", "", ""), Section("A  B", "", "")])
