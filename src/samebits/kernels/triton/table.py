"""All Triton kernels: importing a kernel file registers what it has."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from samebits.core.tiers import Tier
from samebits.kernels.compile_pool import CompilePool
from samebits.kernels.record import Kernel, KernelTable, OpCall
from samebits.kernels.triton import toolchain

if TYPE_CHECKING:
    from samebits.kernels.triton.lib.devices import DeviceFacts

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
def kernels_for(facts: DeviceFacts | None) -> KernelTable:
    """Return the table for a GPU, or for the interpreter.

    On a GPU of `invariance_doubt`, kernels of the tier invariant refuse calls of that tier.
    """
    kernels = triton_kernels()
    from samebits.kernels.triton.lib.devices import invariance_doubt

    doubt = invariance_doubt(facts)
    if doubt is None:
        return kernels
    table = KernelTable(kernels.language)
    for kernel in kernels:
        table.add(_doubted(kernel, doubt) if kernel.tier is Tier.INVARIANT else kernel)
    return table


def _doubted(kernel: Kernel, doubt: str) -> Kernel:
    """Return a kernel that serves fast calls as before and refuses stronger ones with the doubt."""

    def when(call: OpCall) -> str | None:
        if call.tier > Tier.FAST:
            return f"{kernel.name}: {doubt}"
        return kernel.when(call) if kernel.when else None

    return replace(kernel, when=when)


@cache
def compile_pool() -> CompilePool:
    """Where kernels are compiled ahead. No toolchain is imported here, so it can be started before one is."""
    return CompilePool([f"samebits.kernels.triton.{name}" for name in ("lib.builds", *FILES)])
