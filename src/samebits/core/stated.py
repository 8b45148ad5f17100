"""Settings that are stated once, as fields of a dataclass: commands and other options are derived from the fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True)
class Setting:
    """The parts of an option beside its field's name, type and default.

    help       a sentence for `--help`
    flags      of the command line, the first one shown in errors; none for a setting of the Python API alone
    low, high  bounds of a number
    panel      the heading of the help under which the option stands
    parse      reads the text of the command line, if the type does not say how
    variable   the environment variable that sets the option of commands
    """

    help: str
    flags: tuple[str, ...]
    low: float | None
    high: float | None
    panel: str | None
    parse: Callable[[str], Any] | None
    variable: str | None


def stated(
    default: Any,
    help: str,
    *flags: str,
    low: float | None = None,
    high: float | None = None,
    panel: str | None = None,
    parse: Callable[[str], Any] | None = None,
    reads_environment: bool = True,
) -> Any:
    """Return a dataclass field with its Setting. SAMEBITS_ and the first flag's name are its environment variable."""
    variable = "SAMEBITS_" + flags[0].lstrip("-").replace("-", "_").upper() if flags and reads_environment else None
    setting = Setting(help, flags, low, high, panel, parse, variable)
    return field(default=default, metadata={"setting": setting})


@cache
def settings_of(kind: Any) -> dict[str, tuple[tuple[Any, ...], Setting]]:
    """Return the types and the Setting of each field of a dataclass of settings, in order."""
    hints = get_type_hints(kind)
    return {f.name: (get_args(hints[f.name]) or (hints[f.name],), f.metadata["setting"]) for f in fields(kind)}


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """Return the default of each field by name."""
    return {f.name: f.default for f in fields(kind)}
