"""Attention of sequences with several queries over 16-bit caches, in registers: exact maximum first.

Tensors of one element a thread are its registers. Both products are one piece of PTX a tile, which
gives a thread 8 x 4 scores or 8 x 8 sums of values: that many multiply-adds for each operand read from shared memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SCORE, BAD_SINKS
from samebits.kernels.triton.attention.portable.registers.memory import (
    THREADS,
    M,
    load_per_thread,
    refuse,
    shared_memory,
    store_per_thread,
)
from samebits.kernels.triton.attention.portable.registers.scores import larger, largest_of_rows, score_range
from samebits.kernels.triton.attention.portable.registers.values import add_range, store_out, zeros_of
from samebits.kernels.triton.attention.portable.work import tile_item, tile_total
from samebits.kernels.triton.attention.sequences import CUT, refuse_counts, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.settling import settle

SHARED_ROWS = 64  # after the scores of a program: [16, M] maxima, [16, M] sums of runs, [M] inverses


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "window"])
def attend_registers(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, s_ptr, shared_ptr, qo_ptr, last_ptr, indptr_ptr, indices_ptr, slopes_ptr,
    sinks_ptr, fault_ptr, num_tokens, num_seqs, num_entries, num_pages, room, pitch, q_row, q_head, k_page, k_slot,
    k_head, v_page, v_slot, v_head, scale, cap, inv_cap, window, page_size: tl.constexpr, TABLE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SLOPES: tl.constexpr, SINKS: tl.constexpr,
    LSE: tl.constexpr, K_FORMAT: tl.constexpr, V_FORMAT: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr,
    NUM_PARTS: tl.constexpr, D: tl.constexpr, V_DIM: tl.constexpr, SEQ_BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs; item: a tile of M // HEADS queries and HEADS query heads of one KV head.

    s [program, pitch, M] keeps the scores of the first `room` positions, then SHARED_ROWS. Scores of later cuts are
    computed twice: the first turn of an item sees all positions for the maximum, every further one a cut.
    """
    QUERIES: tl.constexpr = M // HEADS
    NUM_HEADS: tl.constexpr = NUM_PARTS * HEADS
    ROWS: tl.constexpr = 4 if V_DIM <= 64 else 8
    COUNT: tl.constexpr = 8 * ROWS
    thread = tl.arange(0, THREADS)
    row = thread % M
    memory = shared_memory(thread)
    total_items = tile_total(
        qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, fault_ptr, QUERIES, TABLE, SEQ_BLOCK
    )
    total_items *= NUM_PARTS
    wait_for_previous(CHAINED)
    s_ptr += tl.program_id(0).to(tl.int64) * M * pitch
    maxima_ptr = s_ptr + room * M
    sums_ptr = maxima_ptr + 16 * M
    inverse_ptr = maxima_ptr + 32 * M
    numbers = (scale, cap, inv_cap, window)
    turn = 0
    while turn * tl.num_programs(0) < total_items:
        # Alternate the direction so that no program gets the longest tile of every turn.
        nth = tl.where(turn % 2 == 0, tl.program_id(0), tl.num_programs(0) - 1 - tl.program_id(0))
        item = turn * tl.num_programs(0) + nth
        turn += 1
        if item < total_items:
            seq, nth_tile = tile_item(
                total_items // NUM_PARTS - 1 - item // NUM_PARTS, qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries,
                num_tokens, page_size, fault_ptr, QUERIES, TABLE, SEQ_BLOCK,
            )  # fmt: skip
            first, rows, entry, length = sequences(
                seq, True, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
            )
            refuse_counts(rows, length, fault_ptr, CAUSAL)
            part = item % NUM_PARTS
            head = part * HEADS // GROUP
            tile = (nth_tile * QUERIES, rows)
            queries = (q_ptr + first.to(tl.int64) * q_row + part * HEADS * q_head, q_row, q_head)
            keys = (k_ptr + head * k_head, k_page, k_slot)
            values = (v_ptr + head * v_head, v_page, v_slot)
            table = (indices_ptr, entry, num_pages)
            part_slopes = slopes_ptr
            if SLOPES:
                part_slopes += part * HEADS
            start = 0
            stop = length
            low = 0
            if WINDOW:
                low = length - rows + nth_tile * QUERIES - window
                start = tl.maximum(low, 0) // CUT * CUT
            if CAUSAL:
                stop = tl.minimum(length, length - rows + (nth_tile + 1) * QUERIES)
            query = nth_tile * QUERIES + row // HEADS
            real = (row < QUERIES * HEADS) & (query < rows)
            largest = tl.full([THREADS], NEG_INF, tl.float32)
            if SINKS:
                sinks = tl.where(real, load_per_thread(sinks_ptr + part * HEADS + row % HEADS, real), NEG_INF)
                good = sinks <= LARGEST_F32
                refuse(fault_ptr, BAD_SINKS, good == 0)
                sinks = tl.where(good, sinks, NEG_INF)
                largest = sinks
            out = zeros_of(COUNT)
            total = tl.zeros([THREADS], tl.float32)
            begin = start
            while begin < stop:
                end = tl.minimum(stop, begin + CUT)
                last = stop if begin == start else end
                maxima = score_range(
                    shared_ptr, memory, queries, keys, table, part_slopes, s_ptr, fault_ptr, tile, length, low, begin,
                    last, begin + room, numbers, page_size, TABLE, CAUSAL, WINDOW, CAP, SLOPES, HEADS, D, K_FORMAT,
                )  # fmt: skip
                if begin == start:
                    end = tl.minimum(stop, start + room)
                    largest = larger(largest, largest_of_rows(maxima, maxima_ptr))
                    refuse(fault_ptr, BAD_SCORE, (largest <= LARGEST_F32) == 0)
                out, total = add_range(
                    shared_ptr, memory, values, table, s_ptr, sums_ptr, fault_ptr, out, total,
                    tl.where(largest == NEG_INF, 0.0, largest), low, begin, end, page_size, TABLE, V_DIM, ROWS,
                    V_FORMAT,
                )  # fmt: skip
                begin = end
            if SINKS:
                total = total + exp(sinks - tl.where(largest == NEG_INF, 0.0, largest))
            seen = total > 0.0
            inverse = tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)
            inverse = tl.where(largest <= LARGEST_F32, inverse, float("inf"))  # refused: values are not to blame
            tl.debug_barrier()
            store_per_thread(inverse_ptr + row, inverse, row >= 0)
            tl.debug_barrier()
            to = first.to(tl.int64) * NUM_HEADS + part * HEADS
            store_out(out_ptr + to * V_DIM, out, inverse_ptr, fault_ptr, tile, HEADS, NUM_HEADS, V_DIM, ROWS)
            if LSE:
                lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
                to += query.to(tl.int64) * NUM_HEADS + row % HEADS
                store_per_thread(lse_ptr + to, settle(tl.where(seen, lse, NEG_INF)), real)
