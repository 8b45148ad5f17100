"""Sequences with several tokens in this step: a program walks the chunks of one, for a few columns of one head.

The state is worked on where it lies: a chunk's columns of S are read from the cache for all its rows together, and
written when the chunk is full. Weights come from weights.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import bits, from_bits
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.recurrent.row_form import (
    FADES,
    K_WEIGHTS,
    Q_WEIGHTS,
    RECORD_LEN,
    STRENGTHS,
    TO_END,
    clear_state,
    head_dots,
    key_head,
    move_state,
    ring_of,
    state_of,
    turned_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, nth_long, piece_of, run_of


@triton.jit
def solve_rows(u_ptr, record, low, column, inside, WIDTH: tl.constexpr):
    """u of a chunk's rows in the place of v - e^G (k . S); rows below `low` hold u already.

    A thread has all rows of its columns: what one row adds to the next needs no exchange. All warps compute alike.
    Rows below `low` are not touched by their weights of 0: a u that overflowed would make NaN of the next ones.
    """
    rows = ()
    for t in tl.static_range(CHUNK):
        rows = rows + (tl.load(u_ptr + t * WIDTH + column, mask=inside, other=0.0),)  # noqa: RUF005
    tl.debug_barrier()  # all have read
    weights = record + K_WEIGHTS
    solved = ()
    for t in tl.static_range(CHUNK):
        rest = rows[t]
        for s in tl.static_range(t):
            rest = rest - tl.load(weights + (s * CHUNK + t)) * solved[s]
        u = tl.where(t < low, rows[t], settle(tl.load(record + STRENGTHS + t) * settle(rest)))
        tl.store(u_ptr + t * WIDTH + column, u, mask=inside)
        solved = solved + (u,)  # noqa: RUF005
    tl.debug_barrier()


@triton.jit
def scan_rows(out, record, u_ptr, column, inside, WIDTH: tl.constexpr):
    """Return o of a chunk's rows, [16, N]; their u lie at u_ptr.

    Later rows are left out, not multiplied by their weight of 0: a u that overflowed would make NaN of earlier rows.
    """
    row = tl.arange(0, CHUNK)[:, None]
    for s in tl.range(0, CHUNK):
        u = tl.load(u_ptr + s * WIDTH + column, mask=inside, other=0.0)
        out = out + tl.where(row >= s, tl.load(record + Q_WEIGHTS + s * CHUNK + row) * u, 0.0)
    return out


@triton.jit
def walk_chunk(
    turned_ptr, k, v, out_ptr, skip_ptr, memory, record, u_ptr, slot, low, high, base, head, column, inside, zero, form,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """One chunk's outputs and u; the state, where the chunk is full, else the ring's u. u_ptr: scratch [16, WIDTH]."""
    row = tl.arange(0, CHUNK)[:, None]
    token, key = base + row, key_head(head, form)
    is_new = (row >= low) & (row < high)
    ring_row, ring_k, ring_u, _ = ring_of(memory, slot, head, form)
    state_ptr = state_of(memory, slot, head, form)
    turned_k, turned_q, step = turned_of(turned_ptr, base, low, high, key, form)
    x = tl.load(v.ptr + token * v.token + head * v.head + column, mask=is_new & inside, other=0.0)
    # Zeros that the compiler cannot know, so that sums lie as this load: four columns of a row to a thread.
    zeros = from_bits(bits(x) & zero)
    from_q, from_k = head_dots(
        zeros, turned_q + row, turned_k + row, step, is_new, state_ptr + column, form.V, inside, form.K, form.DELTA
    )
    fade = tl.load(record + FADES + row)
    out = settle(fade * settle(from_q))
    past = tl.load(ring_u + row * ring_row + column, mask=(row < low) & inside, other=0.0)
    rows = x - settle(fade * settle(from_k)) if form.DELTA else settle(tl.load(record + STRENGTHS + row) * x)
    u_ptrs = u_ptr + row * WIDTH + column
    tl.store(u_ptrs, tl.where(is_new, rows, past), mask=inside)
    tl.debug_barrier()
    if form.DELTA:
        solve_rows(u_ptr, record, low, column, inside, WIDTH)
    u = tl.load(u_ptrs, mask=inside, other=0.0)
    out = scan_rows(out, record, u_ptr, column, inside, WIDTH)
    if skip_ptr is not None:
        out = settle(out) + tl.load(skip_ptr + head) * x
    place = out_ptr + (token * form.HEADS + head) * form.V + column
    tl.store(place, settle(out), mask=is_new & inside)
    if high == CHUNK:
        tl.debug_barrier()  # u has been read
        tl.store(u_ptrs, settle(tl.load(record + TO_END + row) * u), mask=inside)
        tl.debug_barrier()
        move_state(
            state_ptr, ring_k, ring_row, k.ptr + key * k.head + base * k.token, k.token, low, u_ptr, WIDTH,
            u_ptr + (CHUNK - 1) * WIDTH, tl.load(record + FADES + CHUNK - 1), record, column, inside, form, True,
        )  # fmt: skip
    else:
        tl.store(ring_u + row * ring_row + column, u, mask=is_new & inside)
    tl.debug_barrier()  # before the next chunk reads the state, and writes its u


@triton.jit(do_not_specialize=BATCH_SIZES)
def prefill_kernel(
    turned_ptr, k, v, out_ptr, skip_ptr, memory, batch, record_ptr, scratch_ptr, fault_ptr, zero,
    num_seqs, num_tokens, num_slots, form, WIDTH: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs [columns of heads, sequences]: WIDTH columns of one head, for every so-manieth long sequence."""
    blocks = (form.V + WIDTH - 1) // WIDTH
    head, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    column = (block * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = column < form.V
    program = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    u_ptr = scratch_ptr + program * (CHUNK * WIDTH) - block * WIDTH
    nth = tl.program_id(1)
    b = nth_long(nth, batch.qo_ptr, num_seqs)
    wait_for_previous(CHAINED)
    while b < num_seqs:
        start, count, slot, first = run_of(
            b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        if (count > 0) & (first == 0):
            clear_state(state_of(memory, slot, head, form), column, inside, form)
            tl.debug_barrier()
        num_chunks = tl.where(count > 0, (first % CHUNK + count + CHUNK - 1) // CHUNK, 0)
        chunk = 0
        while chunk < num_chunks:
            low, high, base = chunk_rows(start, count, first, chunk)
            record = record_ptr + (piece_of(start, b, chunk) * form.HEADS + head) * RECORD_LEN
            walk_chunk(
                turned_ptr, k, v, out_ptr, skip_ptr, memory, record, u_ptr, slot, low, high, base, head, column,
                inside, zero, form, WIDTH,
            )  # fmt: skip
            chunk += 1
        nth += tl.num_programs(1)
        b = nth_long(nth, batch.qo_ptr, num_seqs)
