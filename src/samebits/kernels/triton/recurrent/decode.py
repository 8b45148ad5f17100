"""Sequences with one token in this step, and what the step leaves of the others: k and G in their rings.

A program does WIDTH columns of one head of one sequence. Its columns of S are on their way while it computes the
weights of the ring's rows; they are read once, for k . S and q . S together, the runs of K in different lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import exp
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.recurrent.row_form import (
    GATES,
    RECORD_LEN,
    clear_state,
    either,
    gates_of,
    key_head,
    move_state,
    ring_of,
    state_of,
)
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, chunk_rows, piece_of, run_of

# Scratch of a program: weights of the rows for q and for k, e^(G - G_s), then u of this token.
FOR_Q, FOR_K, TO_NOW, NEW_U = (tl.constexpr(n) for n in (0, 16, 32, 48))


@triton.jit
def pair_trees(one, two, LEVELS: tl.constexpr):
    """([N], [N]): the rows of two tensors [2 ** LEVELS, N] joined by adjacent pairs; both in one exchange."""
    both = tl.permute(tl.join(one, two), (1, 2, 0))
    N: tl.constexpr = one.shape[1]
    x = tl.reshape(both, [2 * N, one.shape[0]])
    for _ in tl.static_range(LEVELS):
        left, right = tl.split(tl.reshape(x, [2 * N, x.shape[1] // 2, 2]))
        x = left + right
    return tl.split(tl.reshape(x, [N, 2]))


@triton.jit
def load_runs(ptr, step, there, K: tl.constexpr, RUNS: tl.constexpr):
    """Element i of every run of 8, for i in 0 .. 7: a tuple of [RUNS, N]; ptr [1, N], elements of K step apart."""
    first = tl.arange(0, RUNS)[:, None] * 8
    parts = ()
    for i in tl.static_range(8):
        parts = parts + (tl.load(ptr + (first + i) * step, mask=there & (first + i < K), other=0.0),)  # noqa: RUF005
    return parts


@triton.jit
def run_dots(q_runs, k_runs, y_runs, LEVELS: tl.constexpr, BOTH: tl.constexpr):
    """(q . y, k . y) [N] over runs as load_runs gives them, in head order, not settled; the second with BOTH only."""
    one = tl.zeros([q_runs[0].shape[0], y_runs[0].shape[1]], tl.float32)
    two = one
    for i in tl.static_range(8):
        one = one + q_runs[i] * y_runs[i]
        if BOTH:
            two = two + k_runs[i] * y_runs[i]
    return pair_trees(one, two, LEVELS)


@triton.jit
def row_weights(q_runs, k_runs, k_ptr, ring_k, ring_g, ring_row, place, total, scratch, form, LEVELS: tl.constexpr):
    """Leaves FOR_Q, FOR_K and TO_NOW in scratch: of the ring's rows below `place`, and of the token's own."""
    row = tl.arange(0, CHUNK)
    there = (row <= place)[None, :]
    k_rows = either(row < place, ring_k + row * ring_row, k_ptr + row * 0)[None, :]
    q_dots, k_dots = run_dots(q_runs, k_runs, load_runs(k_rows, 1, there, form.K, 2**LEVELS), LEVELS, form.DELTA)
    gates = tl.load(ring_g + row * ring_row, mask=row < place, other=0.0)
    fades = exp(settle(total - tl.where(row == place, total, gates)))
    tl.store(scratch + FOR_Q + row, tl.where(row <= place, settle(fades * settle(q_dots)), 0.0))
    if form.DELTA:
        tl.store(scratch + FOR_K + row, tl.where(row < place, settle(fades * settle(k_dots)), 0.0))
    tl.store(scratch + TO_NOW + row, fades)


@triton.jit
def leave_u(u, k_ptr, ring_k, ring_u, ring_row, state_ptr, scratch, fade, position, first_column, column, inside, form):
    """u in the ring, or the state at the chunk's end; a sequence that begins has a state of zeros from then on."""
    place = position % CHUNK
    if position == 0:
        clear_state(state_ptr, column[None, :], inside[None, :], form)
    if place < CHUNK - 1:
        tl.store(ring_u + place * ring_row + column, u, mask=inside)
    else:
        u_ptr = scratch + NEW_U - first_column
        tl.store(u_ptr + column, u, mask=inside)
        tl.debug_barrier()
        move_state(
            state_ptr, ring_k, ring_row, k_ptr, 0, CHUNK - 1, ring_u, ring_row, u_ptr, fade, scratch + TO_NOW,
            column[None, :], inside[None, :], form, False,
        )  # fmt: skip


