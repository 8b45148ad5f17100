"""Products for one token: a program owns G tiles of 16 rows and walks K in groups of C chunks; see gemv_chunks.py."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.activations import int8_blocks
from samebits.kernels.triton.chaining import let_next_start, wait_for_previous
from samebits.kernels.triton.elementary import sigmoid
from samebits.kernels.triton.gemv_chunks import add_in_order, chunk_sums, load_chunk
from samebits.kernels.triton.gemv_terms import plane_pointers


@triton.jit
def row_sums(
    planes,
    a_ptr,
    sa_ptr,
    tile,
    scale,
    NB: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    PTX: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """float32 [G, 16]: whole rows of tile [G * C * 16], chunks in order from +0.

    The next group of chunks is on its way while one is summed, the first before the previous kernel has ended. The
    barriers keep the compiler from putting these loads off.
    """
    G: tl.constexpr = tile.shape[0] // (C * 16)
    chunks: tl.constexpr = (NB + 7) // 8
    total = tl.zeros([G, 16], tl.float32)
    lane = tl.arange(0, G * C * 16)
    row, chunk = lane % 16, lane // 16 % C
    parts = load_chunk(planes, tile, chunk, row, NB, FORMAT, MASK)
    tl.debug_barrier()
    wait_for_previous(CHAINED)
    for _ in tl.range(C, chunks, C):
        ahead = load_chunk(planes, tile, chunk + C, row, NB, FORMAT, MASK)
        tl.debug_barrier()
        sums = chunk_sums(parts, a_ptr, sa_ptr, chunk, scale, NB, FORMAT, SHIFT, MASK, PTX)
        total = add_in_order(total, sums, C, PTX)
        chunk += C
        parts = ahead
    sums = chunk_sums(parts, a_ptr, sa_ptr, chunk, scale, NB, FORMAT, SHIFT, MASK, PTX)
    return add_in_order(total, sums, C, PTX)


@triton.jit
def gemv_kernel(
    a_ptr,
    sa_ptr,
    data_ptr,
    bias_ptr,
    y_ptr,
    offsets,
    scale,
    N,
    tiles,
    NB: tl.constexpr,
    BIAS: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    G: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    PTX: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """A program owns G tiles and one token."""
    let_next_start(CHAINED)
    first, token = tl.program_id(0) * G, tl.program_id(1)
    planes = plane_pointers(data_ptr, offsets, first, NB, FORMAT)
    tile = tl.minimum(tl.arange(0, G * C * 16) // (C * 16), tiles - 1 - first)
    a_ptr += token * (NB * 8)
    sa_ptr += token * NB
    total = row_sums(planes, a_ptr, sa_ptr, tile, scale, NB, FORMAT, SHIFT, C, MASK, PTX, CHAINED)
    row = (first + tl.arange(0, G))[:, None] * 16 + tl.arange(0, 16)[None, :]
    if BIAS:
        total = total + tl.load(bias_ptr + row, mask=row < N, other=0).to(tl.float32)
    tl.store(y_ptr + token.to(tl.int64) * N + row, total, mask=row < N)


@triton.jit
def gemv_silu_kernel(
    a_ptr,
    sa_ptr,
    data_ptr,
    sums_ptr,
    counter_ptr,
    codes_ptr,
    scales_ptr,
    fault_ptr,
    offsets,
    scale,
    H,
    NB: tl.constexpr,
    FAULT: tl.constexpr,
    FORMAT: tl.constexpr,
    SHIFT: tl.constexpr,
    G: tl.constexpr,
    C: tl.constexpr,
    MASK: tl.constexpr,
    PTX: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """A program owns G of the four tiles that make a block of 32 results, and one token; the last joins them."""
    let_next_start(CHAINED)
    each: tl.constexpr = 4 // G
    block, token = tl.program_id(0) // each, tl.program_id(1)
    part = tl.program_id(0) % each * G
    planes = plane_pointers(data_ptr, offsets, block * 2, NB, FORMAT)
    own = part + tl.arange(0, G * C * 16) // (C * 16)
    tile = own % 2 + (own // 2) * (H // 16)
    a_ptr += token * (NB * 8)
    sa_ptr += token * NB
    total = row_sums(planes, a_ptr, sa_ptr, tile, scale, NB, FORMAT, SHIFT, C, MASK, PTX, CHAINED)
    unit = token * (H // 32) + block
    sums_ptr += unit * 64
    tl.store(sums_ptr + (part + tl.arange(0, G))[:, None] * 16 + tl.arange(0, 16)[None, :], total)
    tl.debug_barrier()
    if tl.atomic_add(counter_ptr + unit, 1, sem="acq_rel") == each - 1:
        gate = tl.load(sums_ptr + tl.arange(0, 32), cache_modifier=".cg")
        up = tl.load(sums_ptr + 32 + tl.arange(0, 32), cache_modifier=".cg")
        codes, block_scale, refused = int8_blocks((gate * sigmoid(gate)) * up)
        tl.store(codes_ptr + unit * 32 + tl.arange(0, 32), codes)
        tl.store(scales_ptr + unit, block_scale)
        tl.store(fault_ptr, FAULT, mask=refused)
        tl.store(counter_ptr + unit, 0)
