"""Weights of the rows of every chunk with several tokens in this step: they do not depend on the state.

For one chunk after another a program does the value heads of one key head, or some, and leaves a record for each:
  Q_WEIGHTS  e^(G_t - G_s) (q_t . k_s) at [s][t], +0 where t is not of this step or before s
  K_WEIGHTS  e^(G_t - G_s) (k_t . k_s) alike, +0 at t = s too; of the delta rule
  FADES, STRENGTHS, TO_END, GATES  e^G_t, beta_t or dt_t, e^(G_15 - G_t), G_t
It also leaves k and q of the chunk turned, elements by rows, where a program that computes with all rows together reads
a line for each element: for each key head [K][rows of this step] of k, then of q, which is scaled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import exp
from samebits.kernels.triton.lib.settling import settle
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
    head_dots,
    ring_of,
    turned_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, nth_chunk, piece_of, run_of


@triton.jit
def turn_rows(q, k, token, key, row, is_new, turned_k, turned_q, step, scale, form, K_PAD: tl.constexpr):
    """Stores k and q turned; the whole program sees them afterwards."""
    d = tl.arange(0, K_PAD)[None, :]
    row, token, there = row[:, None], token[:, None], is_new[:, None] & (d < form.K)
    x = tl.load(k.ptr + token * k.token + key * k.head + d, mask=there, other=0.0)
    tl.store(turned_k + d * step + row, x, mask=there)
    x = tl.load(q.ptr + token * q.token + key * q.head + d, mask=there, other=0.0)
    tl.store(turned_q + d * step + row, settle(x * scale), mask=there)
    tl.debug_barrier()


@triton.jit
def gates_of_rows(gating, record, ring_g, ring_row, token, row, low, high, head, form):
    """(G, strength, G of the last row) of a chunk; G [16] is +0 from `high` on.

    The gates pass through the record: every thread adds them up by itself.
    """
    g, strength = gates_of(gating, token, head, (row >= low) & (row < high), form)
    tl.store(record + GATES + row, g)
    gates = tl.load(ring_g + row * ring_row, mask=row < low, other=0.0)
    total = tl.load(ring_g + (low - 1).to(tl.int64) * ring_row, mask=low > 0, other=0.0)
    tl.debug_barrier()
    for t in tl.static_range(CHUNK):
        total = tl.where((t >= low) & (t < high), settle(total + tl.load(record + GATES + t)), total)
        gates = tl.where((row == t) & (t >= low) & (t < high), total, gates)
    tl.debug_barrier()  # before G takes their place
    return gates, strength, total


@triton.jit
def store_record(record, gates, strength, last, q_dots, k_dots, row, low, high, form):
    """`last` is G of the chunk's last row."""
    t, s = tl.expand_dims(row, 1), tl.expand_dims(row, 0)
    fades = exp(settle(gates[:, None] - gates[None, :]))
    is_new = (t >= low) & (t < high)
    place = s * CHUNK + t
    tl.store(record + Q_WEIGHTS + place, tl.where(is_new & (s <= t), settle(fades * q_dots), 0.0))
    if form.DELTA:
        tl.store(record + K_WEIGHTS + place, tl.where(is_new & (s < t), settle(fades * k_dots), 0.0))
    tl.store(record + FADES + row, exp(gates))
    tl.store(record + STRENGTHS + row, strength)
    tl.store(record + TO_END + row, exp(settle(last - gates)))
    tl.store(record + GATES + row, gates)


@triton.jit
def chunk_weights(
    q, k, gating, memory, record_ptr, turned_ptr, scale, slot, low, high, base, key, part, form,
    K_PAD: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """The records of one chunk, from record_ptr on, and its k and q turned."""
    share = form.HEADS // form.KEY_HEADS
    row = tl.arange(0, CHUNK)
    token = base + row
    is_new = (row >= low) & (row < high)
    turned_k, turned_q, step = turned_of(turned_ptr, base, low, high, key, form)
    turn_rows(q, k, token, key, row, is_new, turned_k, turned_q, step, scale, form, K_PAD)
    ring_row, ring_k, _, _ = ring_of(memory, slot, key if form.TILED else key * share, form)
    k_ptrs = either(row < low, ring_k + row * ring_row, k.ptr + token * k.token + key * k.head)
    q_dots, k_dots = head_dots(
        tl.zeros([CHUNK, CHUNK], tl.float32), (turned_q + row)[:, None], (turned_k + row)[:, None], step,
        is_new[:, None], k_ptrs[None, :], 1, (row < high)[None, :], form.K, form.DELTA,
    )  # fmt: skip
    q_dots, k_dots = settle(q_dots), settle(k_dots)
    i = part * SHARE
    while i < tl.minimum(part * SHARE + SHARE, share):
        head = key + i * form.KEY_HEADS if form.TILED else key * share + i
        _, _, _, ring_g = ring_of(memory, slot, head, form)
        record = record_ptr + head * RECORD_LEN
        gates, strength, last = gates_of_rows(gating, record, ring_g, ring_row, token, row, low, high, head, form)
        store_record(record, gates, strength, last, q_dots, k_dots, row, low, high, form)
        i += 1


@triton.jit(do_not_specialize=BATCH_SIZES)
def weights_kernel(
    q, k, gating, memory, batch, record_ptr, turned_ptr, fault_ptr, scale, num_seqs, num_tokens, num_slots,
    form, K_PAD: tl.constexpr, SHARE: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs [parts of key heads, chunks]: SHARE value heads of one key head, of every so-manieth chunk."""
    parts = (form.HEADS // form.KEY_HEADS + SHARE - 1) // SHARE
    key, part, nth = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts, tl.program_id(1)
    b, chunk = nth_chunk(nth, batch.qo_ptr, batch.positions_ptr, num_seqs, num_tokens)
    wait_for_previous(CHAINED)
    while b < num_seqs:
        start, count, slot, first = run_of(
            b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        low, high, base = chunk_rows(start, count, first, chunk)
        if high > low:
            chunk_weights(
                q, k, gating, memory, record_ptr + piece_of(start, b, chunk) * (form.HEADS * RECORD_LEN), turned_ptr,
                scale, slot, low, high, base, key, part, form, K_PAD, SHARE,
            )  # fmt: skip
        nth += tl.num_programs(1)
        b, chunk = nth_chunk(nth, batch.qo_ptr, batch.positions_ptr, num_seqs, num_tokens)
