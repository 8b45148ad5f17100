"""Weights of the rows of every chunk with several tokens in this step: they do not depend on the state.

A program does one chunk and the value heads of one key head, or some of them, and leaves a record for each:
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
from samebits.kernels.triton.lib.elementary import bits, exp, from_bits
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
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, piece_of, run_of


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
def gates_of_rows(gating, ring_g, ring_row, token, row, low, high, head, form):
    """(G, strength) of the rows [16] of a chunk, +0 from `high` on."""
    is_new = (row >= low) & (row < high)
    g, strength = gates_of(gating, token, head, is_new, form)
    gates = tl.load(ring_g + row * ring_row, mask=row < low, other=0.0)
    total = tl.load(ring_g + (low - 1) * ring_row, mask=low > 0, other=0.0)
    for t in tl.range(0, CHUNK):
        if (t >= low) & (t < high):
            total = settle(total + from_bits(tl.sum(tl.where(row == t, bits(g), 0), axis=0)))
            gates = tl.where(row == t, total, gates)
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


@triton.jit(do_not_specialize=BATCH_SIZES)
def weights_kernel(
    q, k, gating, memory, batch, record_ptr, turned_ptr, fault_ptr, scale, num_seqs, num_tokens, num_slots,
    form, K_PAD: tl.constexpr, SHARE: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """SHARE value heads of one key head a program; the others of that key head are done by its neighbours."""
    share = form.HEADS // form.KEY_HEADS
    parts = (share + SHARE - 1) // SHARE
    key, part, piece = tl.program_id(0) // parts, tl.program_id(0) % parts, tl.program_id(1)
    b, nth = piece_of(piece, batch.qo_ptr, num_seqs)
    start, count, slot, first = run_of(
        b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
    )
    low, high, base = chunk_rows(start, count, first, nth)
    wait_for_previous(CHAINED)
    if (count > 1) & (high > low):
        row = tl.arange(0, CHUNK)
        token = base + row
        is_new = (row >= low) & (row < high)
        turned_k, turned_q, step = turned_of(turned_ptr, base, low, high, key, form)
        turn_rows(q, k, token, key, row, is_new, turned_k, turned_q, step, scale, form, K_PAD)
        head = key if form.TILED else key * share
        ring_row, ring_k, _, _ = ring_of(memory, slot, head, form)
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
            gates, strength, last = gates_of_rows(gating, ring_g, ring_row, token, row, low, high, head, form)
            record = record_ptr + (piece.to(tl.int64) * form.HEADS + head) * RECORD_LEN
            store_record(record, gates, strength, last, q_dots, k_dots, row, low, high, form)
            i += 1
