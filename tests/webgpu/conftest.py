"""The WebGPU backend for the tests of this folder, or the reason why there is none."""

from __future__ import annotations

import pytest

from samebits.backends.discovery import get
from samebits.backends.interface import Backend
from samebits.core.errors import Unavailable


@pytest.fixture(scope="session")
def webgpu() -> Backend:
    """The backend of this process; the test is skipped where wgpu or an adapter is missing."""
    try:
        found = get("webgpu")
    except Unavailable as error:
        pytest.skip(f"{error}; Debian's mesa-vulkan-drivers is a software device")
    assert found.backend is not None
    return found.backend
