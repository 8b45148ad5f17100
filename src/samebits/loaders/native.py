"""The compiled part of this room, which Python defines and can do without."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def native() -> ModuleType | None:
    """The module that is compiled from cpp; None in a plain source tree."""
    try:
        return import_module("samebits.loaders._encoding")
    except ImportError:
        return None
