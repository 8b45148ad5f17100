"""Attention of sequences with several queries over 16-bit caches, in registers: exact maximum first.

Tensors of one element a thread are its registers. Both products are one piece of PTX a tile, which
gives a thread 8 x 4 scores or 8 x 8 sums of values: that many multiply-adds for each operand read from shared memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_SCORE, BAD_SINKS
from samebits.kernels.triton.attention.portable.registers.memory import M, refuse, shared_memory
from samebits.kernels.triton.attention.portable.registers.scores import larger, largest_of_rows, score_range
from samebits.kernels.triton.attention.portable.registers.values import add_range, store_out, zeros_of
from samebits.kernels.triton.attention.portable.work import tile_item, tile_total
from samebits.kernels.triton.attention.sequences import CUT, refuse_counts, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import LOG2E, exp, log2, recip
from samebits.kernels.triton.lib.limits import LARGEST_F32, NEG_INF
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.threads import THREADS, load_per_thread, store_per_thread

SHARED_ROWS = 64  # after the scores of a program: [16, M] maxima, [16, M] sums of runs, [M] inverses


@triton.jit(do_not_specialize=["num_tokens", "num_seqs", "num_entries", "num_pages", "window"])
def attend_registers(
    queries, keys, values, results, tables, logits, heads, s_ptr, shared_ptr, room, pitch, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, window, SEQ_BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs; item: a tile of M // HEADS queries and HEADS query heads of one KV head.

    queries .. heads: ../records.py. s [program, pitch, M] keeps the scores of the first `room` positions, then
    SHARED_ROWS. Scores of later cuts are computed twice: the first turn of an item sees all positions for the maximum,
    every further one a cut.
    """
    HEADS: tl.constexpr = heads.HEADS
    NUM_PARTS: tl.constexpr = heads.NUM_PARTS
    V_DIM: tl.constexpr = heads.V_DIM
    page_size: tl.constexpr = tables.page_size
    TABLE: tl.constexpr = tables.PAGED
    qo_ptr, last_ptr, indptr_ptr = tables.qo_ptr, tables.last_ptr, tables.indptr_ptr
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
    numbers = (logits.scale, logits.cap, logits.inv_cap, window)
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
            refuse_counts(rows, length, fault_ptr, logits.CAUSAL)
            part = item % NUM_PARTS
            head = (part * HEADS // heads.GROUP).to(tl.int64)
            tile = (nth_tile * QUERIES, rows)
            q_ptr = queries.ptr + first.to(tl.int64) * queries.row + part.to(tl.int64) * HEADS * queries.head
            k_cells = (keys.ptr + head * keys.head, keys.page, keys.slot)
            v_cells = (values.ptr + head * values.head, values.page, values.slot)
            table = (tables.indices_ptr, entry, num_pages)
            part_slopes = logits.slopes_ptr
            if part_slopes is not None:
                part_slopes += part * HEADS
            start = 0
            stop = length
            low = 0
            if logits.WINDOW:
                low = length - rows + nth_tile * QUERIES - window
                start = tl.maximum(low, 0) // CUT * CUT
            if logits.CAUSAL:
                stop = tl.minimum(length, length - rows + (nth_tile + 1) * QUERIES)
            query = nth_tile * QUERIES + row // HEADS
            real = (row < QUERIES * HEADS) & (query < rows)
            largest = tl.full([THREADS], NEG_INF, tl.float32)
            if logits.sinks_ptr is not None:
                sinks = tl.where(real, load_per_thread(logits.sinks_ptr + part * HEADS + row % HEADS, real), NEG_INF)
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
                    shared_ptr, memory, (q_ptr, queries.row, queries.head), k_cells, table, part_slopes, s_ptr,
                    fault_ptr, tile, length, low, begin, last, begin + room, numbers, page_size, TABLE, logits.CAUSAL,
                    logits.WINDOW, logits.CAP, HEADS, heads.D, keys.FORMAT,
                )  # fmt: skip
                if begin == start:
                    end = tl.minimum(stop, start + room)
                    largest = larger(largest, largest_of_rows(maxima, maxima_ptr))
                    refuse(fault_ptr, BAD_SCORE, (largest <= LARGEST_F32) == 0)
                out, total = add_range(
                    shared_ptr, memory, v_cells, table, s_ptr, sums_ptr, fault_ptr, out, total,
                    tl.where(largest == NEG_INF, 0.0, largest), low, begin, end, page_size, TABLE, V_DIM, ROWS,
                    values.FORMAT,
                )  # fmt: skip
                begin = end
            if logits.sinks_ptr is not None:
                total = total + exp(sinks - tl.where(largest == NEG_INF, 0.0, largest))
            seen = total > 0.0
            inverse = tl.where(seen, recip(tl.where(seen, total, 1.0)), 0.0)
            inverse = tl.where(largest <= LARGEST_F32, inverse, float("inf"))  # refused: values are not to blame
            tl.debug_barrier()
            store_per_thread(inverse_ptr + row, inverse, row >= 0)
            tl.debug_barrier()
            to = first.to(tl.int64) * NUM_HEADS + part * HEADS
            store_out(results.out_ptr + to * V_DIM, out, inverse_ptr, fault_ptr, tile, HEADS, NUM_HEADS, V_DIM, ROWS)
            if results.lse_ptr is not None:
                lse = largest * LOG2E + log2(tl.where(seen, total, 1.0))
                to += query.to(tl.int64) * NUM_HEADS + row % HEADS
                store_per_thread(results.lse_ptr + to, settle(tl.where(seen, lse, NEG_INF)), real)
