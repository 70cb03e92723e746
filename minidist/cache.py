"""Where minidist keeps what it would rather not find out twice: measurements, compiled kernels.

`$MINIDIST_CACHE`, else `$XDG_CACHE_HOME/minidist`, else `~/.cache/minidist`. Home folders are
shared between the nodes of a cluster, so what differs from node to node carries the host's name or
a hash of what it was made from.
"""

import os
from pathlib import Path

from minidist.errors import ConfigError


def cache_folder() -> Path:
    """Return where minidist keeps what it has found out about this machine.

    Raises ConfigError if the user has no home, as in some containers, and nothing else is set.
    """
    if chosen := os.environ.get("MINIDIST_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minidist"
    except RuntimeError as error:
        raise ConfigError(f"{error} Set MINIDIST_CACHE to a folder that can be written") from error
