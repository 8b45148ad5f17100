"""Kernels in Triton, for CUDA and ROCm. Nothing here is imported until a GPU backend asks: torch is an extra."""

from __future__ import annotations

from importlib import import_module

from samebits.core.errors import Unavailable


def toolchain(extra: str = "cuda") -> None:
    """Unavailable, with the extra to install, unless torch and Triton can be imported."""
    for name in ("torch", "triton"):
        try:
            import_module(name)
        except ImportError as error:
            raise Unavailable(f"{name} is not installed ({error}); `pip install samebits[{extra}]`") from None
