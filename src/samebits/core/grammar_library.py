"""The library that compiles grammars, by name, version and the bounds we give it: what decides a grammar's masks."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

NAME = "llguidance"
BOUNDS_VERSION = 3  # counts the changes to grammar/work.py, grammar/multiples.py and the limits in grammar/worker.py


@cache
def grammar_library() -> str | None:
    """Return for example "llguidance 1.9.1, bounds 3", or None if the library is not installed."""
    try:
        return f"{NAME} {version(NAME)}, bounds {BOUNDS_VERSION}"
    except PackageNotFoundError:
        return None
