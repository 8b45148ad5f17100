"""The GPU backends. Importing this folder imports no toolchain: torch is an extra."""

from __future__ import annotations

from samebits.backends.interface import Backend
from samebits.kernels.triton import toolchain


def cuda() -> Backend:
    """NVIDIA; Unavailable where torch or Triton is missing."""
    toolchain()
    from samebits.backends.gpu.backend import CudaBackend

    return CudaBackend()


def rocm() -> Backend:
    """AMD; Unavailable likewise."""
    toolchain("rocm")
    from samebits.backends.gpu.backend import RocmBackend

    return RocmBackend()
