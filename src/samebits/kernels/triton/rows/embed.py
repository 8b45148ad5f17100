"""embedding from plain tables: rows by id."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where, load_wide, store_narrow
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.lib.tensors import DTYPES
from samebits.kernels.triton.rows.elementwise import BLOCK, place
from samebits.ops.record import FLOATS

NO_ROW = tl.constexpr(fault("embedding", "ids", "an id outside the table", "0 .. rows of the table - 1"))


@triton.jit(do_not_specialize=["V"])
def embed_kernel(
    table_ptr, ids_ptr, y_ptr, fault_ptr, V, K, num_blocks, row_stride, BLOCK: tl.constexpr, CHAINED: tl.constexpr
):
    """An id of -1 is padding: a row of zeros, as any other id outside the table, which is a fault."""
    token, column = place(K, num_blocks, BLOCK)
    wait_for_previous(CHAINED)
    at = tl.load(ids_ptr + token)
    known = (at >= 0) & (at < V)
    fault_where(fault_ptr, NO_ROW, (known == 0) & (at != -1))
    row = load_wide(table_ptr + at.to(tl.int64) * row_stride + column, known & (column < K))
    store_narrow(y_ptr + token * K + column, row, column < K)


def _plain(call: OpCall) -> str | None:
    fmt = call.inputs["table"].format
    return None if fmt in FLOATS else f"a table in {fmt}"


@implements("embedding", tier=Tier.PORTABLE, when=_plain)
def embedding(table: torch.Tensor, ids: torch.Tensor, *, format: str = "f32") -> torch.Tensor:
    num_ids, width = ids.shape[0], table.shape[1]
    y = torch.empty((num_ids, width), dtype=DTYPES[format], device=table.device)
    if y.numel() == 0:
        return y
    num_blocks = cdiv(width, BLOCK)
    table = table if table.stride(1) == 1 else table.contiguous()
    embed_kernel[(num_ids * num_blocks,)](
        table, ids, y, fault_word(table.device), table.shape[0], width, num_blocks, table.stride(0),
        BLOCK, num_warps=4, **chained(table.device), **UNFUSED,
    )  # fmt: skip
    return y
