"""Native CPU kernels. The package works without them: from a plain source tree they are simply absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from samebits.core.errors import Unavailable


def native() -> Any:
    """The compiled module; Unavailable when the package was not built."""
    try:
        return import_module("samebits.kernels.cpp._native")
    except ImportError as error:
        from samebits.core.installing import install_command  # a model that runs need not wait for it

        raise Unavailable(f"native kernels are not built ({error}); `{install_command()}` builds them") from None


@contextmanager
def flushing_subnormals() -> Iterator[None]:
    """Inside it, arithmetic of this thread takes subnormals for zero, and so does that of the teams it calls."""
    before = native().flushes_subnormals()
    native().flush_subnormals(True)
    try:
        yield
    finally:
        native().flush_subnormals(before)
