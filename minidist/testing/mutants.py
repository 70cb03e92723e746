"""Mutants: wrong versions of a real function, to show that a test can fail.

A checker that was never seen to fail is not a checker. So beside each property stands a mutant, one
changed line of the real function, and the property must reject it:

    broken = mutate(ring.all_gather, "piece(r - s)", "piece(r)")
    with pytest.raises(AssertionError):
        check_all_gather(broken)

The change is made on the source text and must occur exactly once, so a mutant that no longer
applies after an edit is an error and not a silent pass.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any


class MutantError(Exception):
    """The text to change is not there exactly once: the mutant must be written anew."""


def mutate(target: Callable[..., Any], old: str, new: str, **names: Any) -> Any:
    """Return a copy of ``target``, in the text of which ``old`` has become ``new``.

    ``target`` is a function, a class or a collective. ``names``: see `rebind`.
    """
    source = source_of(target)
    if source.count(old) != 1:
        name = inspect.unwrap(target).__name__
        raise MutantError(f"{name} has {old!r} {source.count(old)} times, not once")
    return _compiled(target, source.replace(old, new), names)


def rebind(target: Callable[..., Any], **names: Any) -> Any:
    """Return a copy of ``target`` that sees other objects under the global ``names``.

    That is how a mutant of one function is put under another one that calls it.
    """
    return _compiled(target, source_of(target), names)


def source_of(target: Callable[..., Any]) -> str:
    """Return the source text of a function, a class or a collective, not indented."""
    return textwrap.dedent(inspect.getsource(inspect.unwrap(target)))


def _compiled(target: Callable[..., Any], source: str, names: dict[str, Any]) -> Any:
    original = inspect.unwrap(target)
    scope = {**vars(sys.modules[original.__module__]), **names}
    exec(compile(source, f"<mutant of {original.__name__}>", "exec"), scope)
    return scope[original.__name__]
