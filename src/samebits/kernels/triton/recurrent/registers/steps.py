"""The long steps of a chunk: PTX, or the same in Triton where there is none.

A thread's state is a tuple: 8 elements of K, one run, of each of its columns. Lanes that follow each other have the
runs of a warp's part of K, then come the next columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.registry import EMULATE
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.threads import load_shared, store_shared
from samebits.kernels.triton.recurrent.registers.memory import COLUMN_BYTES, ROW_BYTES
from samebits.kernels.triton.recurrent.registers.ptx import dots_ptx, move_ptx, solve_ptx
from samebits.kernels.triton.recurrent.runs import CHUNK

# Texts are found by columns // 2, of a thread; those with as many lanes for a warp's runs come before those with twice.
_COLUMNS = (1, 2, 4)
_DOTS = tl.constexpr(tuple(dots_ptx(columns, more * columns) for more in (1, 2) for columns in _COLUMNS))
_DOTS_CONSTRAINTS = tl.constexpr(tuple(",".join(["=r", *["f"] * 8 * columns, "r", "r", "r"]) for columns in _COLUMNS))
_MOVE = tl.constexpr(tuple(move_ptx(columns) for columns in _COLUMNS))
_MOVE_CONSTRAINTS = tl.constexpr(
    tuple(",".join([*["=&f"] * 8 * columns, *["f"] * 8 * columns, "f", "r", "r"]) for columns in _COLUMNS)
)
_FLOATS = tl.constexpr(tuple((tl.float32,) * 8 * columns for columns in _COLUMNS))
_SOLVE = tl.constexpr(solve_ptx())


@triton.jit
def first_column(thread, LANES: tl.constexpr, COLUMNS: tl.constexpr):
    """The first of a thread's columns, of a program's."""
    return thread % 32 // LANES * COLUMNS


@triton.jit
def kept_column(thread, LANES: tl.constexpr, COLUMNS: tl.constexpr):
    """The column, of a program's, whose sums a thread stores; two threads may store the same."""
    within = thread % 2 * 2 + thread // 2 % 2 if COLUMNS == 4 else thread % COLUMNS
    return first_column(thread, LANES, COLUMNS) + within


@triton.jit
def run_bytes(thread, LANES: tl.constexpr):
    """Where a thread's run of K lies in a row, in bytes."""
    return thread // 32 * COLUMN_BYTES + thread % LANES * 32


