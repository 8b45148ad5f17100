"""Where things lie in shared memory, in bytes, and the copies of a chunk into it.

Rows of k, of q and of sums have 512 bytes, 128 for each warp: its quarter of K, or its sums of 32 columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.threads import COMMIT, THREADS, copies, start_copy
from samebits.kernels.triton.recurrent.registers.ptx import COLUMN_BYTES as _COLUMN_BYTES
from samebits.kernels.triton.recurrent.registers.ptx import ROW_BYTES as _ROW_BYTES
from samebits.kernels.triton.recurrent.row_form import RECORD_LEN, either, key_head, ring_of
from samebits.kernels.triton.recurrent.runs import CHUNK

ROW_BYTES, COLUMN_BYTES = tl.constexpr(_ROW_BYTES), tl.constexpr(_COLUMN_BYTES)
TILE_BYTES = tl.constexpr(16 * _ROW_BYTES)
# q, whose rows become its sums; the sums of k; two tiles of k; v; u; the faded u; the chunk's record.
Q_AT, K_SUMS_AT, K_AT = (tl.constexpr(n * 16 * _ROW_BYTES) for n in range(3))
V_AT, U_AT, FADED_AT, RECORD_AT = (tl.constexpr(4 * 16 * _ROW_BYTES + n * 16 * _COLUMN_BYTES) for n in range(4))
SHARED_BYTES = RECORD_AT.value + 4 * RECORD_LEN.value

_MEMORY = tl.constexpr(f"{{ .shared .align 1024 .b8 rows[{SHARED_BYTES}]; mov.u32 $0, rows; }}")


@triton.jit
def shared_memory(thread):
    """The address of SHARED_BYTES."""
    if EMULATE:
        return thread * 0
    return tl.inline_asm_elementwise(_MEMORY, "=r,r", [thread], tl.int32, False, 1)


@triton.jit
def copy_chunk(
    shared_ptr, memory, k_at, scaled_ptr, k, v, slots, record, slot, low, high, base, head, column, form,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Starts the copies of a chunk's rows and record: k to k_at, WIDTH columns of v; rows below `low` from the ring."""
    thread = tl.arange(0, THREADS)
    row, piece = thread // 8, thread % 8
    token, key = base + row, key_head(head, form)
    ring_row, ring_k, ring_u, _ = ring_of(slots, slot, head, form)
    k_row = either(row < low, ring_k + row * ring_row, k.ptr + token * k.token + key * k.head)
    q_row = scaled_ptr + (token * form.KEY_HEADS + key) * form.K
    QUARTER: tl.constexpr = form.K // 4
    for n in tl.static_range(form.K // 32):
        element = (n * 8 + piece) * 4
        place = memory + row * ROW_BYTES + element // QUARTER * COLUMN_BYTES + element % QUARTER * 4
        start_copy(shared_ptr, place + k_at, k_row + element, row < high)
        start_copy(shared_ptr, place + Q_AT, q_row + element, (row >= low) & (row < high))
    v_row = either(row < low, ring_u + row * ring_row, v.ptr + token * v.token + head * v.head)
    piece = piece % (WIDTH // 4)  # with 16 columns, two threads copy the same
    start_copy(shared_ptr, memory + V_AT + row * COLUMN_BYTES + piece * 16, v_row + column + piece * 4, row < high)
    for n in tl.static_range((RECORD_LEN + 4 * THREADS - 1) // (4 * THREADS)):
        at = (n * THREADS + thread) * 4
        if n * THREADS * 4 + THREADS * 4 <= RECORD_LEN:
            start_copy(shared_ptr, memory + RECORD_AT + at * 4, record + at, row < CHUNK)
        else:
            # What lies past the record is copied onto its own end.
            last = tl.minimum(at, RECORD_LEN - 4)
            start_copy(shared_ptr, memory + RECORD_AT + last * 4, record + last, row < CHUNK)
    copies(COMMIT)
