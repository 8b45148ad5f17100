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

_COLUMNS = (1, 2, 4)  # of a thread; texts are found by columns // 2
_DOTS = tl.constexpr(tuple(dots_ptx(columns) for columns in _COLUMNS))
_DOTS_CONSTRAINTS = tl.constexpr(tuple(",".join(["=r", *["f"] * 8 * columns, "r", "r", "r"]) for columns in _COLUMNS))
_MOVE = tl.constexpr(tuple(move_ptx(columns) for columns in _COLUMNS))
_MOVE_CONSTRAINTS = tl.constexpr(
    tuple(",".join([*["=&f"] * 8 * columns, *["f"] * 8 * columns, "f", "r", "r"]) for columns in _COLUMNS)
)
_FLOATS = tl.constexpr(tuple((tl.float32,) * 8 * columns for columns in _COLUMNS))
_SOLVE = tl.constexpr(solve_ptx())


@triton.jit
def first_column(thread, COLUMNS: tl.constexpr):
    """The first of a thread's columns, of a program's 32."""
    return thread % 32 // COLUMNS * COLUMNS


@triton.jit
def kept_column(thread, COLUMNS: tl.constexpr):
    """The column, of a program's 32, whose sums a thread stores."""
    within = thread % 2 * 2 + thread // 2 % 2 if COLUMNS == 4 else thread % COLUMNS
    return first_column(thread, COLUMNS) + within


@triton.jit
def run_bytes(thread, COLUMNS: tl.constexpr):
    """Where a thread's run of K lies in a row, in bytes."""
    return thread // 32 * COLUMN_BYTES + thread % COLUMNS * 32


@triton.jit
def _joined(sums, thread, COLUMNS: tl.constexpr):
    """The sum of the kept column over the warp's runs, by adjacent pairs."""
    if COLUMNS == 1:
        return sums[0]
    elif COLUMNS == 2:
        is_high = thread % 2 == 1
        other = tl.gather(tl.where(is_high, sums[0], sums[1]), thread ^ 1, 0)
        return tl.where(is_high, sums[1], sums[0]) + other
    else:
        is_high = thread % 2 == 1
        one = tl.gather(tl.where(is_high, sums[0], sums[2]), thread ^ 1, 0)
        two = tl.gather(tl.where(is_high, sums[1], sums[3]), thread ^ 1, 0)
        one, two = tl.where(is_high, sums[2], sums[0]) + one, tl.where(is_high, sums[3], sums[1]) + two
        is_high = thread // 2 % 2 == 1
        return tl.where(is_high, two, one) + tl.gather(tl.where(is_high, one, two), thread ^ 2, 0)


@triton.jit
def store_dots(shared_ptr, state, thread, rows, to, COLUMNS: tl.constexpr):
    """Every row's sum over this warp's part of K, from the rows at `rows` to the sums at `to`; both may be the same."""
    at = rows + run_bytes(thread, COLUMNS)
    sums_at = to + thread // 32 * COLUMN_BYTES + kept_column(thread, COLUMNS) * 4
    if EMULATE:
        for t in tl.static_range(CHUNK):
            sums = ()
            for c in tl.static_range(COLUMNS):
                chain = load_shared(shared_ptr, at + t * ROW_BYTES) * state[8 * c]
                for i in tl.static_range(1, 8):
                    chain = chain + load_shared(shared_ptr, at + t * ROW_BYTES + 4 * i) * state[8 * c + i]
                sums += (chain,)
            store_shared(shared_ptr, sums_at + t * ROW_BYTES, _joined(sums, thread, COLUMNS))
    else:
        args = state
        args += (at, sums_at, thread)
        tl.inline_asm_elementwise(_DOTS[COLUMNS // 2], _DOTS_CONSTRAINTS[COLUMNS // 2], args, tl.int32, False, 1)


@triton.jit
def solve_rows(shared_ptr, thread, numbers, weights, strengths, low):
    """u in the place of `numbers`, a column a lane: rows below `low` hold theirs already."""
    if EMULATE:
        rest = ()
        for t in tl.static_range(CHUNK):
            rest += (load_shared(shared_ptr, numbers + t * COLUMN_BYTES),)
        solved = ()
        for t in tl.static_range(CHUNK):
            x = rest[t]
            for s in tl.static_range(t):
                x = x - load_shared(shared_ptr, weights + (s * CHUNK + t) * 4) * solved[s]
            u = tl.where(t < low, x, settle(load_shared(shared_ptr, strengths + t * 4) * settle(x)))
            store_shared(shared_ptr, numbers + t * COLUMN_BYTES, u)
            solved += (u,)
    else:
        args = [thread, numbers, weights, strengths, thread * 0 + low.to(tl.int32)]
        tl.inline_asm_elementwise(_SOLVE, "=r,r,r,r,r,r", args, tl.int32, False, 1)


@triton.jit
def moved_state(shared_ptr, state, thread, fade, k_rows, u_rows, COLUMNS: tl.constexpr):
    """The state at a full chunk's end, of k's rows and the faded u's; fade is e^G_15."""
    k_at = k_rows + run_bytes(thread, COLUMNS)
    u_at = u_rows + first_column(thread, COLUMNS) * 4
    if EMULATE:
        moved = ()
        for c in tl.static_range(COLUMNS):
            for i in tl.static_range(8):
                x = settle(fade * state[8 * c + i])
                for s in tl.static_range(CHUNK):
                    k = load_shared(shared_ptr, k_at + s * ROW_BYTES + 4 * i)
                    x = x + k * load_shared(shared_ptr, u_at + s * COLUMN_BYTES + 4 * c)
                moved += (settle(x),)
        return moved
    args = state
    args += (fade, k_at, u_at)
    CONSTRAINTS: tl.constexpr = _MOVE_CONSTRAINTS[COLUMNS // 2]
    return tl.inline_asm_elementwise(_MOVE[COLUMNS // 2], CONSTRAINTS, args, _FLOATS[COLUMNS // 2], False, 1)