@triton.jit
def decode_one(
    q, k, v, out_ptr, skip_ptr, gating, memory, scratch, scale, token, slot, position, head, block, form,
    WIDTH: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """One token's output, u and state; returns its G."""
    RUNS: tl.constexpr = 2**LEVELS
    place, key = position % CHUNK, key_head(head, form)
    column = block * WIDTH + tl.arange(0, WIDTH)
    inside = column < form.V
    ring_row, ring_k, ring_u, ring_g = ring_of(memory, slot, head, form)
    state_ptr = state_of(memory, slot, head, form)
    k_ptr = k.ptr + token * k.token + key * k.head
    state_runs = load_runs((state_ptr + column)[None, :], form.V, inside[None, :] & (position > 0), form.K, RUNS)
    x = tl.load(v.ptr + token * v.token + head * v.head + column, mask=inside, other=0.0)
    element = tl.zeros([1, 1], tl.int32)
    k_runs = load_runs(k_ptr + element, 1, element == 0, form.K, RUNS)
    q_runs = load_runs(q.ptr + token * q.token + key * q.head + element, 1, element == 0, form.K, RUNS)
    g, strength = gates_of(gating, token, head, True, form)
    total = settle(tl.load(ring_g + (place - 1) * ring_row, mask=place > 0, other=0.0) + g)
    if form.DELTA:
        scaled = ()
        for i in tl.static_range(8):
            scaled = scaled + (settle(q_runs[i] * scale),)  # noqa: RUF005
        q_runs = scaled
    row_weights(q_runs, k_runs, k_ptr, ring_k, ring_g, ring_row, place, total, scratch, form, LEVELS)
    past = ()
    for s in tl.static_range(CHUNK - 1):
        past = past + (tl.load(ring_u + s * ring_row + column, mask=inside & (s < place), other=0.0),)  # noqa: RUF005
    tl.debug_barrier()  # scratch is written

    from_q, from_k = run_dots(q_runs, k_runs, state_runs, LEVELS, form.DELTA)
    fade = exp(total)
    out = settle(fade * settle(from_q))
    if form.DELTA:
        rest = x - settle(fade * settle(from_k))
        for s in tl.static_range(CHUNK - 1):
            rest = rest - tl.load(scratch + FOR_K + s) * past[s]
        u = settle(strength * settle(rest))
    else:
        u = settle(strength * x)
    for s in tl.static_range(CHUNK - 1):
        out = out + tl.where(s < place, tl.load(scratch + FOR_Q + s), 0.0) * past[s]
    out = settle(out + tl.load(scratch + FOR_Q + place) * u)
    if skip_ptr is not None:
        out = settle(out + tl.load(skip_ptr + head) * x)
    tl.store(out_ptr + (token * form.HEADS + head) * form.V + column, out, mask=inside)

    leave_u(u, k_ptr, ring_k, ring_u, ring_row, state_ptr, scratch, fade, position, block * WIDTH, column, inside, form)
    return total


@triton.jit
def keep_rows(k, memory, record_ptr, b, start, count, slot, first, head, total, form, K_PAD: tl.constexpr):
    """k and G of the rows that the next step finds in the ring: those of a chunk that is not full."""
    chunk = (first % CHUNK + count - 1) // CHUNK
    low, high, base = chunk_rows(start, count, first, chunk)
    if high < CHUNK:
        row, d = tl.arange(0, CHUNK), tl.arange(0, K_PAD)[None, :]
        is_new = (row >= low) & (row < high)
        key = key_head(head, form)
        ring_row, ring_k, _, ring_g = ring_of(memory, slot, head, form)
        gates = tl.zeros([CHUNK], tl.float32) + total
        if record_ptr is not None:
            record = record_ptr + (piece_of(start, b, chunk) * form.HEADS + head) * RECORD_LEN
            gates = tl.where(count > 1, tl.load(record + GATES + row, mask=count > 1, other=0.0), gates)
        tl.store(ring_g + row * ring_row, gates, mask=is_new)
        if (head < form.KEY_HEADS) if form.TILED else (head % (form.HEADS // form.KEY_HEADS) == 0):
            there = is_new[:, None] & (d < form.K)
            x = tl.load(k.ptr + (base + row)[:, None] * k.token + key * k.head + d, mask=there, other=0.0)
            tl.store(ring_k + row[:, None] * ring_row + d, x, mask=there)


@triton.jit(do_not_specialize=BATCH_SIZES)
def decode_kernel(
    q, k, v, out_ptr, skip_ptr, gating, memory, batch, record_ptr, scratch_ptr, fault_ptr, scale,
    num_seqs, num_tokens, num_slots,
    form, WIDTH: tl.constexpr, LEVELS: tl.constexpr, FAULTS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """Programs: columns of heads, of one sequence after another; rows of the batch that are nobody's get zeros."""
    blocks: tl.constexpr = (form.V + WIDTH - 1) // WIDTH
    b, part = tl.program_id(0) // (form.HEADS * blocks), tl.program_id(0) % (form.HEADS * blocks)
    head, block = (part // blocks).to(tl.int64), part % blocks
    start, count, slot, first = run_of(
        b, batch.qo_ptr, batch.positions_ptr, batch.slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
    )
    column = block * WIDTH + tl.arange(0, WIDTH)
    end = tl.load(batch.qo_ptr + num_seqs)
    wait_for_previous(CHAINED)
    row = end + b
    while row < num_tokens:
        place = out_ptr + (row.to(tl.int64) * form.HEADS + head) * form.V + column
        tl.store(place, tl.zeros([WIDTH], tl.float32), mask=column < form.V)
        row += num_seqs
    total = 0.0
    if count == 1:
        scratch = scratch_ptr + tl.program_id(0).to(tl.int64) * (NEW_U + WIDTH)
        total = decode_one(
            q, k, v, out_ptr, skip_ptr, gating, memory, scratch, scale, start.to(tl.int64), slot, first, head, block,
            form, WIDTH, LEVELS,
        )  # fmt: skip
    if (count > 0) & (block == 0):
        keep_rows(k, memory, record_ptr, b, start, count, slot, first, head, total, form, 8 * 2**LEVELS)
