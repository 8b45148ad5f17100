"""Sums of values of a tile of queries: weights from scores, values into shared memory, results."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_PAGE, BAD_VALUE
from samebits.kernels.triton.attention.portable.registers.memory import (
    ROW_BYTES,
    TILE_BYTES,
    M,
    N,
    load_columns,
    load_run,
    prefetch,
    refuse,
    store_columns,
    store_run,
)
from samebits.kernels.triton.attention.portable.registers.products import (
    add_values,
    value_places,
)
from samebits.kernels.triton.attention.portable.registers.scores import fill_cells
from samebits.kernels.triton.attention.sequences import CUT
from samebits.kernels.triton.lib.elementary import (
    EXP_LOWEST,
    EXP_POLY,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    ROUND_MAGIC,
    ROUND_MAGIC_BITS,
    bits,
    from_bits,
    horner,
)
from samebits.kernels.triton.lib.limits import LARGEST_F32
from samebits.kernels.triton.lib.rows import fault_where, narrow, widen
from samebits.kernels.triton.lib.threads import THREADS, WAIT_ALL, WAIT_BUT_ONE, copies, store_per_thread


@triton.jit
def negative_exp(x):
    """`exp` for x <= 0."""
    clamped = tl.maximum(x, EXP_LOWEST)
    shifted = clamped * LOG2E + ROUND_MAGIC
    n = shifted - ROUND_MAGIC
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    mantissa = 1.0 + (r + (r * r) * horner(r, EXP_POLY))
    result = from_bits(bits(mantissa) + ((bits(shifted) - ROUND_MAGIC_BITS) << 23))
    return tl.where(x < EXP_LOWEST, 0.0, result)


@triton.jit
def weight(p, FORMAT: tl.constexpr):
    """as_operand for 0 <= p <= 1."""
    return widen(narrow(p, tl.bfloat16 if FORMAT == "bf16" else tl.float16))


@triton.jit
def store_weights(shared_ptr, memory, s_ptr, sums_ptr, shift, FORMAT: tl.constexpr):
    """P of 64 positions into shared memory [position, row], the sums of p of their four runs to sums_ptr [4, M]."""
    thread = tl.arange(0, THREADS)
    row, half = thread % M, thread // M
    at = s_ptr + half * (32 * M) + row
    place = memory + half * (32 * ROW_BYTES) + row * 4
    for r in tl.range(0, 2):
        s = load_run(at + 16 * r * M)
        total = tl.zeros([THREADS], tl.float32)
        weights = ()
        for n in tl.static_range(16):
            p = negative_exp(s[n] - shift)
            total = total + p
            weights += (weight(p, FORMAT),)
        store_run(shared_ptr, place + r * (16 * ROW_BYTES), weights)
        store_per_thread(sums_ptr + (half * 2 + r) * M + row, total, row >= 0)


@triton.jit
def sum_of_runs(sums_ptrs, runs):
    """A row's sum a thread: the sums of the first `runs` runs of a cut, in order."""
    sums = load_run(sums_ptrs)
    total = tl.zeros([THREADS], tl.float32)
    for n in tl.static_range(16):
        total = total + tl.where(n < runs, sums[n], 0.0)
    return total


@triton.jit
def zeros_of(COUNT: tl.constexpr):
    zeros = ()
    for _ in tl.static_range(COUNT):
        zeros += (tl.zeros([THREADS], tl.float32),)
    return zeros


@triton.jit
def plus(totals, parts, COUNT: tl.constexpr):
    added = ()
    for k in tl.static_range(COUNT):
        added += (totals[k] + parts[k],)
    return added


@triton.jit
def add_range(
    shared_ptr, memory, values, table, s_ptr, sums_ptr, fault_ptr, out, total, shift, low, begin, end,
    page_size: tl.constexpr, TABLE: tl.constexpr, V_DIM: tl.constexpr, ROWS: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """(out, total) plus the cuts of positions begin .. end - 1, whose scores are s [position - begin, M]."""
    thread = tl.arange(0, THREADS)
    buffer = memory + TILE_BYTES
    other = memory + 2 * TILE_BYTES
    bad_page = fill_cells(shared_ptr, buffer, values, table, begin, low, end, page_size, TABLE, V_DIM, False)
    sums = zeros_of(8 * ROWS)
    at = begin
    while at < end:
        tl.debug_barrier()
        bad_page |= fill_cells(shared_ptr, other, values, table, at + N, low, end, page_size, TABLE, V_DIM, False)
        s_at = s_ptr + (at - begin) * M
        prefetch(s_at + N * M + thread * 32)
        store_weights(shared_ptr, memory, s_at, sums_ptr + at % CUT // 16 * M, shift, FORMAT)
        copies(WAIT_BUT_ONE)
        tl.debug_barrier()
        sums = add_values(shared_ptr, sums, memory, buffer, (tl.minimum(end - at, N) + 15) // 16, ROWS, FORMAT)
        buffer, other = other, buffer
        at += N
        if (at % CUT == 0) | (at >= end):
            out = plus(out, sums, 8 * ROWS)
            sums = zeros_of(8 * ROWS)
            runs = (tl.minimum(end - (at - N) // CUT * CUT, CUT) + 15) // 16
            total = total + sum_of_runs(sums_ptr + thread % M, runs)
    copies(WAIT_ALL)
    fault_where(fault_ptr, BAD_PAGE, bad_page)
    return out, total


@triton.jit
def store_out(
    out_ptr, out, inverse_ptr, fault_ptr, tile, HEADS: tl.constexpr, NUM_HEADS: tl.constexpr, V_DIM: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """A thread's ROWS x 8 sums times the rows' inverses, rounded; out_ptr: the first head and row of the sequence."""
    first, rows = tile
    first_row, column = value_places(tl.arange(0, THREADS), ROWS)
    inverses = load_columns(inverse_ptr + first_row // 8 * 8, first_row >= 0)
    wrong = tl.zeros([THREADS], tl.int1)
    for i in tl.static_range(ROWS):
        row = first_row + i
        query = first + row // HEADS
        real = (row < M // HEADS * HEADS) & (query < rows)
        inverse = inverses[i]
        if ROWS == 4:
            inverse = tl.where(first_row % 8 == 0, inverse, inverses[i + 4])
        kept = real & (column < V_DIM)
        columns = ()
        for n in tl.static_range(8):
            o = out[8 * i + n] * inverse
            wrong |= kept & (inverse <= LARGEST_F32) & ((tl.abs(o) <= LARGEST_F32) == 0)
            columns += (o,)
        to = out_ptr + (query.to(tl.int64) * NUM_HEADS + row % HEADS) * V_DIM + column
        store_columns(to, columns, kept)
    refuse(fault_ptr, BAD_VALUE, wrong)
