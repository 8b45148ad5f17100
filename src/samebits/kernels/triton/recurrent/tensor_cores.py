"""Sequences with several tokens in this step, in the fast tier: a chunk's sums on tensor cores, of bfloat16 operands.

As registers/kernel.py, a program keeps columns of one head's state over all chunks of a sequence, here turned: S^T
[WIDTH, K] stays where its sums are made and is an operand of the next chunk without a way through memory. Weights come
from registers/weights.py; the rows' u are one product with the inverse of what solves them, made before.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.fast.tile import dot
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.recurrent.row_form import (
    FADES,
    K_WEIGHTS,
    Q_WEIGHTS,
    RECORD_LEN,
    STRENGTHS,
    TO_END,
    key_head,
    ring_of,
    state_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, nth_long, piece_of, run_of


@triton.jit
def _square(x, y):
    """x y [16, 16] in float32."""
    return tl.dot(x, y, input_precision="ieee")


@triton.jit
def solving_kernel(record_ptr, CHAINED: tl.constexpr):
    """K_WEIGHTS of a record become (I + N)^-1, N[s][t] = beta_t K_WEIGHTS[s][t], with which u^T = rows^T (I + N)^-1.

    N is above the diagonal, so that N^16 is 0. A row of an earlier step has no weights and stays as it is.
    """
    wait_for_previous(CHAINED)
    record = record_ptr + tl.program_id(0).to(tl.int64) * RECORD_LEN
    s, t = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    place = record + K_WEIGHTS + s * CHUNK + t
    one = tl.where(s == t, 1.0, 0.0)
    power = tl.load(place) * tl.load(record + STRENGTHS + t)
    inverse = one - power
    for _ in tl.static_range(3):
        power = _square(power, power)
        inverse = _square(inverse, one + power)
    tl.store(place, inverse)


@triton.jit
def _halves(x):
    """(x in bfloat16, what that leaves of it in bfloat16)."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _close_dot(x, y, acc, EMULATE: tl.constexpr):
    """acc + x y of float32 operands, to 16 bits: sums over rows cancel, and are short."""
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    return dot(x_high, y_high, dot(x_high, y_low, dot(x_low, y_high, acc, EMULATE), EMULATE), EMULATE)


@triton.jit
def chunk_step(
    state, scaled_ptr, k, v, out_ptr, memory, record, slot, low, high, base, head, column, form, EMULATE: tl.constexpr
):
    """The state after a chunk, S^T [WIDTH, K], which is the one before where the chunk is not full; stores the chunk's
    outputs, and u in the ring of one that is not full."""
    row, d = tl.arange(0, CHUNK), tl.arange(0, form.K)[None, :]
    token, key = base + row, key_head(head, form)
    is_new, is_past, is_full = (row >= low) & (row < high), row < low, high == CHUNK
    ring_row, ring_k, ring_u, _ = ring_of(memory, slot, head, form)
    column = column[:, None]
    keys = tl.load(k.ptr + token[:, None] * k.token + key * k.head + d, mask=is_new[:, None], other=0.0)
    keys += tl.load(ring_k + row[:, None] * ring_row + d, mask=is_past[:, None], other=0.0)
    queries = tl.load(
        scaled_ptr + (token[:, None] * form.KEY_HEADS + key) * form.K + d, mask=is_new[:, None], other=0.0
    )
    x = tl.load(v.ptr + token[None, :] * v.token + head * v.head + column, mask=is_new[None, :], other=0.0)
    past = tl.load(ring_u + row[None, :] * ring_row + column, mask=is_past[None, :], other=0.0)
    weights = record + row[:, None] * CHUNK + row[None, :]
    solving, scan = tl.load(weights + K_WEIGHTS), tl.load(weights + Q_WEIGHTS)
    fade, to_end = tl.load(record + FADES + row)[None, :], tl.load(record + TO_END + row)[None, :]
    last_fade = tl.load(record + FADES + CHUNK - 1)
    keys, short = keys.to(tl.bfloat16), state.to(tl.bfloat16)
    nothing = tl.zeros([state.shape[0], CHUNK], tl.float32)
    from_k = dot(short, tl.trans(keys), nothing, EMULATE)
    from_q = dot(short, tl.trans(queries.to(tl.bfloat16)), nothing, EMULATE)
    rows = tl.where(is_new[None, :], tl.load(record + STRENGTHS + row)[None, :] * (x - fade * from_k), past)
    u = _close_dot(rows, solving, nothing, EMULATE)
    out = _close_dot(u, scan, fade * from_q, EMULATE)
    place = out_ptr + (token[None, :] * form.HEADS + head) * form.V + column
    tl.store(place, settle(out), mask=is_new[None, :])
    tl.store(ring_u + row[None, :] * ring_row + column, settle(u), mask=is_new[None, :] & (is_full == 0))
    high, low_part = _halves(u * to_end)
    moved = dot(high, keys, dot(low_part, keys, last_fade * state, EMULATE), EMULATE)
    return tl.where(is_full, moved, state)


@triton.jit(do_not_specialize=BATCH_SIZES)
def prefill_tensor_cores(
    scaled_ptr, k, v, out_ptr, memory, batch, record_ptr, fault_ptr, num_seqs, num_tokens, num_slots, form,
    WIDTH: tl.constexpr, STAGES: tl.constexpr, EMULATE: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs [columns of heads, sequences]: WIDTH columns of one head, for every so-manieth long sequence."""
    blocks: tl.constexpr = form.V // WIDTH
    head = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * WIDTH + tl.arange(0, WIDTH)
    nth = tl.program_id(1)
    b = nth_long(nth, batch.qo_ptr, num_seqs)
    wait_for_previous(CHAINED)
    while b < num_seqs:
        start, count, slot, first = run_of(
            b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        state_ptrs = state_of(memory, slot, head, form) + tl.arange(0, form.K)[None, :] * form.V + column[:, None]
        state = tl.load(state_ptrs, mask=(count > 0) & (first > 0), other=0.0)
        num_chunks = tl.where(count > 0, (first % CHUNK + count + CHUNK - 1) // CHUNK, 0)
        if EMULATE:  # the interpreter's `range` takes no bounds from memory
            chunk = 0
            while chunk < num_chunks:
                low, high, base = chunk_rows(start, count, first, chunk)
                record = record_ptr + (piece_of(start, b, chunk) * form.HEADS + head) * RECORD_LEN
                state = chunk_step(
                    state, scaled_ptr, k, v, out_ptr, memory, record, slot, low, high, base, head, column, form,
                    EMULATE,
                )  # fmt: skip
                chunk += 1
        else:
            for chunk in tl.range(0, num_chunks, num_stages=STAGES):
                low, high, base = chunk_rows(start, count, first, chunk)
                record = record_ptr + (piece_of(start, b, chunk) * form.HEADS + head) * RECORD_LEN
                state = chunk_step(
                    state, scaled_ptr, k, v, out_ptr, memory, record, slot, low, high, base, head, column, form,
                    EMULATE,
                )  # fmt: skip
        tl.store(state_ptrs, settle(state), mask=count > 0)
        nth += tl.num_programs(1)
        b = nth_long(nth, batch.qo_ptr, num_seqs)
