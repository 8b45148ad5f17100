"""Scores of paged_attention for every cache format: a few heads of one query against a tile of positions."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.call import BAD_QUERY, BAD_SCORE
from samebits.kernels.triton.attention.sequences import as_operand, in_range
from samebits.kernels.triton.lib.int8_blocks import int8_blocks
from samebits.kernels.triton.lib.rows import fault_where

BLOCK = tl.constexpr(32)
MAX_HEAD_SIZE = 4096  # four trees of 128 runs of 8


@triton.jit
def chain8(x, total):
    """[R, N, 8 * C] to [R, N, C]: runs of 8 consecutive elements, each a chain that goes on from total."""
    a: tl.constexpr = x.shape[0]
    b: tl.constexpr = x.shape[1]
    c: tl.constexpr = x.shape[2] // 8
    even, odd = tl.split(tl.reshape(x, [a, b, c * 4, 2]))
    e0, e1 = tl.split(tl.reshape(even, [a, b, c * 2, 2]))
    o0, o1 = tl.split(tl.reshape(odd, [a, b, c * 2, 2]))
    x0, x4 = tl.split(tl.reshape(e0, [a, b, c, 2]))
    x2, x6 = tl.split(tl.reshape(e1, [a, b, c, 2]))
    x1, x5 = tl.split(tl.reshape(o0, [a, b, c, 2]))
    x3, x7 = tl.split(tl.reshape(o1, [a, b, c, 2]))
    return (((((((total + x0) + x1) + x2) + x3) + x4) + x5) + x6) + x7


@triton.jit
def chain16(x):
    """[A, B, 16] to [A, B]: a chain from +0 over the last axis."""
    a: tl.constexpr = x.shape[0]
    b: tl.constexpr = x.shape[1]
    low, high = tl.split(tl.permute(tl.reshape(x, [a, b, 2, 8]), (0, 1, 3, 2)))
    return tl.reshape(chain8(high, chain8(low, tl.zeros([a, b, 1], tl.float32))), [a, b])


@triton.jit
def run_of_8(q_ptrs, k_ptrs, first, real, readable, fault_ptr, FORMAT: tl.constexpr, D: tl.constexpr):
    """[R, N]: a chain over elements first .. first + 7."""
    node = tl.zeros([q_ptrs.shape[0], k_ptrs.shape[0]], tl.float32)
    for i in tl.static_range(8):
        d = first + i
        q = as_operand(tl.load(q_ptrs + d, mask=real & (d < D), other=0.0).to(tl.float32), FORMAT)
        fault_where(fault_ptr, BAD_QUERY, in_range(q, FORMAT) == 0)
        k = tl.load(k_ptrs + d, mask=readable & (d < D), other=0.0).to(tl.float32)
        fault_where(fault_ptr, BAD_SCORE, in_range(k, FORMAT) == 0)
        node = node + q[:, None] * k[None, :]
    return node


@triton.jit
def tree_of_runs(
    q_ptrs, k_ptrs, first, real, readable, fault_ptr, FORMAT: tl.constexpr, D: tl.constexpr, RUNS: tl.constexpr
):
    """[R, N]: the sum of RUNS runs of 8 from element `first` on, joined by adjacent pairs. RUNS: at most 128."""
    node = tl.zeros([q_ptrs.shape[0], k_ptrs.shape[0]], tl.float32)
    s1, s2, s4, s8, s16, s32, s64 = node, node, node, node, node, node, node
    for run in tl.range(0, RUNS):
        node = run_of_8(q_ptrs, k_ptrs, first + run * 8, real, readable, fault_ptr, FORMAT, D)
        # A binary counter: a finished left subtree waits in s1 ... s64.
        if run % 2 == 0:
            s1 = node
        else:
            node = s1 + node
            if run % 4 == 1:
                s2 = node
            else:
                node = s2 + node
                if run % 8 == 3:
                    s4 = node
                else:
                    node = s4 + node
                    if run % 16 == 7:
                        s8 = node
                    else:
                        node = s8 + node
                        if run % 32 == 15:
                            s16 = node
                        else:
                            node = s16 + node
                            if run % 64 == 31:
                                s32 = node
                            else:
                                node = s32 + node
                                if run == 63:
                                    s64 = node
                                else:
                                    node = s64 + node
    return node


@triton.jit
def float_scores(
    q_ptrs, k_ptr, cells, real, readable, fault_ptr, FORMAT: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr
):
    """float32 [R, N] of q rows against f32, f16 or bf16 keys: head order. D_PAD: at most MAX_HEAD_SIZE."""
    RUNS: tl.constexpr = D_PAD // 8 if D_PAD < 1024 else 128
    k_ptrs = k_ptr + cells
    total = tree_of_runs(q_ptrs, k_ptrs, 0, real, readable, fault_ptr, FORMAT, D, RUNS)
    if D_PAD > 1024:
        total = total + tree_of_runs(q_ptrs, k_ptrs, 1024, real, readable, fault_ptr, FORMAT, D, RUNS)
    if D_PAD > 2048:
        third = tree_of_runs(q_ptrs, k_ptrs, 2048, real, readable, fault_ptr, FORMAT, D, RUNS)
        total = total + (third + tree_of_runs(q_ptrs, k_ptrs, 3072, real, readable, fault_ptr, FORMAT, D, RUNS))
    return total


@triton.jit
def codes_at(ptr, element, readable, FORMAT: tl.constexpr):
    """int32 codes of elements of q8_0 or q4_0 rows; ptr at the rows' first byte."""
    nth = element // BLOCK
    at = element % BLOCK
    if FORMAT == "q8_0":
        codes = tl.load(ptr + nth * 34 + 2 + at, mask=readable, other=0)
        return codes.to(tl.int8, bitcast=True).to(tl.int32)
    codes = tl.load(ptr + nth * 18 + 2 + at % 16, mask=readable, other=0).to(tl.int32)
    return ((codes >> (at // 16 * 4)) & 15) - 8


@triton.jit
def scale_at(ptr, nth, readable, FORMAT: tl.constexpr):
    """float32 scale of block nth of q8_0 or q4_0 rows."""
    BYTES: tl.constexpr = 34 if FORMAT == "q8_0" else 18
    return tl.load((ptr + nth * BYTES).to(tl.pointer_type(tl.float16)), mask=readable, other=0.0).to(tl.float32)


@triton.jit
def block_scores(q_ptrs, k_ptr, cells, real, readable, fault_ptr, FORMAT: tl.constexpr, D: tl.constexpr):
    """float32 [R, N] of q rows in int8 blocks against q8_0 or q4_0 keys: block order."""
    R: tl.constexpr = q_ptrs.shape[0]
    N: tl.constexpr = cells.shape[0]
    at = tl.arange(0, BLOCK)
    total = tl.zeros([R, N], tl.float32)
    chunk = tl.zeros([R, N], tl.float32)
    COUNT: tl.constexpr = (D + BLOCK - 1) // BLOCK
    for nth in tl.range(0, COUNT):
        d = nth * BLOCK + at
        q = tl.load(q_ptrs[:, None] + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
        q_codes, q_scale, refused = int8_blocks(q)
        fault_where(fault_ptr, BAD_QUERY, refused[:, None])
        codes = codes_at(k_ptr + cells[:, None], d[None, :], readable[:, None], FORMAT)
        whole = tl.sum(q_codes.to(tl.int32)[:, None, :] * codes[None, :, :], axis=2)
        scale = scale_at(k_ptr + cells, nth, readable, FORMAT)
        chunk = chunk + whole.to(tl.float32) * (scale[None, :] * q_scale[:, None])
        if nth % 8 == 7:  # a chunk of 8 blocks ends
            total = total + chunk
            chunk = tl.zeros([R, N], tl.float32)
    return total + chunk


@triton.jit
def scores(q_ptrs, k_ptr, cells, real, readable, fault_ptr, FORMAT: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr):
    """float32 [R, N]: rows q_ptrs [R] against the keys at cells [N] (offsets into k_ptr).

    Rows that are not real and cells that are not readable are not read; what stands there has no meaning.
    """
    if FORMAT == "q8_0" or FORMAT == "q4_0":
        return block_scores(q_ptrs, k_ptr, cells, real, readable, fault_ptr, FORMAT, D)
    return float_scores(q_ptrs, k_ptr, cells, real, readable, fault_ptr, FORMAT, D, D_PAD)
