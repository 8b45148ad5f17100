"""Block-quantized matrix products by tl.dot on int8, for any device and for rows that belong to several weights.

One program takes BT tokens of one segment and BN rows of its weight. The product of a whole batch is one segment.
"""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.lib.codes import block_scale, e4m3, level
from samebits.kernels.triton.lib.grids import folded_program
from samebits.kernels.triton.lib.kinds import has_e2m1, has_fifth_bits, has_levels, is_around_eight, is_super
from samebits.kernels.triton.lib.rows import fault_where
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.products.blocks.checks import not_finite
from samebits.kernels.triton.products.blocks.many.terms import HALVES, MINIMUMS, OFFSET, SUPER, term


@triton.jit
def _elements(nibble, high_ptr, j, mask, SECOND: tl.constexpr, FORMAT: tl.constexpr):
    """int8 [BN, 16]: elements j of a half of a block from their four low bits, uint8."""
    q = nibble.to(tl.int32)
    if has_levels(FORMAT):
        q = level(q)
    if has_e2m1(FORMAT):
        m = q & 7
        twice = tl.where(m < 2, m, (2 + (m & 1)) << tl.maximum((m >> 1) - 1, 0))
        q = tl.where(q > 7, -twice, twice)
    if has_fifth_bits(FORMAT):
        byte = tl.load(high_ptr[:, None] + j % 4, mask=mask, other=0).to(tl.int32)
        q += ((byte >> (j // 4 + 4 * SECOND)) & 1) << 4
    if FORMAT == "q6_k":
        byte = tl.load(high_ptr[:, None] + 4 * SECOND + j % 4, mask=mask, other=0).to(tl.int32)
        q += ((byte >> (j // 4 * 2)) & 3) << 4
    OFFSETS: tl.constexpr = 8 if is_around_eight(FORMAT) else 16 if FORMAT == "q5_0" else 32 if FORMAT == "q6_k" else 0
    return (q - OFFSETS).to(tl.int8)


@triton.jit
def _codes(codes_ptr, high_ptr, block, r, inside, FORMAT: tl.constexpr):
    """int8 [BN, 32]: block `block` (of all tiles) of rows r of their tiles; zeros where not inside."""
    j = tl.arange(0, 16)[None, :]
    mask = inside[:, None]
    if FORMAT == "q8_0":
        at = codes_ptr + ((block * 32 + r) * 16)[:, None] + j
        low = tl.load(at, mask=mask, other=0).to(tl.int8, bitcast=True)
        high = tl.load(at + 256, mask=mask, other=0).to(tl.int8, bitcast=True)
    else:
        byte = tl.load(codes_ptr + ((block * 16 + r) * 16)[:, None] + j, mask=mask, other=0)
        high_ptr += (block * 16 + r) * (8 if FORMAT == "q6_k" else 4)
        low = _elements(byte & 15, high_ptr, j, mask, 0, FORMAT)
        high = _elements(byte >> 4, high_ptr, j, mask, 1, FORMAT)
    both = tl.permute(tl.join(low, high), (0, 2, 1))
    return tl.reshape(both, [r.shape[0], 32])


@triton.jit
def _half_scales(sub_ptr, block, r, inside):
    """int8 [BN, 32]: scales of q2_k's elements, and their minimums."""
    at = sub_ptr + ((block * 16 + r) * 2)[:, None] + tl.arange(0, 32)[None, :] // 16
    byte = tl.load(at, mask=inside[:, None], other=0)
    return (byte & 15).to(tl.int8), (byte >> 4).to(tl.int8)


@triton.jit
def _row_scales(planes, block, shared, r, inside, scale, FORMAT: tl.constexpr, KIND: tl.constexpr):
    """d, m, sub, second: float32 [1, BN]; what a format lacks repeats d."""
    d_ptr, m_ptr, sub_ptr, msub_ptr = planes
    row, common = block * 16 + r, shared * 16 + r
    if FORMAT == "nvfp4":
        d = tl.full(r.shape, 0.0, tl.float32) + scale
    else:
        d = block_scale(tl.load(d_ptr + common, mask=inside, other=0), FORMAT)
    m, sub, second = d, d, d
    if (KIND == OFFSET) | (KIND == SUPER) | (KIND == MINIMUMS):
        m = tl.load(m_ptr + common, mask=inside, other=0.0).to(tl.float32)
    if (KIND == SUPER) | (KIND == MINIMUMS):
        m = -m
    if KIND == SUPER:
        sub = tl.load(sub_ptr + row, mask=inside, other=0).to(tl.float32)
        second = tl.load(msub_ptr + row, mask=inside, other=0).to(tl.float32)
    if KIND == HALVES:
        sub = tl.load(sub_ptr + row * 2, mask=inside, other=0)
        second = tl.load(sub_ptr + row * 2 + 1, mask=inside, other=0)
        if FORMAT == "nvfp4":
            sub, second = e4m3(sub.to(tl.int32)), e4m3(second.to(tl.int32))
        else:
            sub = sub.to(tl.int8, bitcast=True).to(tl.float32)
            second = second.to(tl.int8, bitcast=True).to(tl.float32)
    return d[None, :], m[None, :], sub[None, :], second[None, :]


@triton.jit
def _block_term(
    acts, planes, token, token_inside, first_block, b, nb, r, inside, scale, FORMAT: tl.constexpr, KIND: tl.constexpr
):
    """float32 [BT, BN]: the term of block b; +0 or -0 where it is not inside."""
    acts_ptr, scales_ptr, acts_stride, scales_stride = acts
    codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr = planes
    block = first_block + b
    shared = block
    if is_super(FORMAT):
        shared = first_block // 8 + b // 8
    k = tl.arange(0, 32)[None, :]
    a = tl.load(acts_ptr + (token * acts_stride)[:, None] + b * 32 + k, mask=token_inside[:, None], other=0)
    sa = tl.load(scales_ptr + token * scales_stride + b, mask=token_inside, other=0.0)[:, None]
    w = _codes(codes_ptr, high_ptr, block, r, inside, FORMAT)
    d, m, sub, second = _row_scales((d_ptr, m_ptr, sub_ptr, msub_ptr), block, shared, r, inside, scale, FORMAT, KIND)
    asum = sa
    if (KIND == OFFSET) | (KIND == SUPER):
        asum = tl.sum(a.to(tl.int32), axis=1).to(tl.float32)[:, None]
    if KIND == MINIMUMS:
        scales, minimums = _half_scales(sub_ptr, block, r, inside)
        w = w * scales
        asum = tl.dot(a, tl.trans(minimums), out_dtype=tl.int32).to(tl.float32)
    # no device multiplies 16 int8 deep: where halves count apart, the other half of the tokens' codes is zero
    low = tl.dot(tl.where(k < 16, a, 0).to(tl.int8) if KIND == HALVES else a, tl.trans(w), out_dtype=tl.int32)
    high = tl.zeros([1, 1], tl.int32)
    if KIND == HALVES:
        high = tl.dot(tl.where(k < 16, 0, a).to(tl.int8), tl.trans(w), out_dtype=tl.int32)
    return term(low, high, d, m, sub, second, sa, asum, FORMAT, False)


@triton.jit
def dot_totals(
    acts, planes, token, token_inside, first_block, nb, r, inside, scale, FORMAT: tl.constexpr, KIND: tl.constexpr
):
    """float32 [BT, BN]: rows `token` of the activations times rows r of tiles that begin at first_block [BN]."""
    total = tl.zeros([token.shape[0], r.shape[0]], tl.float32)
    b = 0
    while b < nb:
        part = tl.zeros([token.shape[0], r.shape[0]], tl.float32)
        last = tl.minimum(b + 8, nb)
        while b < last:
            part += _block_term(acts, planes, token, token_inside, first_block, b, nb, r, inside, scale, FORMAT, KIND)
            b += 1
        total += part
    return total


@triton.jit
def _segment(indptr_ptr, num_segments, index, BT: tl.constexpr):
    """(segment, or num_segments for none; first token) of the index-th tile of BT tokens; whether an entry falls."""
    found, first, before, s = num_segments, 0, 0, 0
    falls = tl.load(indptr_ptr) != 0
    while s < num_segments:
        start, stop = tl.load(indptr_ptr + s), tl.load(indptr_ptr + s + 1)
        falls |= stop < start
        count = tl.cdiv(tl.maximum(stop - start, 0), BT)
        here = (index >= before) & (index < before + count)
        found = tl.where(here, s, found)
        first = tl.where(here, start + (index - before) * BT, first)
        before += count
        s += 1
    return found, first, falls


@triton.jit
def check_tile(acts, token, token_inside, nb, fault_ptr, BAD_CODES: tl.constexpr, BAD_SCALES: tl.constexpr):
    """Faults for codes and scales of a tile of tokens that quantize_q8 does not make."""
    acts_ptr, scales_ptr, acts_stride, scales_stride = acts
    lowest, wrong = tl.zeros([token.shape[0], 32], tl.int1), tl.zeros([token.shape[0]], tl.int1)
    k = tl.arange(0, 32)[None, :]
    b = 0
    while b < nb:
        a = tl.load(acts_ptr + (token * acts_stride)[:, None] + b * 32 + k, mask=token_inside[:, None], other=0)
        lowest |= a == -128
        wrong |= not_finite(tl.load(scales_ptr + token * scales_stride + b, mask=token_inside, other=0.0))
        b += 1
    fault_where(fault_ptr, BAD_CODES, lowest)
    fault_where(fault_ptr, BAD_SCALES, wrong)


@triton.jit(do_not_specialize=["T", "N", "nb", "num_segments", "num_weights"])
def gemm_dot(
    acts_ptr,
    scales_ptr,
    codes_ptr,
    high_ptr,
    d_ptr,
    m_ptr,
    sub_ptr,
    msub_ptr,
    bias_ptr,
    y_ptr,
    indptr_ptr,
    indices_ptr,
    fault_ptr,
    order_code,
    range_code,
    acts_stride,
    scales_stride,
    scale,
    T,
    N,
    nb,
    num_segments,
    num_weights,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    GROUPED: tl.constexpr,
    INDICES: tl.constexpr,
    BIAS: tl.constexpr,
    CHECKED: tl.constexpr,
    BAD_CODES: tl.constexpr,
    BAD_SCALES: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
):
    """y [T, N]; rows of no segment are left alone. GROUPED: tokens of segment s take weight s, or indices[s].

    CHECKED: the last program of a tile of tokens looks for what is refused, beside the others.
    """
    if GROUPED:
        segment, first, falls = _segment(indptr_ptr, num_segments, folded_program(), BT)
        tl.store(fault_ptr, order_code, mask=falls)
        if segment == num_segments:
            return
        stop = tl.load(indptr_ptr + segment + 1)
        expert = segment
        if INDICES:
            expert = tl.load(indices_ptr + segment)
        misplaced = (first < 0) | (stop > T)
        unknown = (expert < 0) | (expert >= num_weights)
        tl.store(fault_ptr, order_code, mask=misplaced)
        tl.store(fault_ptr, range_code, mask=unknown)
        if misplaced | unknown:
            return
    else:
        first, stop, expert = folded_program() * BT, T, 0
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    token = (first + tl.arange(0, BT)).to(tl.int64)
    token_inside = token < stop
    tile = expert.to(tl.int64) * tl.cdiv(N, 16) + row // 16 if GROUPED else (row // 16).to(tl.int64)
    acts = (acts_ptr, scales_ptr, acts_stride, scales_stride)
    if CHECKED:
        if tl.program_id(0) == tl.num_programs(0) - 1:
            check_tile(acts, token, token_inside, nb, fault_ptr, BAD_CODES, BAD_SCALES)
            return
    planes = (codes_ptr, high_ptr, d_ptr, m_ptr, sub_ptr, msub_ptr)
    total = dot_totals(acts, planes, token, token_inside, tile * nb, nb, row % 16, row < N, scale, FORMAT, KIND)
    if BIAS:
        total = settle(total) + tl.load(bias_ptr + row, mask=row < N, other=0.0).to(tl.float32)[None, :]
    inside = token_inside[:, None] & (row < N)[None, :]
    tl.store(y_ptr + (token * N)[:, None] + row[None, :], settle(total), mask=inside)
