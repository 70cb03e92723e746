"""What has been measured on this machine, and the file that keeps it.

    {"links": {"node": {"latency": 1.1e-06, "bandwidth": 5.2e+09}, ...},
     "add": 2.1e-10, "about": {"date": "...", "host": "...", ...}}

One file per host, in `$MINIDIST_CACHE`, else `$XDG_CACHE_HOME/minidist`, else `~/.cache/minidist`:
home folders are shared between the nodes of a cluster, and nodes differ.
"""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from minidist.cache import cache_folder
from minidist.comm import Link
from minidist.errors import ConfigError, DataError
from minidist.files import replace_file
from minidist.network.levels import LEVELS


@dataclass(frozen=True)
class Measured:
    """Links by level (`LEVELS`), and ``add``: seconds to add one byte of float32 to another.

    ``about`` says when, where and with which library.
    """

    links: Mapping[str, Link]
    add: float
    about: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, link in self.links.items():
            numbers = link.latency, link.bandwidth
            fine = all(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers)
            if name not in LEVELS or not fine or link.latency < 0 or link.bandwidth <= 0:
                raise ConfigError(f"{name}: {link} is no measured link of {', '.join(LEVELS)}")
        if not isinstance(self.about, Mapping):
            raise ConfigError(f"{self.about!r} does not say about what")
        if not (isinstance(self.add, (int, float)) and math.isfinite(self.add) and self.add >= 0):
            raise ConfigError(f"adding takes {self.add!r} s a byte; must be 0 or more")

    def link(self, level: str) -> Link:
        """Return the link of a level, or that of `DEFAULT` if it has not been measured."""
        return self.links.get(level) or DEFAULT.links[level]


DEFAULT = Measured(
    {
        "process": Link(30e-6, 5e9),  # from one greenlet to the next, and two copies
        "node": Link(10e-6, 5e9),  # shared memory of one machine, and Python around it
        "network": Link(30e-6, 1.25e9),  # 10 Gbit/s Ethernet
    },
    add=1e-10,
    about={"source": "round figures, not measured: run minidist measure-links"},
)


def cache_file() -> Path:
    """Return the file of this host."""
    return cache_folder() / f"links-{platform.node() or 'unnamed'}.json"


def save(measured: Measured) -> Path:
    """Keep this for `load`, in place of what was there; return the file. One rank calls it.

    Raises ConfigError if the folder cannot be written; then what was there is still there.
    """
    links = {name: {"latency": v.latency, "bandwidth": v.bandwidth} for name, v in
             measured.links.items()}  # fmt: skip
    text = json.dumps({**asdict(measured), "links": links}, indent=1)
    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot keep the links in {path}: {error.strerror}; set MINIDIST_CACHE to a folder "
            "that can be written"
        ) from error
    return path


def load() -> Measured | None:
    """Return what has been measured on this host, or None if nothing has.

    Raises DataError if the file is there and cannot be understood.
    """
    try:
        path = cache_file()
    except ConfigError:
        return None  # nowhere to keep anything
    try:
        found = json.loads(path.read_text("utf-8"))
        links = {name: Link(v["latency"], v["bandwidth"]) for name, v in found["links"].items()}
        return Measured(links, found["add"], found["about"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"cannot read the links in {path}: {error.strerror}; set MINIDIST_CACHE to a folder "
            "that can be read and written"
        ) from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(
            f"{path} does not hold measured links ({error!r}): run minidist measure-links, which "
            "writes it anew, or delete it"
        ) from error
