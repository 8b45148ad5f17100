"""Native CPU kernels. The package works without them: from a plain source tree they are simply absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from samebits.core.errors import Unavailable


def native() -> Any:
    """Return the compiled module. Raise Unavailable if the package was installed without it."""
    try:
        return import_module("samebits.kernels.cpp._native")
    except ImportError as error:
        from samebits.core.installing import native_advice  # imported only where it is needed, for a quick start

        raise Unavailable(f"native kernels are not built ({error}); {native_advice()}") from None


@contextmanager
def flushing_subnormals() -> Iterator[None]:
    """Inside it, arithmetic of this thread takes subnormals for zero, and so does that of the teams it calls."""
    before = native().flushes_subnormals()
    native().flush_subnormals(True)
    try:
        yield
    finally:
        native().flush_subnormals(before)
