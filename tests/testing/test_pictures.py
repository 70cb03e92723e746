"""Two pictures are the same if they show the same, not if they have the same bytes."""

import pytest

from minidist.testing.pictures import same_picture

SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 viewBox="0 0 100 50" aria-label="a line"><title>Line</title>
 <metadata><date>2020</date></metadata>
 <defs><clipPath id="p1f"><path d="M 0 0 L 9 9 z"/></clipPath></defs>
 <g clip-path="url(#p1f)"><path id="m77" d="M 1 2
L 3.5 4" style="stroke: #0072b2"/><use xlink:href="#m77" x="7" y="8"/></g>
 <text x="5" y="6">10 us</text></svg>"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("L 3.5 4", "L 3.55 4.0"),  # rounded in another way
        ("M 1 2\nL", "M 1 2 L"),
        ("2020", "2021"),
        ('x="5"', 'x="5.000001"'),
    ],
)
def test_what_does_not_matter(old, new):
    assert SVG.count(old) == 1
    assert same_picture(SVG, SVG.replace(old, new))


def test_names_only_have_to_be_used_alike():
    assert same_picture(SVG, SVG.replace("p1f", "p2e").replace("m77", "m78"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("L 3.5 4", "L 3.5 4.2"),  # another value
        ("L 3.5 4", "L 3.5 4 5"),
        ("L 3.5 4", "M 3.5 4"),
        ("#0072b2", "#0072b3"),
        ("10 us", "11 us"),
        ("a line", "two lines"),
        ("<title>Line</title>", ""),
        ('x="7"', 'x="17"'),
        ("#m77", "#p1f"),  # another marker
        ("</svg>", "<text>more</text></svg>"),
        ('viewBox="0 0 100 50" ', ""),
    ],
)
def test_what_matters(old, new):
    assert SVG.count(old) == 1
    for pair in ((SVG, SVG.replace(old, new)), (SVG.replace(old, new), SVG)):
        with pytest.raises(AssertionError, match="pictures"):
            same_picture(*pair)
