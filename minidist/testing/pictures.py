"""Are two SVG pictures the same picture? A committed figure is compared with a fresh one.

Byte for byte would be too strict: another version of matplotlib rounds a coordinate in another way,
and names its clip paths by a hash of it. "It could be drawn" would be too weak: a wrong number in
the data would pass. So both are read as what they are: the elements and their order, every text and
every colour must be equal; coordinates may differ by a tenth of a point; names only have to be used
alike.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

GEOMETRY = {
    *("d", "points", "transform", "viewBox", "x", "y", "x1", "y1", "x2", "y2"),
    *("cx", "cy", "r", "rx", "ry", "width", "height", "dx", "dy"),
}
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
REFERENCE = re.compile(r"#([\w.-]+)")


def same_picture(a: str, b: str, tolerance: float = 0.1) -> bool:
    """Return True if the SVG texts ``a`` and ``b`` show the same; else say where they differ.

    Raises AssertionError that names the first difference, and never returns False: so it can stand
    behind ``assert`` and also alone. ``tolerance`` is in units of the picture. Metadata (program,
    date) are not compared.
    """
    ours, theirs = list(_described(a)), list(_described(b))
    for (what, one), (_, other) in zip(ours, theirs, strict=False):
        assert _near(one, other, tolerance), f"pictures differ in {what}: {one!r} and {other!r}"
    assert len(ours) == len(theirs), f"pictures have {len(ours)} and {len(theirs)} parts"
    return True


def _described(svg: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is to be equal, in order: (what it is, (kind, value))."""
    root = ElementTree.fromstring(svg)
    names = [element.get("id") for element in root.iter() if element.get("id")]
    numbers = {name: f"#{i}" for i, name in enumerate(names)}

    def visit(element: ElementTree.Element, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        tag = element.tag.rpartition("}")[2]
        if tag == "metadata":
            return
        path = f"{path}/{tag}"
        yield path, ("element", tag)
        for key, value in sorted(element.attrib.items()):
            name = key.rpartition("}")[2]
            if name != "id":
                value = REFERENCE.sub(lambda m: numbers.get(m[1], m[0]), value)
                kind = "geometry" if name in GEOMETRY else name
                yield f"{path} {name}", (kind, " ".join(value.split()))
        yield f"{path} text", ("text", (element.text or "").strip())
        for child in element:
            yield from visit(child, path)
            yield f"{path} text", ("text", (child.tail or "").strip())

    return visit(root, "")


def _near(one: tuple[str, ...], other: tuple[str, ...], tolerance: float) -> bool:
    """Compare two values: numbers of the geometry with a tolerance, all else exactly."""
    if one == other:
        return True
    if one[0] != "geometry" or other[0] != "geometry":
        return False
    mine, yours = NUMBER.split(one[1]), NUMBER.split(other[1])  # words and numbers in turn
    return (
        len(mine) == len(yours)
        and [w.strip() for w in mine[::2]] == [w.strip() for w in yours[::2]]
        and all(
            abs(float(p) - float(q)) <= tolerance
            for p, q in zip(mine[1::2], yours[1::2], strict=True)
        )
    )
