"""What the demos of the lessons share: how they end, and how they count.

if __name__ == "__main__":
    demos.play(main)
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from minidist.comm.detect import launched
from minidist.errors import MinidistError


def play(main: Callable[[], None]) -> None:
    """Run a demo. What cannot be done is told in a sentence, with exit status 2."""
    try:
        main()
        sys.stdout.flush()
    except MinidistError as error:
        if launched():
            raise  # one of many ranks: `world()` ends them all, with rank and traceback
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough: demo.py | head -2
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def counted(number: float, word: str) -> str:
    """Return '1 rank', '2 ranks', '2 processes'."""
    return f"{number} {word if number == 1 else word + ('es' if word.endswith('s') else 's')}"
