"""The extra that this room needs."""

from __future__ import annotations

from importlib.util import find_spec

from samebits.core.errors import Unavailable
from samebits.core.installing import install_command


def need_ray() -> None:
    """Unavailable, with what to install, where Ray Serve is missing."""
    if find_spec("ray") is None or find_spec("fastapi") is None:  # Serve imports the second
        raise Unavailable(f"serve: ray is not installed; needs {install_command('ray,server')}")
