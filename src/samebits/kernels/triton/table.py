"""All Triton kernels: importing a kernel file registers what it has."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from samebits.kernels.record import KernelTable
from samebits.kernels.triton import toolchain

# In the order of preference where two files serve one op.
FILES: tuple[str, ...] = (
    "attention_fast_launch",
    "attention_portable",
    "gemm_fast",
    "gemm_ops",
    "dense_tensor",
    "dense_exact",
    "grouped_blocks",
    "grouped_dense",
    "norm",
    "norm_q8",
    "elementwise",
    "gated",
    "quantize",
    "rope",
    "rope_both",
    "append",
    "pages",
    "columns",
    "embed",
    "embed_blocks",
    "softmax",
    "merge",
    "select",
    "sample",
)


@cache
def triton_kernels() -> KernelTable:
    """The table; Unavailable where torch or Triton is missing."""
    toolchain()
    from samebits.kernels.triton.registry import TRITON

    for name in FILES:
        import_module(f"samebits.kernels.triton.{name}")
    return TRITON
