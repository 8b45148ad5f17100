"""WebGPU: Vulkan, Metal and D3D12 through wgpu. Importing this folder imports no toolchain: wgpu is an extra."""

from __future__ import annotations

from importlib import import_module

from samebits.backends.interface import Backend
from samebits.core.errors import Unavailable
from samebits.core.installing import install_command


def webgpu() -> Backend:
    """Unavailable where wgpu is missing."""
    try:
        import_module("wgpu")
    except ImportError as error:
        raise Unavailable(f"wgpu is not installed ({error}); `{install_command('webgpu')}`") from None
    from samebits.backends.webgpu.backend import WebGpuBackend

    return WebGpuBackend()
