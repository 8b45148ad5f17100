"""The GPU backends. Importing this folder imports no toolchain: torch is an extra."""

from __future__ import annotations

import os

from samebits.backends.interface import Backend
from samebits.kernels.triton import has_compiled, toolchain


def expect_model() -> None:
    """Where nothing was ever compiled here, starts the process that compiles, whose imports take as long as ours."""
    if not has_compiled() and os.environ.get("TRITON_INTERPRET") != "1":
        from samebits.kernels.triton.table import compile_pool

        compile_pool().start()


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


def described(target: str) -> Backend:
    """A GPU of NVIDIA's that is not here, written as "sm_90/132": kernels can be compiled for it.

    BadInput for another text, Unavailable where torch or Triton is missing.
    """
    toolchain()
    from samebits.backends.gpu.backend import DescribedCuda
    from samebits.kernels.triton.lib.devices import parsed_facts

    return DescribedCuda(parsed_facts(target))
