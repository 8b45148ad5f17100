"""Native CPU kernels. The package works without them: from a plain source tree they are simply absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from samebits.core.errors import Unavailable


def native() -> Any:
    """The compiled module; Unavailable when the package was not built."""
    try:
        return import_module("samebits.kernels.cpp._native")
    except ImportError as error:
        raise Unavailable(f"native kernels are not built ({error}); `pip install .` builds them") from None
