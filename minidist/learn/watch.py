"""`minidist check NN --watch`: the check again after each save.

It looks at the time and size of the exercise's files twice a second: that works on network file
systems too, where nobody is told of a change. Each check is a process of its own, so it sees the
file afresh and may hang or die as it likes. Ctrl-C ends it.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PAUSE = 0.5
"""Seconds between two looks."""


def stamp(paths: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Return time and size of each file; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)  # an editor may be about to put it back
    return found


def watch(paths: Sequence[Path], words: Sequence[str]) -> int:
    """Run ``minidist WORDS`` now and after each change of a file, until it succeeds or Ctrl-C."""
    while True:
        before = stamp(paths)
        status = subprocess.run([sys.executable, "-m", "minidist", *words]).returncode
        if status == 0:
            return 0
        print(f"\nwaiting for {paths[0]} to be saved; Ctrl-C ends it", flush=True)
        while stamp(paths) == before:
            time.sleep(PAUSE)
        print("\n" + "-" * 72 + "\n", flush=True)
