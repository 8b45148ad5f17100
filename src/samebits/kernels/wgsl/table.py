"""All WGSL kernels: importing a kernel file registers what it has."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from samebits.kernels.record import KernelTable

# In the order of preference where two files serve one op.
FILES: tuple[str, ...] = (
    "attention.op",
    "products.blocks",
    "products.dense",
    "products.embedding",
    "caches.append",
    "caches.pages",
    "rows.elementwise",
    "rows.gated",
    "rows.columns",
    "rows.quantize",
    "rows.norm",
    "rows.norm_q8",
    "rows.rope",
    "rows.cast",
    "rows.softmax",
    "select.arg_max",
    "select.top_k",
    "select.sample",
)


@cache
def wgsl_kernels() -> KernelTable:
    """The table."""
    from samebits.kernels.wgsl.lib.registry import WGSL

    for name in FILES:
        import_module(f"samebits.kernels.wgsl.{name}")
    return WGSL
