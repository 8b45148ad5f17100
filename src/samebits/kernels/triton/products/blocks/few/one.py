"""Products for one token: a program owns tiles of 16 rows and walks K in groups of C chunks; see chunks.py."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.products.blocks.checks import check_activations
from samebits.kernels.triton.products.blocks.few.chunks import add_in_order, chunk_sums, load_chunk
from samebits.kernels.triton.products.blocks.few.shared import copy_activations
from samebits.kernels.triton.products.blocks.terms import plane_pointers


@triton.jit
def store_rows(y_ptr, bias_ptr, total, tile, last, N, BIAS: tl.constexpr):
    """Stores the totals [P = (C, 16)] of a tile's rows below N, where its last chunks are in them."""
    thread = tl.arange(0, total.shape[0])
    row = tile * 16 + thread
    keep = (thread < 16) & (row < N) & last
    if BIAS:
        total = settle(total) + tl.load(bias_ptr + row, mask=keep, other=0).to(tl.float32)
    tl.store(y_ptr + row, settle(total), mask=keep)


@triton.jit
def walk_tiles(
    a_ptr, sa_ptr, data_ptr, bias_ptr, y_ptr, offsets, scale, N, before, tiles, programs, NB: tl.constexpr,
    BIAS: tl.constexpr, FORMAT: tl.constexpr, SHIFT: tl.constexpr, C: tl.constexpr, MASK: tl.constexpr,
    ONE: tl.constexpr, ACTIVATIONS: tl.constexpr, EXCHANGE: tl.constexpr, PTX: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """The tiles p, p + programs, ... for one token: their groups of C chunks as one sequence.

    before: tiles of the data that lie before those of this weight. The first group is asked for before the previous
    kernel has ended. ONE: there is no other. The barrier keeps the compiler from putting those loads off.
    """
    groups: tl.constexpr = ((NB + 7) // 8 + C - 1) // C
    in_shared: tl.constexpr = ACTIVATIONS != ""
    tile = tl.program_id(0)
    thread = tl.arange(0, C * 16)
    row, slot = thread % 16, thread // 16
    planes = plane_pointers(data_ptr, offsets, before + tile, NB, FORMAT)
    parts = load_chunk(planes, slot, row, NB, FORMAT, MASK)
    tl.debug_barrier()
    wait_for_previous(CHAINED)
    shared = thread
    if in_shared:
        shared = copy_activations(a_ptr, sa_ptr, C * 16, ACTIVATIONS)
    total, turn = tl.zeros([C * 16], tl.float32), 0
    if not ONE:
        group = 0
        while (group + 1 < groups) | (tile + programs < tiles):
            last = group == groups - 1
            next_group, next_tile = tl.where(last, 0, group + 1), tl.where(last, tile + programs, tile)
            planes = plane_pointers(data_ptr, offsets, before + next_tile, NB, FORMAT)
            sums, parts = chunk_sums(
                parts, a_ptr, sa_ptr, shared, group * C + slot, row, planes, next_group * C + slot, scale,
                True, NB, FORMAT, SHIFT, MASK, PTX, in_shared,
            )  # fmt: skip
            total = add_in_order(total, sums, turn, C, EXCHANGE)
            store_rows(y_ptr, bias_ptr, total, tile, last, N, BIAS)
            total = tl.where(last, 0.0, total)
            group, tile, turn = next_group, next_tile, 1 - turn
    sums, _ = chunk_sums(
        parts, a_ptr, sa_ptr, shared, (groups - 1) * C + slot, row, planes, slot, scale,
        False, NB, FORMAT, SHIFT, MASK, PTX, in_shared,
    )  # fmt: skip
    store_rows(y_ptr, bias_ptr, add_in_order(total, sums, turn, C, EXCHANGE), tile, True, N, BIAS)


@triton.jit
def gemv_kernel(
    a_ptr, sa_ptr, data_ptr, bias_ptr, y_ptr, fault_ptr, offsets, scale, N, tiles, NB: tl.constexpr,
    BIAS: tl.constexpr, FORMAT: tl.constexpr, SHIFT: tl.constexpr, C: tl.constexpr, MASK: tl.constexpr,
    ONE: tl.constexpr, ACTIVATIONS: tl.constexpr, EXCHANGE: tl.constexpr, BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr, PTX: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A program owns one token and some tiles; the last one of a token looks for what is refused."""
    programs, token = tl.num_programs(0) - 1, tl.program_id(1)
    a_ptr += token * (NB * 8)
    sa_ptr += token * NB
    y_ptr += token.to(tl.int64) * N
    if tl.program_id(0) == programs:
        wait_for_previous(CHAINED)
        check_activations(a_ptr, sa_ptr, fault_ptr, NB, C * 16, BAD_CODES, BAD_SCALES)
    else:
        walk_tiles(
            a_ptr, sa_ptr, data_ptr, bias_ptr, y_ptr, offsets, scale, N, 0, tiles, programs,
            NB, BIAS, FORMAT, SHIFT, C, MASK, ONE, ACTIVATIONS, EXCHANGE, PTX, CHAINED,
        )  # fmt: skip
