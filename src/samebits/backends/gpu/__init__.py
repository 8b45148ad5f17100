"""The GPU backends. Importing this folder imports no toolchain: torch is an extra."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress

from samebits.backends.interface import Backend
from samebits.kernels.triton import has_compiled, toolchain


def expect_model() -> None:
    """Begins what takes as long as our imports: the driver's context, and where nothing was ever compiled here the
    process that compiles."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return
    threading.Thread(target=_make_context, daemon=True).start()
    if not has_compiled():
        from samebits.kernels.triton.table import compile_pool

        compile_pool().start()


def _make_context() -> None:
    """The context of NVIDIA's first device, which torch takes then. Where there is none, torch will say why."""
    with suppress(OSError):
        driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), 0):
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


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
