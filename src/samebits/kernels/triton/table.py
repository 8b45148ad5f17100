"""All Triton kernels: importing a kernel file registers what it has."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from samebits.kernels.compile_pool import CompilePool
from samebits.kernels.record import KernelTable
from samebits.kernels.triton import toolchain

# In the order of preference where two files serve one op.
FILES: tuple[str, ...] = (
    "attention.fast.op",
    "attention.fast.latent_op",
    "attention.invariant.op",
    "attention.portable.op",
    "products.fast.op",
    "products.blocks.ops",
    "products.dense.tensor_cores",
    "products.dense.exact",
    "products.blocks.grouped",
    "products.blocks.experts",
    "products.dense.grouped",
    "products.blocks.heads",
    "products.dense.heads",
    "products.dense.experts",
    "rows.norm",
    "rows.norm_q8",
    "rows.norm_gated",
    "rows.elementwise",
    "rows.gated",
    "rows.combine",
    "rows.quantize",
    "rows.rope",
    "caches.append_both",
    "caches.append",
    "caches.pages",
    "recurrent.conv",
    "recurrent.delta",
    "recurrent.ssm",
    "rows.columns",
    "rows.embed",
    "rows.embed_blocks",
    "rows.softmax",
    "attention.merge",
    "select.top_k",
    "select.route",
    "select.expert_layout",
    "select.sample",
)


@cache
def triton_kernels() -> KernelTable:
    """The table; Unavailable where torch or Triton is missing."""
    toolchain()
    from samebits.kernels.triton.lib.registry import TRITON

    for name in FILES:
        import_module(f"samebits.kernels.triton.{name}")
    return TRITON


@cache
def compile_pool() -> CompilePool:
    """Where kernels are compiled ahead. No toolchain is imported here, so it can be started before one is."""
    return CompilePool([f"samebits.kernels.triton.{name}" for name in ("lib.builds", *FILES)])
