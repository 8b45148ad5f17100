"""Weights of the rows of every chunk, as ../weights.py has them, for prompts in registers.

A program does one chunk of one key head after another: thread t + 16 n has the dot products of row t with rows 2n and
2n + 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import exp
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.threads import THREADS, load_per_thread, load_shared, store_per_thread, store_shared
from samebits.kernels.triton.recurrent.registers.ptx import PADDED_BYTES as _PADDED_BYTES
from samebits.kernels.triton.recurrent.registers.ptx import pair_dots_ptx
from samebits.kernels.triton.recurrent.row_form import (
    FADES,
    GATES,
    K_WEIGHTS,
    Q_WEIGHTS,
    RECORD_LEN,
    STRENGTHS,
    TO_END,
    either,
    gates_of,
    ring_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, nth_chunk, piece_of, run_of

PADDED_BYTES = tl.constexpr(_PADDED_BYTES)
Q_AT, GATES_AT = tl.constexpr(16 * _PADDED_BYTES), tl.constexpr(32 * _PADDED_BYTES)  # behind k; then gates of 16 rows
WEIGHTS_BYTES = 32 * _PADDED_BYTES + 64
_MEMORY = tl.constexpr(f"{{ .shared .align 16 .b8 rows[{WEIGHTS_BYTES}]; mov.u32 $0, rows; }}")
_SIZES = (32, 64, 128)  # of K: texts are found by K // 64, then those of k and q together
_DOTS = tl.constexpr(tuple(pair_dots_ptx(size, both) for both in (False, True) for size in _SIZES))
_DOTS_CONSTRAINTS = tl.constexpr(tuple(",".join(["=&f"] * count + ["r"] * 3) for count in (2, 4)))
_FLOATS = tl.constexpr(((tl.float32,) * 2, (tl.float32,) * 4))


@triton.jit
def shared_memory(thread):
    """The address of WEIGHTS_BYTES."""
    if EMULATE:
        return thread * 0
    return tl.inline_asm_elementwise(_MEMORY, "=r,r", [thread], tl.int32, False, 1)


@triton.jit
def head_dot(shared_ptr, a, b, K: tl.constexpr):
    """The dot product, in head order, of the rows at a and b: where there is no PTX."""
    run = (tl.arange(0, K // 8) * 32)[None, :]
    x = load_shared(shared_ptr, a[:, None] + run) * load_shared(shared_ptr, b[:, None] + run)
    for i in tl.static_range(1, 8):
        at = run + 4 * i
        x = x + load_shared(shared_ptr, a[:, None] + at) * load_shared(shared_ptr, b[:, None] + at)
    for _ in tl.static_range(4):
        if x.shape[1] > 1:
            left, right = tl.split(tl.reshape(x, [THREADS, x.shape[1] // 2, 2]))
            x = left + right
    return tl.reshape(x, [THREADS])


@triton.jit
def pair_dots(shared_ptr, q_row, k_row, rows, K: tl.constexpr, BOTH: tl.constexpr):
    """(q . y0, q . y1, k . y0, k . y1) with the two rows at `rows`; zeros for k without BOTH."""
    if EMULATE:
        one, two = head_dot(shared_ptr, q_row, rows, K), head_dot(shared_ptr, q_row, rows + PADDED_BYTES, K)
        if BOTH:
            three, four = head_dot(shared_ptr, k_row, rows, K), head_dot(shared_ptr, k_row, rows + PADDED_BYTES, K)
            return one, two, three, four
        return one, two, one * 0.0, one * 0.0
    NUMBER: tl.constexpr = (3 if BOTH else 0) + K // 64
    CONSTRAINTS: tl.constexpr = _DOTS_CONSTRAINTS[1 if BOTH else 0]
    FLOATS: tl.constexpr = _FLOATS[1 if BOTH else 0]
    dots = tl.inline_asm_elementwise(_DOTS[NUMBER], CONSTRAINTS, [q_row, k_row, rows], FLOATS, False, 1)
    if BOTH:
        return dots
    return dots[0], dots[1], dots[0], dots[0]


@triton.jit
def load_rows(shared_ptr, memory, q, k, slots, scaled_ptr, scale, slot, low, high, base, key, form):
    """k, and q scaled, in shared memory; rows of k below `low` come from the ring. scaled_ptr gets the scaled q too."""
    thread = tl.arange(0, THREADS)
    row, piece = thread // 8, thread % 8
    token = base + row
    is_new = (row >= low) & (row < high)
    share = form.HEADS // form.KEY_HEADS
    ring_row, ring_k, _, _ = ring_of(slots, slot, key if form.TILED else key * share, form)
    k_row = either(row < low, ring_k + row * ring_row, k.ptr + token * k.token + key * k.head)
    for n in tl.static_range(form.K // 8):
        element = n * 8 + piece
        place = memory + row * PADDED_BYTES + element * 4
        store_shared(shared_ptr, place, load_per_thread(k_row + element, row < high))
        x = settle(load_per_thread(q.ptr + token * q.token + key * q.head + element, is_new) * scale)
        store_shared(shared_ptr, place + Q_AT, x)
        store_per_thread(scaled_ptr + (token * form.KEY_HEADS + key) * form.K + element, x, is_new)


@triton.jit
def gates_of_chunk(shared_ptr, memory, gating, slots, slot, low, high, base, head, form):
    """(G of row thread % 16, its strength, G of the last row); all G in shared memory."""
    row = tl.arange(0, THREADS) % CHUNK
    is_new = (row >= low) & (row < high)
    g, strength = gates_of(gating, base + row, head, is_new, form)
    ring_row, _, _, ring_g = ring_of(slots, slot, head, form)
    gates = load_per_thread(ring_g + row * ring_row, row < low)
    total = tl.load(ring_g + (low - 1).to(tl.int64) * ring_row, mask=low > 0, other=0.0) + row * 0.0
    store_shared(shared_ptr, memory + GATES_AT + row * 4, g)
    tl.debug_barrier()
    for t in tl.static_range(CHUNK):
        there = (row >= 0) & (t >= low) & (t < high)
        total = tl.where(there, settle(total + load_shared(shared_ptr, memory + GATES_AT + row * 0 + t * 4)), total)
        gates = tl.where((row == t) & there, total, gates)
    tl.debug_barrier()  # before G takes their place
    store_shared(shared_ptr, memory + GATES_AT + row * 4, gates)
    tl.debug_barrier()
    return gates, strength, total


@triton.jit
def store_record(shared_ptr, memory, record, dots, gates, strength, last, low, high, DELTA: tl.constexpr):
    thread = tl.arange(0, THREADS)
    row = thread % CHUNK
    is_new = (row >= low) & (row < high)
    for n in tl.static_range(2):
        other = thread // CHUNK * 2 + n
        fade = exp(settle(gates - load_shared(shared_ptr, memory + GATES_AT + other * 4)))
        place = record + other * CHUNK + row
        weight = tl.where(is_new & (other <= row), settle(fade * settle(dots[n])), 0.0)
        store_per_thread(place + Q_WEIGHTS, weight, row >= 0)
        if DELTA:
            weight = tl.where(is_new & (other < row), settle(fade * settle(dots[2 + n])), 0.0)
            store_per_thread(place + K_WEIGHTS, weight, row >= 0)
    is_first = thread < CHUNK
    store_per_thread(record + FADES + row, exp(gates), is_first)
    store_per_thread(record + STRENGTHS + row, strength, is_first)
    store_per_thread(record + TO_END + row, exp(settle(last - gates)), is_first)
    store_per_thread(record + GATES + row, gates, is_first)


@triton.jit
def chunk_weights(
    shared_ptr, memory, q, k, gating, slots, records, scaled_ptr, scale, slot, low, high, base, key, form
):  # fmt: skip
    """The records of one chunk, of all value heads of a key head."""
    thread = tl.arange(0, THREADS)
    load_rows(shared_ptr, memory, q, k, slots, scaled_ptr, scale, slot, low, high, base, key, form)
    tl.debug_barrier()
    row, pair = thread % CHUNK * PADDED_BYTES, thread // CHUNK * (2 * PADDED_BYTES)
    dots = pair_dots(shared_ptr, memory + Q_AT + row, memory + row, memory + pair, form.K, form.DELTA)
    share = form.HEADS // form.KEY_HEADS
    i = 0
    while i < share:
        head = key + i * form.KEY_HEADS if form.TILED else key * share + i
        gates, strength, last = gates_of_chunk(shared_ptr, memory, gating, slots, slot, low, high, base, head, form)
        record = records + head * RECORD_LEN
        store_record(shared_ptr, memory, record, dots, gates, strength, last, low, high, form.DELTA)
        tl.debug_barrier()  # all G have been read
        i += 1


@triton.jit(do_not_specialize=BATCH_SIZES)
def weights_registers(
    q, k, gating, memory, batch, record_ptr, scaled_ptr, shared_ptr, fault_ptr, scale, num_seqs, num_tokens, num_slots,
    form, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs [key heads, chunks]: the records of every so-manieth chunk."""
    key, nth = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, chunk = nth_chunk(nth, batch.qo_ptr, batch.positions_ptr, num_seqs, num_tokens)
    shared = shared_memory(tl.arange(0, THREADS))
    wait_for_previous(CHAINED)
    while b < num_seqs:
        start, count, slot, first = run_of(
            b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        low, high, base = chunk_rows(start, count, first, chunk)
        if high > low:
            records = record_ptr + piece_of(start, b, chunk) * (form.HEADS * RECORD_LEN)
            chunk_weights(
                shared_ptr, shared, q, k, gating, memory, records, scaled_ptr, scale, slot, low, high, base, key, form
            )  # fmt: skip
        nth += tl.num_programs(1)
        b, chunk = nth_chunk(nth, batch.qo_ptr, batch.positions_ptr, num_seqs, num_tokens)
