"""Sequences with several tokens in this step, their state in registers: a program walks the chunks of one."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.threads import (
    THREADS,
    WAIT_ALL,
    copies,
    load_four,
    load_per_thread,
    load_shared,
    store_per_thread,
    store_shared,
)
from samebits.kernels.triton.recurrent.registers.memory import (
    COLUMN_BYTES,
    FADED_AT,
    K_AT,
    K_SUMS_AT,
    Q_AT,
    RECORD_AT,
    ROW_BYTES,
    TILE_BYTES,
    U_AT,
    V_AT,
    copy_chunk,
    shared_memory,
)
from samebits.kernels.triton.recurrent.registers.steps import first_column, moved_state, solve_rows, store_dots
from samebits.kernels.triton.recurrent.row_form import (
    FADES,
    K_WEIGHTS,
    Q_WEIGHTS,
    RECORD_LEN,
    STRENGTHS,
    TO_END,
    ring_of,
    state_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, nth_long, piece_of, run_of


@triton.jit
def against_state(shared_ptr, sums, fade):
    """e^G (x . S), settled, of a row and column: the sums of four warps joined."""
    one = load_shared(shared_ptr, sums) + load_shared(shared_ptr, sums + COLUMN_BYTES)
    two = load_shared(shared_ptr, sums + 2 * COLUMN_BYTES) + load_shared(shared_ptr, sums + 3 * COLUMN_BYTES)
    return settle(fade * settle(one + two))


@triton.jit
def own_places(thread, WIDTH: tl.constexpr):
    """(first row, column) of the WIDTH // 8 numbers, one below the other, that a thread finishes."""
    return thread // WIDTH * (WIDTH // 8), thread % WIDTH


