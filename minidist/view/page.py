"""One HTML page that needs nothing else: no network, no script; it can be sent by mail.

    text = page("Run r", "What it is.", [Section("Loss", "What is to be seen.", figure(svg))])

Works at a width of 360 pixels, with a keyboard, in light and dark colours (the system's choice),
and read aloud: headings are in order, tables have headings of rows and columns, and each picture is
told in words.
"""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from minidist.errors import ConfigError
from minidist.view.svg import COLOURS, GRID, INK, NAMES, PAPER, QUIET

DARK = {
    PAPER: "#161b22",
    INK: "#e6edf3",
    GRID: "#30363d",
    QUIET: "#484f58",
    **dict(zip(COLOURS, ("#58a6ff", "#f0883e", "#3fb98a", "#d38bc4", "#a0a7ae"), strict=True)),
}
"""What each colour of a picture is on a dark page."""

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --quiet: #59636e;
  --line: #d8dee4; --link: #0a58ca }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 46rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word }
h1 { font-size: 1.5rem; margin: .5rem 0 } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem }
a { color: var(--link) }
a:focus-visible, .wide:focus-visible, summary:focus-visible { outline: 3px solid var(--link) }
svg { width: 100%; max-width: 42rem; height: auto; display: block }
figure { margin: 1rem 0 } figcaption, .lead { color: var(--quiet) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem }
caption { text-align: left; color: var(--quiet); padding-bottom: .25rem }
th, td { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top }
th:first-child, .words { text-align: left } th { font-weight: 600 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line);
  padding-left: .75rem }
@media (max-width: 30rem) { table { font-size: .8rem } th, td { padding-right: .5rem } }
"""


class Section(NamedTuple):
    """A part of the page under a heading."""

    heading: str
    words: str
    """What is to be seen, in sentences."""
    body: str
    """HTML, by `figure`, `table` and `quote`."""


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the page as text. Raises ConfigError if two sections have one heading."""
    names = [_name(section.heading) for section in sections]
    if len(set(names)) < len(names):
        raise ConfigError(f"page: two sections of '{title}' have the same heading")
    links = "".join(
        f'<li><a href="#{name}">{escape(section.heading)}</a></li>'
        for name, section in zip(names, sections, strict=True)
    )
    parts = [
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.heading)}</h2>\n'
        f"<p>{escape(section.words)}</p>\n{section.body}\n</section>"
        for name, section in zip(names, sections, strict=True)
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{_dark()}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>\n'
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def figure(svg: str) -> str:
    """Return a picture of `minidist.view` as HTML, with its words below it."""
    words = svg.partition("<desc>")[2].partition("</desc>")[0]
    return f"<figure>\n{svg}<figcaption>{words}</figcaption>\n</figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a table as HTML: `rows` of texts, the first of each is its heading.

    Numbers stand at the right, a column of words at the left. It scrolls by itself, also with the
    keyboard, where it is too wide.
    """
    words = [any(c.isalpha() for row in rows for c in row[i]) for i in range(len(head))]
    heads = "".join(
        f'<th scope="col"{" class=words" if is_words else ""}>{escape(text)}</th>'
        for text, is_words in zip(head, words, strict=True)
    )
    lines = [f"<tr>{heads}</tr>"]
    for first, *rest in rows:
        cells = "".join(
            f'<td class="words">{escape(text)}</td>' if is_words else f"<td>{escape(text)}</td>"
            for text, is_words in zip(rest, words[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label={quoteattr(caption)}>\n'
        f"<table>\n<caption>{escape(caption)}</caption>\n{body}\n</table>\n</div>"
    )


def quote(text: str) -> str:
    """Return a text as HTML with its lines as they are."""
    return f"<pre>{escape(text)}</pre>"


def _name(heading: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in heading.lower()).split())


def _dark() -> str:
    """The rules that give a picture and the page their dark colours."""
    of = {NAMES[colour]: dark for colour, dark in DARK.items()}
    rules = [
        f".fill-{name} {{ fill: {c} }} .line-{name} {{ stroke: {c} }}" for name, c in of.items()
    ]
    return (
        "@media (prefers-color-scheme: dark) {\n"
        f":root {{ --paper: {of['paper']}; --ink: {of['ink']}; --quiet: #9aa4af; "
        f"--line: {of['grid']}; --link: #79b8ff }}\n" + "\n".join(rules) + "\n}\n"
    )