@triton.jit
def _joined(sums, thread, LANES: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums [threads, rows] of the kept column over the runs of LANES lanes, by adjacent pairs."""
    next_one, next_two = (thread ^ 1)[:, None] + tl.zeros_like(sums[0]).to(tl.int32), (thread ^ 2)[:, None]
    is_high, is_second = (thread % 2 == 1)[:, None], (thread // 2 % 2 == 1)[:, None]
    if COLUMNS == 1:
        kept, given = sums, sums
    elif COLUMNS == 2:
        kept, given = (tl.where(is_high, sums[1], sums[0]),), (tl.where(is_high, sums[0], sums[1]),)
    else:
        kept = tl.where(is_high, sums[2], sums[0]), tl.where(is_high, sums[3], sums[1])
        given = tl.where(is_high, sums[0], sums[2]), tl.where(is_high, sums[1], sums[3])
    joined = ()
    for n in tl.static_range(len(kept)):
        joined += (kept[n] + tl.gather(given[n], next_one, 0),)
    next_two = next_two + tl.zeros_like(sums[0]).to(tl.int32)
    if LANES == 1:
        return sums[0]
    elif LANES == 2:
        return joined[0]
    elif COLUMNS == 4:
        other = tl.where(is_second, joined[0], joined[1])
        return tl.where(is_second, joined[1], joined[0]) + tl.gather(other, next_two, 0)
    else:
        return joined[0] + tl.gather(joined[0], next_two, 0)


@triton.jit
def store_dots(shared_ptr, state, thread, rows, to, LANES: tl.constexpr):
    """Every row's sum over this warp's part of K, from the rows at `rows` to the sums at `to`; both may be the same."""
    COLUMNS: tl.constexpr = len(state) // 8
    at = rows + run_bytes(thread, LANES)
    sums_at = to + thread // 32 * COLUMN_BYTES + kept_column(thread, LANES, COLUMNS) * 4
    if EMULATE:
        row = (tl.arange(0, CHUNK) * ROW_BYTES)[None, :]
        sums = ()
        for c in tl.static_range(COLUMNS):
            chain = load_shared(shared_ptr, at[:, None] + row) * state[8 * c][:, None]
            for i in tl.static_range(1, 8):
                chain = chain + load_shared(shared_ptr, at[:, None] + row + 4 * i) * state[8 * c + i][:, None]
            sums += (chain,)
        store_shared(shared_ptr, sums_at[:, None] + row, _joined(sums, thread, LANES, COLUMNS))
    else:
        args = state
        args += (at, sums_at, thread)
        TEXT: tl.constexpr = _DOTS[COLUMNS // 2 + (0 if LANES == COLUMNS else 3)]
        tl.inline_asm_elementwise(TEXT, _DOTS_CONSTRAINTS[COLUMNS // 2], args, tl.int32, False, 1)


@triton.jit
def solve_rows(shared_ptr, thread, numbers, weights, strengths, low):
    """u in the place of `numbers`, a column a lane: rows below `low` hold theirs already, as in ../prefill.py."""
    if EMULATE:
        row = tl.arange(0, CHUNK)[None, :]
        rest = load_shared(shared_ptr, numbers[:, None] + row * COLUMN_BYTES)
        for s in tl.static_range(CHUNK):
            x = tl.sum(tl.where(row == s, rest, 0.0), axis=1)
            u = tl.where(s < low, x, settle(load_shared(shared_ptr, strengths + s * 4) * settle(x)))
            store_shared(shared_ptr, numbers + s * COLUMN_BYTES, u)
            w = load_shared(shared_ptr, weights[:, None] + (s * CHUNK + row) * 4)
            rest = tl.where((row > s) & (row >= low), rest - w * u[:, None], rest)
    else:
        args = [thread, numbers, weights, strengths, thread * 0 + low.to(tl.int32)]
        tl.inline_asm_elementwise(_SOLVE, "=r,r,r,r,r,r", args, tl.int32, False, 1)


@triton.jit
def moved_state(shared_ptr, state, thread, fade, k_rows, u_rows, LANES: tl.constexpr):
    """The state at a full chunk's end, of k's rows and the faded u's; fade is e^G_15."""
    COLUMNS: tl.constexpr = len(state) // 8
    k_at = k_rows + run_bytes(thread, LANES)
    u_at = u_rows + first_column(thread, LANES, COLUMNS) * 4
    if EMULATE:
        moved = ()
        for n in tl.static_range(8 * COLUMNS):
            moved += (settle(fade * state[n]),)
        for s in tl.static_range(CHUNK):
            added = ()
            for c in tl.static_range(COLUMNS):
                u = load_shared(shared_ptr, u_at + s * COLUMN_BYTES + 4 * c)
                for i in tl.static_range(8):
                    added += (moved[8 * c + i] + load_shared(shared_ptr, k_at + s * ROW_BYTES + 4 * i) * u,)
            moved = added
        settled = ()
        for n in tl.static_range(8 * COLUMNS):
            settled += (settle(moved[n]),)
        return settled
    args = state
    args += (fade, k_at, u_at)
    CONSTRAINTS: tl.constexpr = _MOVE_CONSTRAINTS[COLUMNS // 2]
    return tl.inline_asm_elementwise(_MOVE[COLUMNS // 2], CONSTRAINTS, args, _FLOATS[COLUMNS // 2], False, 1)
