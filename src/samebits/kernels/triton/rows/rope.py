"""rope: pairs of a head turned by the table's angles."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import fault_where, load_wide, store_narrow
from samebits.kernels.triton.lib.sizes import cdiv, power_of_two

OUTSIDE_TABLE = tl.constexpr(fault("rope", "pos_ids", "a position outside the table", "0 .. rows of the table - 1"))
ELEMENTS = 1024  # of a program, whole heads of one token


def heads_of(num_heads: int, head_size: int) -> int:
    """Heads of one program, a power of two."""
    return max(1, min(power_of_two(num_heads), ELEMENTS // power_of_two(head_size)))


@triton.jit
def table_row(pos_ids_ptr, token, table_ptr, num_positions, fault_ptr, R: tl.constexpr):
    """(the token's row of the table, whether to turn at all): -1 is padding, another place outside is a fault."""
    position = tl.load(pos_ids_ptr + token)
    turns = (position >= 0) & (position < num_positions)
    fault_where(fault_ptr, OUTSIDE_TABLE, (turns == 0) & (position != -1))
    return table_ptr + tl.where(turns, position, 0).to(tl.int64) * (2 * R), turns


@triton.jit
def turned(x_ptrs, e, mask, row_ptr, turns, R: tl.constexpr, INTERLEAVE: tl.constexpr):
    """Elements `e` of heads that start at x_ptrs, after rope where R > 0; float32, not settled there."""
    x = load_wide(x_ptrs + e, mask)
    if R > 0:
        rotary = (e < 2 * R) & turns
        if INTERLEAVE:
            pair, is_first = e // 2, e % 2 == 0
            other_e = tl.where(is_first, e + 1, e - 1)
        else:
            is_first = e < R
            pair, other_e = tl.where(is_first, e, e - R), tl.where(is_first, e + R, e - R)
        cos = tl.load(row_ptr + 2 * pair, mask=rotary, other=0.0)
        sin = tl.load(row_ptr + 2 * pair + 1, mask=rotary, other=0.0)
        other = load_wide(x_ptrs + other_e, mask & rotary)
        y = tl.where(is_first, x * cos - other * sin, x * cos + other * sin)
        x = tl.where(rotary, y, x)
    return x


@triton.jit
def rope_heads(
    x_ptr, y_ptr, token, part, H, x_token, x_head, row_ptr, turns,
    D: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, INTERLEAVE: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """HEADS heads of a token, turned, into y [T, H, D]."""
    head = (part * HEADS + tl.arange(0, HEADS)[:, None]).to(tl.int64)
    e = tl.arange(0, WIDTH)[None, :]
    mask = (head < H) & (e < D)
    y = turned(x_ptr + token * x_token + head * x_head, e, mask, row_ptr, turns, R, INTERLEAVE)
    store_narrow(y_ptr + (token * H + head) * D + e, y, mask)


@triton.jit(do_not_specialize=["num_positions"])
def rope_kernel(
    x_ptr, pos_ids_ptr, table_ptr, y_ptr, fault_ptr, H, x_token, x_head, num_positions,
    D: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, INTERLEAVE: tl.constexpr, HEADS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(H, HEADS)
    token, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    wait_for_previous(CHAINED)
    row_ptr, turns = table_row(pos_ids_ptr, token, table_ptr, num_positions, fault_ptr, R)
    rope_heads(x_ptr, y_ptr, token, part, H, x_token, x_head, row_ptr, turns, D, WIDTH, R, INTERLEAVE, HEADS)


@implements("rope", tier=Tier.PORTABLE)
def rope(x: torch.Tensor, pos_ids: torch.Tensor, table: torch.Tensor, *, interleave: bool = False) -> torch.Tensor:
    num_tokens, num_heads, head_size = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(2) == 1 else x.contiguous()
    table = table.contiguous()  # a graph may make it of columns of a wider tensor
    heads = heads_of(num_heads, head_size)
    rope_kernel[(num_tokens * cdiv(num_heads, heads),)](
        x, pos_ids, table, y, fault_word(x.device), num_heads, x.stride(0), x.stride(1), table.shape[0],
        head_size, power_of_two(head_size), table.shape[1], interleave, heads, num_warps=4,
        **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return y
