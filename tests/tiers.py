"""Which cases run always, and which only with `--all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def fast_and_slow(cases: Iterable[Any], fast: int, step: int = 0) -> list[Any]:
    """Return all cases for `parametrize`: the first few run always, the others are slow.

    With ``step``, instead of the first the cases number ``fast``, ``fast`` + ``step``, ...
    """
    marked = []
    for i, case in enumerate(cases):
        always = i % step == fast % step if step else i < fast
        values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
        marked.append(pytest.param(*values, marks=[] if always else pytest.mark.slow))
    return marked
