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

    ``target`` is a function, a class or a collective. The copy sees the globals of its module,
    except for those given in ``names``: that is how a mutant of one function is put under another
    one that calls it.
    """
    original = inspect.unwrap(target)
    source = textwrap.dedent(inspect.getsource(original))
    if source.count(old) != 1:
        raise MutantError(f"{original.__name__} has {old!r} {source.count(old)} times, not once")
    scope = {**vars(sys.modules[original.__module__]), **names}
    code = compile(source.replace(old, new), f"<mutant of {original.__name__}>", "exec")
    exec(code, scope)  # the text is our own source with one edit
    return scope[original.__name__]
