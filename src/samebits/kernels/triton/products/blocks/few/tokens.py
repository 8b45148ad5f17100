"""Products for two to eight tokens on NVIDIA: the kernels over mma.py. A program owns a tile of 16 rows."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.int8_blocks import silu_int8_blocks
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.products.blocks.checks import check_activations
from samebits.kernels.triton.products.blocks.few.mma import tile_rows
from samebits.kernels.triton.products.blocks.terms import plane_pointers


@triton.jit
def check_tokens(
    a_ptr,
    sa_ptr,
    fault_ptr,
    tokens,
    NB: tl.constexpr,
    C: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """What the last program of a launch does."""
    wait_for_previous(CHAINED)
    if EMULATE:  # the interpreter's `range` takes no bounds from memory
        token = 0
        while token < tokens:
            check_activations(a_ptr, sa_ptr, fault_ptr, NB, C * 32, BAD_CODES, BAD_SCALES)
            a_ptr, sa_ptr, token = a_ptr + NB * 8, sa_ptr + NB, token + 1
    else:
        for token in tl.range(0, tokens):
            own_ptr, own_scales_ptr = a_ptr + token * (NB * 8), sa_ptr + token * NB
            check_activations(own_ptr, own_scales_ptr, fault_ptr, NB, C * 32, BAD_CODES, BAD_SCALES)


@triton.jit
def tokens_kernel(
    a_ptr,
    sa_ptr,
    data_ptr,
    bias_ptr,
    parts_ptr,
    y_ptr,
    fault_ptr,
    offsets,
    scale,
    N,
    tokens,
    NB: tl.constexpr,
    BIAS: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    tile = tl.program_id(0)
    if tile == tl.num_programs(0) - 1:
        check_tokens(a_ptr, sa_ptr, fault_ptr, tokens, NB, C, BAD_CODES, BAD_SCALES, CHAINED)
        return
    planes = plane_pointers(data_ptr, offsets, tile, NB, FORMAT)
    parts_ptr += tile.to(tl.int64) * (((NB + 7) // 8) * 16) * tokens
    total = tile_rows(parts_ptr, planes, a_ptr, sa_ptr, tokens, scale, NB, FORMAT, SHIFT, C, MASK, CHAINED)
    row, token = tile * 16 + tl.arange(0, 128) % 16, tl.arange(0, 128) // 16
    keep = (token < tokens) & (row < N)
    if BIAS:
        total = settle(total) + tl.load(bias_ptr + row, mask=keep, other=0).to(tl.float32)
    tl.store(y_ptr + token.to(tl.int64) * N + row, settle(total), mask=keep)


@triton.jit
def tokens_silu_kernel(
    a_ptr,
    sa_ptr,
    data_ptr,
    parts_ptr,
    sums_ptr,
    counter_ptr,
    codes_ptr,
    scales_ptr,
    fault_ptr,
    offsets,
    scale,
    H,
    tokens,
    NB: tl.constexpr,
    FAULT: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Four programs make a block of 32 results a token: two tiles of the gate, two of up. The last joins them."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        check_tokens(a_ptr, sa_ptr, fault_ptr, tokens, NB, C, BAD_CODES, BAD_SCALES, CHAINED)
        return
    block, part = tl.program_id(0) // 4, tl.program_id(0) % 4
    planes = plane_pointers(data_ptr, offsets, block * 2 + part % 2 + part // 2 * (H // 16), NB, FORMAT)
    parts_ptr += tl.program_id(0).to(tl.int64) * (((NB + 7) // 8) * 16) * tokens
    total = tile_rows(parts_ptr, planes, a_ptr, sa_ptr, tokens, scale, NB, FORMAT, SHIFT, C, MASK, CHAINED)
    sums_ptr += block * 512
    result = tl.arange(0, 128)
    tl.store(sums_ptr + result // 16 * 64 + part * 16 + result % 16, settle(total))
    tl.debug_barrier()
    if tl.atomic_add(counter_ptr + block, 1, sem="acq_rel") == 3:
        token = tl.arange(0, 8)
        at = token[:, None] * 64 + tl.arange(0, 32)[None, :]
        gate = tl.load(sums_ptr + at, cache_modifier=".cg")
        up = tl.load(sums_ptr + at + 32, cache_modifier=".cg")
        codes, block_scale, refused = silu_int8_blocks(gate, up)
        unit = token * (H // 32) + block
        tl.store(codes_ptr + unit[:, None] * 32 + tl.arange(0, 32)[None, :], codes, mask=(token < tokens)[:, None])
        tl.store(scales_ptr + unit, block_scale, mask=token < tokens)
        tl.store(fault_ptr, FAULT, mask=tl.max((refused & (token < tokens)).to(tl.int32), axis=0) != 0)
        tl.store(counter_ptr + block, 0)