@triton.jit
def begin_rows(shared_ptr, memory, low, DELTA: tl.constexpr, WIDTH: tl.constexpr):
    """What o and u of this thread's rows begin with: o's as a tuple, u's (all of it without DELTA) in shared memory."""
    first, column = own_places(tl.arange(0, THREADS), WIDTH)
    outs, rests = (), ()
    for i in tl.static_range(WIDTH // 8):
        t = first + i
        fade = load_shared(shared_ptr, memory + RECORD_AT + (FADES + t) * 4)
        sums = memory + t * ROW_BYTES + column * 4
        outs += (against_state(shared_ptr, sums + Q_AT, fade),)
        x = load_shared(shared_ptr, memory + V_AT + t * COLUMN_BYTES + column * 4)
        if DELTA:
            rest = x - against_state(shared_ptr, sums + K_SUMS_AT, fade)
        else:
            rest = settle(load_shared(shared_ptr, memory + RECORD_AT + (STRENGTHS + t) * 4) * x)
        rests += (tl.where(t < low, x, rest),)
    for i in tl.static_range(WIDTH // 8):  # after all loads, which would wait for them
        store_shared(shared_ptr, memory + U_AT + (first + i) * COLUMN_BYTES + column * 4, rests[i])
    tl.debug_barrier()
    return outs


@triton.jit
def scan_rows(shared_ptr, memory, outs, WIDTH: tl.constexpr):
    """Return o of this thread's rows, from what they begin with. Later rows are left out, as in ../prefill.py."""
    first, column = own_places(tl.arange(0, THREADS), WIDTH)
    for s in tl.static_range(CHUNK):
        u = load_shared(shared_ptr, memory + U_AT + s * COLUMN_BYTES + column * 4)
        at = memory + RECORD_AT + (Q_WEIGHTS + s * CHUNK + first) * 4
        if WIDTH == 32:
            weights = load_four(shared_ptr, at)
        else:
            weights = load_shared(shared_ptr, at), load_shared(shared_ptr, at + 4)
        added = ()
        for i in tl.static_range(WIDTH // 8):
            added += (outs[i] + tl.where(first + i >= s, weights[i] * u, 0.0),)
        outs = added
    return outs


@triton.jit
def finish_rows(
    shared_ptr, memory, outs, out_ptr, skip_ptr, slots, slot, low, high, base, head, block, form, WIDTH: tl.constexpr
):  # fmt: skip
    """Stores o of this thread's rows, and their u: faded in shared memory, in the ring where a chunk is not full."""
    first, column = own_places(tl.arange(0, THREADS), WIDTH)
    outs = scan_rows(shared_ptr, memory, outs, WIDTH)
    ring_row, _, ring_u, _ = ring_of(slots, slot, head, form)
    faded = ()
    for i in tl.static_range(WIDTH // 8):
        t = first + i
        is_new = (t >= low) & (t < high)
        place = t * COLUMN_BYTES + column * 4
        out = outs[i]
        if skip_ptr is not None:
            out = settle(out) + tl.load(skip_ptr + head) * load_shared(shared_ptr, memory + V_AT + place)
        at = block * WIDTH + column
        store_per_thread(out_ptr + ((base + t) * form.HEADS + head) * form.V + at, settle(out), is_new)
        u = load_shared(shared_ptr, memory + U_AT + place)
        store_per_thread(ring_u + t * ring_row + at, u, is_new & (high < CHUNK))
        faded += (settle(load_shared(shared_ptr, memory + RECORD_AT + (TO_END + t) * 4) * u),)
    for i in tl.static_range(WIDTH // 8):
        store_shared(shared_ptr, memory + FADED_AT + (first + i) * COLUMN_BYTES + column * 4, faded[i])


@triton.jit
def state_places(thread, block, form, WIDTH: tl.constexpr):
    """(a run's first element of K, the first of a thread's columns)."""
    LANES: tl.constexpr = form.K // 32
    column = block * WIDTH + first_column(thread, LANES, WIDTH * LANES // 32)
    return thread // 32 * (form.K // 4) + thread % LANES * 8, column


@triton.jit
def load_state(state_ptr, thread, block, kept, form, WIDTH: tl.constexpr):
    """This thread's numbers of a state; +0 where not kept."""
    element, column = state_places(thread, block, form, WIDTH)
    state = ()
    for c in tl.static_range(form.K // 32 * WIDTH // 32):
        for i in tl.static_range(8):
            state += (load_per_thread(state_ptr + (element + i) * form.V + column + c, kept),)
    return state


@triton.jit
def store_state(state_ptr, state, thread, block, form, WIDTH: tl.constexpr):
    element, column = state_places(thread, block, form, WIDTH)
    for c in tl.static_range(len(state) // 8):
        for i in tl.static_range(8):
            store_per_thread(state_ptr + (element + i) * form.V + column + c, state[8 * c + i], column >= 0)


@triton.jit
def walk_sequence(
    shared_ptr, memory, scaled_ptr, k, v, out_ptr, skip_ptr, slots, records, start, count, slot, first, head, block,
    form, WIDTH: tl.constexpr,
):  # fmt: skip
    """All chunks of a sequence; records: those of its chunks, of this head, one after another by `HEADS`."""
    thread = tl.arange(0, THREADS)
    LANES: tl.constexpr = form.K // 32  # that have the runs of a warp's part of K
    column = block * WIDTH
    state_ptr = state_of(slots, slot, head, form)
    state = load_state(state_ptr, thread, block, (thread >= 0) & (first > 0), form, WIDTH)
    num_chunks = (first % CHUNK + count + CHUNK - 1) // CHUNK
    low, high, base = chunk_rows(start, count, first, 0)
    copy_chunk(
        shared_ptr, memory, K_AT, scaled_ptr, k, v, slots, records, slot, low, high, base, head, column, form, WIDTH
    )  # fmt: skip
    record = memory + RECORD_AT
    chunk = 0
    while chunk < num_chunks:
        low, high, base = chunk_rows(start, count, first, chunk)
        k_at = memory + K_AT + chunk % 2 * TILE_BYTES
        copies(WAIT_ALL)
        tl.debug_barrier()
        if form.DELTA:
            store_dots(shared_ptr, state, thread, k_at, memory + K_SUMS_AT, LANES)
        store_dots(shared_ptr, state, thread, memory + Q_AT, memory + Q_AT, LANES)
        tl.debug_barrier()
        outs = begin_rows(shared_ptr, memory, low, form.DELTA, WIDTH)
        if form.DELTA:
            numbers = memory + U_AT + thread % 32 * 4
            solve_rows(shared_ptr, thread, numbers, record + K_WEIGHTS * 4, record + STRENGTHS * 4, low)
            tl.debug_barrier()
        fade = load_shared(shared_ptr, record + (FADES + CHUNK - 1) * 4)
        finish_rows(
            shared_ptr, memory, outs, out_ptr, skip_ptr, slots, slot, low, high, base, head, block, form, WIDTH
        )  # fmt: skip
        tl.debug_barrier()  # q, v and the record have been read, the faded u are written
        chunk += 1
        if chunk < num_chunks:
            low_2, high_2, base_2 = chunk_rows(start, count, first, chunk)
            copy_chunk(
                shared_ptr, memory, K_AT + chunk % 2 * TILE_BYTES, scaled_ptr, k, v, slots,
                records + (tl.zeros([], tl.int64) + chunk) * (form.HEADS * RECORD_LEN), slot, low_2, high_2, base_2,
                head, column, form, WIDTH,
            )  # fmt: skip
        if high == CHUNK:
            state = moved_state(shared_ptr, state, thread, fade, k_at, memory + FADED_AT, LANES)
    store_state(state_ptr, state, thread, block, form, WIDTH)
    tl.debug_barrier()  # before the next sequence's copies


@triton.jit(do_not_specialize=BATCH_SIZES)
def prefill_registers(
    scaled_ptr, k, v, out_ptr, skip_ptr, memory, batch, record_ptr, shared_ptr, fault_ptr,
    num_seqs, num_tokens, num_slots, form, WIDTH: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs [columns of heads, sequences]: WIDTH columns, 16 or 32, of one head, for every so-manieth long sequence.

    scaled_ptr: q as weights.py leaves it, scaled. memory: states and rings.
    """
    blocks: tl.constexpr = form.V // WIDTH
    head, block, nth = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks, tl.program_id(1)
    b = nth_long(nth, batch.qo_ptr, num_seqs)
    shared = shared_memory(tl.arange(0, THREADS))
    wait_for_previous(CHAINED)
    while b < num_seqs:
        start, count, slot, first = run_of(
            b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        if count > 0:
            records = record_ptr + (piece_of(start, b, 0) * form.HEADS + head) * RECORD_LEN
            walk_sequence(
                shared_ptr, shared, scaled_ptr, k, v, out_ptr, skip_ptr, memory, records, start, count, slot, first,
                head, block, form, WIDTH,
            )  # fmt: skip
        nth += tl.num_programs(1)
        b = nth_long(nth, batch.qo_ptr, num_seqs)
