"""The option --backend of commands that hold one backend to its promises."""

from __future__ import annotations

from typing import Annotated

from samebits.backends.discovery import Found, default_name, get
from samebits.cli import flags

BackendUnderTest = Annotated[
    str | None,
    flags.Option(
        "--backend",
        envvar="SAMEBITS_BACKEND",
        help="The backend, by name or as module:Class; the native CPU kernels if absent.",
    ),
]


def backend_under_test(name: str | None) -> Found:
    """Return the backend of that name, or the one on which models run by default. Errors are those of `get`."""
    return get(name or default_name())
