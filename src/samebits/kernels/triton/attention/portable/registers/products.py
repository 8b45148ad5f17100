"""The kernel's two products on tiles in shared memory: PTX, or the same in Triton where there is none."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.portable.registers.memory import ROW_BYTES
from samebits.kernels.triton.attention.portable.registers.ptx import scores_ptx, values_ptx
from samebits.kernels.triton.lib.elementary import from_bits
from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.threads import THREADS

_KINDS = ("f16", "bf16")
_SCORES = tl.constexpr(tuple(scores_ptx(runs, kind) for kind in _KINDS for runs in range(1, 17)))
_SCORES_CONSTRAINTS = tl.constexpr(",".join(["=&f"] * 32 + ["r"] * 2))
_VALUES = tl.constexpr(tuple(values_ptx(rows, kind) for kind in _KINDS for rows in (4, 8)))
_VALUES_CONSTRAINTS = tl.constexpr(
    tuple(",".join(["=&f"] * (8 * rows) + ["f"] * (8 * rows) + ["r"] * 3) for rows in (4, 8))
)
_FLOATS = tl.constexpr(tuple((tl.float32,) * count for count in (32, 64)))


@triton.jit
def _number(shared_ptr, place, FORMAT: tl.constexpr):
    """The 16-bit number at `place` as float32."""
    x = tl.load(shared_ptr.to(tl.pointer_type(tl.int16)) + place // 2)
    if FORMAT == "bf16":
        return from_bits(x.to(tl.int32) << 16)
    return x.to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def score_places(thread):
    """(first row, first position) of a thread in a tile of scores: rows 0 .. 7 and positions 0, 8, 16, 24 after it."""
    return (thread // 32 % 2 * 4 + thread // 8 % 4) * 8, thread // 64 * 32 + thread % 8


@triton.jit
def tile_dots(shared_ptr, queries, keys, D: tl.constexpr, FORMAT: tl.constexpr):
    """A thread's 8 x 4 of a tile of scores, in head order.

    Piece n of 8 elements lies in its row at n ^ (row // 8), in its key at n ^ (key % 8).
    """
    row, key = score_places(tl.arange(0, THREADS))
    q_at = queries + row * ROW_BYTES + row // 8 * 16
    k_at = keys + key * ROW_BYTES + key % 8 * 16
    if EMULATE:
        return _emulated_dots(shared_ptr, q_at, k_at, D, FORMAT)
    TEXT: tl.constexpr = _SCORES[(16 if FORMAT == "bf16" else 0) + D // 8 - 1]
    return tl.inline_asm_elementwise(TEXT, _SCORES_CONSTRAINTS, [q_at, k_at], _FLOATS[0], False, 1)


@triton.jit
def _split(x, COUNT: tl.constexpr):
    """[threads, COUNT] as COUNT tensors of one element a thread."""
    if COUNT == 1:
        return (tl.reshape(x, [THREADS]),)
    else:
        low, high = tl.split(tl.permute(tl.reshape(x, [THREADS, 2, COUNT // 2]), (0, 2, 1)))
        return _split(low, COUNT // 2) + _split(high, COUNT // 2)


@triton.jit
def _emulated_dots(shared_ptr, q_at, k_at, D: tl.constexpr, FORMAT: tl.constexpr):
    q_rows = (tl.arange(0, 8) * ROW_BYTES)[None, :, None]
    k_rows = (tl.arange(0, 4) * (8 * ROW_BYTES))[None, None, :]
    level = ()
    for u in tl.static_range(16):
        chain = tl.zeros([THREADS, 8, 4], tl.float32)
        for d in tl.static_range(8):
            if 8 * u + d < D:
                q = _number(shared_ptr, (q_at ^ (16 * u))[:, None, None] + 2 * d + q_rows, FORMAT)
                chain = chain + q * _number(shared_ptr, (k_at ^ (16 * u))[:, None, None] + 2 * d + k_rows, FORMAT)
        level += (chain,)
    for _ in tl.static_range(4):
        pairs = ()
        for n in tl.static_range(len(level) // 2):
            pairs += (level[2 * n] + level[2 * n + 1],)
        level = pairs
    return _split(tl.reshape(level[0], [THREADS, 32]), 32)


@triton.jit
def value_places(thread, ROWS: tl.constexpr):
    """(first row, first column) of a thread's ROWS x 8 sums of values."""
    WARPS: tl.constexpr = 16 // ROWS  # below each other
    return (thread // 32 % WARPS * 4 + thread // 8 % 4) * ROWS, (thread // (32 * WARPS) * 8 + thread % 8) * 8


@triton.jit
def add_values(shared_ptr, sums, weights, values, runs, ROWS: tl.constexpr, FORMAT: tl.constexpr):
    """A thread's ROWS x 8 sums plus `runs` runs of weights [position, row] times values [position, column]."""
    thread = tl.arange(0, THREADS)
    row, column = value_places(thread, ROWS)
    p_at = weights + row * 4
    v_at = values + column * 2
    if EMULATE:
        return _emulated_values(shared_ptr, sums, p_at, v_at, runs, ROWS, FORMAT)
    count = thread * 0 + runs
    WIDE: tl.constexpr = 1 if ROWS == 8 else 0
    TEXT: tl.constexpr = _VALUES[(2 if FORMAT == "bf16" else 0) + WIDE]
    args = sums
    args += (p_at, v_at, count)
    return tl.inline_asm_elementwise(TEXT, _VALUES_CONSTRAINTS[WIDE], args, _FLOATS[WIDE], False, 1)


@triton.jit
def _emulated_values(shared_ptr, sums, p_at, v_at, runs, ROWS: tl.constexpr, FORMAT: tl.constexpr):
    rows = tl.arange(0, ROWS)[None, :, None]
    columns = tl.arange(0, 8)[None, None, :]
    at = 0
    while at < runs * 16:
        chain = tl.zeros([THREADS, ROWS, 8], tl.float32)
        for n in tl.static_range(16):
            offset = (at + n) * ROW_BYTES
            p = tl.load(shared_ptr.to(tl.pointer_type(tl.float32)) + (p_at + offset)[:, None, None] // 4 + rows)
            chain = chain + p * _number(shared_ptr, (v_at + offset)[:, None, None] + 2 * columns, FORMAT)
        chains = _split(tl.reshape(chain, [THREADS, 8 * ROWS]), 8 * ROWS)
        added = ()
        for k in tl.static_range(8 * ROWS):
            added += (sums[k] + chains[k],)
        sums = added
        at += 16
    return sums
