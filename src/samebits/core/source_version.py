"""The version of a source tree that runs without being installed. A quick start: no TOML parser is imported."""

from __future__ import annotations

import os

PROJECT = os.path.join(os.path.dirname(__file__), "..", "..", "..", "pyproject.toml")


def source_version(path: str = PROJECT) -> str:
    """Return the fallback version that pyproject.toml states, or "0+unknown" for a tree without that file."""
    try:
        with open(path, encoding="utf-8") as file:
            stated = file.read().partition('\nfallback_version = "')[2].partition('"')[0]
    except OSError:
        stated = ""
    return stated or "0+unknown"
