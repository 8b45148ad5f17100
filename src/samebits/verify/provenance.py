"""What an outcome depends on: backend, device, driver, versions, and the kernels by their content."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import samebits
from samebits.backends.discovery import Found
from samebits.core.errors import Unavailable
from samebits.core.files import file_sha256, lines_sha256
from samebits.core.numerics import NUMERICS_VERSION
from samebits.core.processors import processor_name
from samebits.kernels.cpp import native

PACKAGE = Path(samebits.__file__).parent
ROOMS = ("backends", "core/numerics", "kernels", "ops", "passes")  # all that a result's bits may depend on
GIT_SECONDS = 10.0


def environment(found: Found) -> dict[str, Any]:
    """Return what the outcome depends on, in words."""
    caps = found.caps
    return {
        "backend": found.name,
        "origin": found.origin,
        "device": caps.device if caps else None,
        "driver": caps.driver if caps and caps.driver else None,
        "features": list(caps.features) if caps else [],
        "refuted_tiers": {t.label: why for t, why in caps.refuted.items()} if caps else {},
        "samebits": samebits.__version__,
        "commit": commit(),
        "numerics_version": NUMERICS_VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": processor_name(),
    }


@cache
def commit() -> str | None:
    """Return the commit of the clone that this package runs from, "-dirty" if files differ; None outside a clone."""
    root = PACKAGE.parents[1]
    if not (root / ".git").exists():
        return None
    asked = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=GIT_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def kernel_hashes(found: Found) -> dict[str, str | None]:
    """Return hashes of the code that computes.

    kernels_sha256  of the lines that sha256sum prints for the package's folders of ROOMS
    native_sha256   of the library of native kernels; None if there is none
    backend_sha256  of the same lines for a backend's own module or package; None for a backend of ours
    """
    ours = sorted(path for room in ROOMS for path in _sources(PACKAGE / room))
    return {
        "kernels_sha256": lines_sha256(PACKAGE, ours),
        "native_sha256": _native_sha256(),
        "backend_sha256": _own_sha256(found),
    }


def _native_sha256() -> str | None:
    try:
        return file_sha256(Path(native().__file__))
    except Unavailable:
        return None


def _own_sha256(found: Found) -> str | None:
    """Return the hash of the top-level module or package that the backend's class is from, unless it is ours."""
    name = type(found.backend).__module__.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or name == PACKAGE.name:
        return None
    path = Path(file)
    is_package = path.stem == "__init__"
    return lines_sha256(path.parent, sorted(_sources(path.parent)) if is_package else [path])


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are not caches or built libraries."""
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyd", ".pyc"):
            yield path
