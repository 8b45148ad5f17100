"""embedding from a table in a block format: as model files store it, or tiled, where it serves a tied head too.

A program takes one id and 256 elements of its row; every element finds its own bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.formats.mxfp4 import SMALLEST_BYTE
from samebits.kernels.record import OpCall
from samebits.kernels.triton.lib.codes import block_scale, e4m3, level
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.kernels.triton.lib.kinds import (
    has_e2m1,
    has_fifth_bits,
    has_halves,
    has_levels,
    has_offset,
    has_scaled_codes,
    has_sub_offset,
)
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.lib.tensors import DTYPES, Blocks, Tiled
from samebits.kernels.triton.lib.weights import PLANES, tile_weight, tiled_offsets

OUT_OF_RANGE = fault("embedding", "ids", "an id out of range", "0 .. V-1")
SPAN = tl.constexpr(256)
SMALLEST_E8M0 = tl.constexpr(SMALLEST_BYTE)


@triton.jit
def byte_at(ptr, at, keep):
    """int32: the byte at each offset, 0 where not kept."""
    return tl.load(ptr + at, mask=keep, other=0).to(tl.int32)


@triton.jit
def f16_at(ptr, at, keep):
    """float32: the float16 at a byte offset of any alignment."""
    pattern = byte_at(ptr, at, keep) | (byte_at(ptr, at + 1, keep) << 8)
    return pattern.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def signed_byte(byte):
    return (byte << 24) >> 24


@triton.jit
def raw_affine_super(ptr, e, keep, FORMAT: tl.constexpr):
    """Q4_K and Q5_K: (code, d * scale, -dmin * min)."""
    at = e // 256 * (144 if FORMAT == "q4_k" else 176)
    s, k = e % 256 // 32, e % 32
    code = byte_at(ptr, at + (16 if FORMAT == "q4_k" else 48) + s // 2 * 32 + k, keep) >> (s % 2 * 4) & 15
    if FORMAT == "q5_k":
        code |= (byte_at(ptr, at + 16 + k, keep) >> s & 1) << 4
    # bits.split_six_bit_pairs: the last four have their low bits in byte 8 + i, their high bits above the first four
    late = s >= 4
    scale_head = byte_at(ptr, at + 4 + s % 4, keep)
    min_head = byte_at(ptr, at + 8 + s % 4, keep)
    tail = byte_at(ptr, at + 12 + s % 4, keep)
    scale = tl.where(late, (tail & 15) | ((scale_head >> 6) << 4), scale_head & 63)
    minimum = tl.where(late, (tail >> 4) | ((min_head >> 6) << 4), min_head & 63)
    d, dmin = f16_at(ptr, at, keep), f16_at(ptr, at + 2, keep)
    return code, d * scale.to(tl.float32), -dmin * minimum.to(tl.float32)


@triton.jit
def raw_element(ptr, e, keep, FORMAT: tl.constexpr):
    """(code, d, m) of element e of a row as files store it; see formats/*.py. An element is worth d * code (+ m)."""
    if has_sub_offset(FORMAT):
        return raw_affine_super(ptr, e, keep, FORMAT)
    elif FORMAT == "q6_k":
        at, i = e // 256 * 210, e % 256
        low = byte_at(ptr, at + i // 128 * 64 + i % 64, keep) >> (i % 128 // 64 * 4) & 15
        high = byte_at(ptr, at + 128 + i // 128 * 32 + i % 32, keep) >> (i % 128 // 32 * 2) & 3
        scale = signed_byte(byte_at(ptr, at + 192 + i // 16, keep)).to(tl.float32)
        d = f16_at(ptr, at + 208, keep) * scale
        return (low | (high << 4)) - 32, d, d
    elif FORMAT == "q2_k":
        at, i = e // 256 * 84, e % 256
        code = byte_at(ptr, at + 16 + i // 128 * 32 + i % 32, keep) >> (i % 128 // 32 * 2) & 3
        both = byte_at(ptr, at + i // 16, keep)
        d, dmin = f16_at(ptr, at + 80, keep), f16_at(ptr, at + 82, keep)
        return code, d * (both & 15).to(tl.float32), -dmin * (both >> 4).to(tl.float32)
    elif FORMAT == "q3_k":
        at, i = e // 256 * 110, e % 256
        s = i // 16
        code = byte_at(ptr, at + 32 + i // 128 * 32 + i % 32, keep) >> (i % 128 // 32 * 2) & 3
        code |= (byte_at(ptr, at + i % 32, keep) >> (i // 32) & 1) << 2
        scale = byte_at(ptr, at + 96 + s % 8, keep) >> (s // 8 * 4) & 15
        scale |= (byte_at(ptr, at + 104 + s % 4, keep) >> (s // 4 * 2) & 3) << 4
        d = f16_at(ptr, at + 108, keep) * (scale - 32).to(tl.float32)
        return code - 4, d, d
    elif FORMAT == "iq4_xs":
        at, s, j = e // 256 * 136, e % 256 // 32, e % 32
        code = byte_at(ptr, at + 8 + s * 16 + j % 16, keep) >> (j // 16 * 4) & 15
        scale = byte_at(ptr, at + 4 + s // 2, keep) >> (s % 2 * 4) & 15
        scale |= (byte_at(ptr, at + 2 + s // 4, keep) >> (s % 4 * 2) & 3) << 4
        d = f16_at(ptr, at, keep) * (scale - 32).to(tl.float32)
        return level(code), d, d
    elif FORMAT == "nvfp4":
        at = e // 16 * 9
        d = e4m3(byte_at(ptr, at, keep))
        return byte_at(ptr, at + 1 + e % 16 // 2, keep) >> (e % 2 * 4) & 15, d, d
    elif FORMAT == "mxfp4":
        at, j = e // 32 * 17, e % 32
        stored = byte_at(ptr, at, keep)
        d = block_scale(tl.where(stored < SMALLEST_E8M0, 0, stored - 1), FORMAT)
        return byte_at(ptr, at + 1 + j % 16, keep) >> (j // 16 * 4) & 15, d, d
    elif FORMAT == "q8_0":
        at = e // 32 * 34
        d = f16_at(ptr, at, keep)
        return signed_byte(byte_at(ptr, at + 2 + e % 32, keep)), d, d
    else:
        affine: tl.constexpr = has_offset(FORMAT)
        fifth: tl.constexpr = has_fifth_bits(FORMAT)
        head: tl.constexpr = 4 if affine else 2
        codes: tl.constexpr = head + 4 if fifth else head
        at, j = e // 32 * (codes + 16), e % 32
        code = byte_at(ptr, at + codes + j % 16, keep) >> (j // 16 * 4) & 15
        if fifth:
            code |= (byte_at(ptr, at + head + j // 8, keep) >> (j % 8) & 1) << 4
        if FORMAT == "iq4_nl":
            code = level(code)
        elif not affine:
            code -= 16 if fifth else 8
        d = f16_at(ptr, at, keep)
        return code, d, f16_at(ptr, at + 2, keep) if affine else d


@triton.jit
def tiled_element(ptr, offsets, tile, row, e, keep, NB: tl.constexpr, FORMAT: tl.constexpr):
    """(code, d, m) of element e of a row of a tiled table; see lib/weights.py."""
    j = e % 32
    block = tile * NB + e // 32
    at = block * 16 + row
    if FORMAT == "q8_0":
        d = f16_at(ptr + offsets[2], at * 2, keep)
        return signed_byte(byte_at(ptr, (block * 2 + j // 16) * 256 + row * 16 + j % 16, keep)), d, d
    code = byte_at(ptr, at * 16 + j % 16, keep) >> (j // 16 * 4) & 15
    if FORMAT == "nvfp4":
        d = e4m3(byte_at(ptr + offsets[4], at * 2 + j // 16, keep))
        return code, d, d
    elif FORMAT == "mxfp4":
        d = block_scale(byte_at(ptr + offsets[2], at, keep), FORMAT)
        return code, d, d
    group = ((tile * (NB // 8) + e // 256) * 16 + row) * 2
    if has_scaled_codes(FORMAT):
        both = byte_at(ptr + offsets[4], at * 2 + j // 16, keep)
        d = f16_at(ptr + offsets[2], group, keep) * (both & 15).to(tl.float32)
        return code, d, -f16_at(ptr + offsets[3], group, keep) * (both >> 4).to(tl.float32)
    elif has_halves(FORMAT):
        scale = signed_byte(byte_at(ptr + offsets[4], at * 2 + j // 16, keep)).to(tl.float32)
        d = f16_at(ptr + offsets[2], group, keep) * scale
        if FORMAT == "q6_k":
            high = byte_at(ptr + offsets[1], at * 8 + j // 16 * 4 + j % 4, keep) >> (j % 16 // 4 * 2) & 3
            return (code | (high << 4)) - 32, d, d
        return level(code) if has_levels(FORMAT) else code - 8, d, d
    else:
        if has_fifth_bits(FORMAT):
            code |= (byte_at(ptr + offsets[1], at * 4 + j % 4, keep) >> (j // 4) & 1) << 4
        if has_sub_offset(FORMAT):
            scale = byte_at(ptr + offsets[4], at, keep).to(tl.float32)
            minimum = byte_at(ptr + offsets[5], at, keep).to(tl.float32)
            return code, f16_at(ptr + offsets[2], group, keep) * scale, -f16_at(ptr + offsets[3], group, keep) * minimum
        else:
            d = f16_at(ptr + offsets[2], at * 2, keep)
            if has_offset(FORMAT):
                return code, d, f16_at(ptr + offsets[3], at * 2, keep)
            elif has_levels(FORMAT):
                return level(code), d, d
            else:
                return code - (8 if FORMAT == "q4_0" else 16), d, d


@triton.jit
def value(code, d, m, scale, FORMAT: tl.constexpr):
    """float32: what an element is worth; the products are exact but nvfp4's last."""
    if has_e2m1(FORMAT):
        low = code & 3
        twice = tl.where((code & 4) != 0, 4 + 2 * low + ((low & (low >> 1)) << 1), low).to(tl.float32)
        signed = (twice.to(tl.int32, bitcast=True) | ((code & 8) << 28)).to(tl.float32, bitcast=True)
        return signed * d if FORMAT == "mxfp4" else ((signed * 0.5) * d) * scale
    elif has_offset(FORMAT) or has_sub_offset(FORMAT) or has_scaled_codes(FORMAT):
        return (d * code.to(tl.float32)) + m
    else:
        return d * code.to(tl.float32)


@triton.jit
def embed_kernel(
    ids_ptr,
    data_ptr,
    y_ptr,
    fault_ptr,
    offsets,
    scale,
    V,
    row_stride,
    K: tl.constexpr,
    TILED: tl.constexpr,
    FAULT: tl.constexpr,
    FORMAT: tl.constexpr,
):
    index = tl.program_id(0)
    e = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    chosen = tl.load(ids_ptr + index)
    inside = (chosen >= 0) & (chosen < V)
    keep = (e < K) & inside
    row = tl.where(inside, chosen, 0).to(tl.int64)
    if TILED:
        code, d, m = tiled_element(data_ptr, offsets, row // 16, row % 16, e, keep, K // 32, FORMAT)
    else:
        code, d, m = raw_element(data_ptr + row * row_stride, e, keep, FORMAT)
    y = tl.where(inside, value(code, d, m, scale, FORMAT), 0.0)
    store_narrow(y_ptr + index.to(tl.int64) * K + e, y, e < K)
    tl.store(fault_ptr, FAULT, mask=(inside == 0) & (chosen != -1))


def block_table(call: OpCall) -> str | None:
    fmt = call.inputs["table"].format
    return None if fmt in PLANES else f"table {fmt}: only block formats"


@implements("embedding", tier=Tier.PORTABLE, when=block_table, prepack={"table": tile_weight})
def embed_blocks(table: Blocks | Tiled, ids: torch.Tensor, *, format: str = "f32") -> torch.Tensor:
    (v, k), num_ids = table.shape, ids.shape[0]
    y = torch.empty(num_ids, k, dtype=DTYPES[format], device=ids.device)
    if not num_ids or not k:
        return y
    tiled = isinstance(table, Tiled)
    embed_kernel[num_ids, cdiv(k, 256)](
        ids.contiguous(),
        table.data,
        y,
        fault_word(ids.device),
        tiled_offsets(table) if isinstance(table, Tiled) else (0,) * 6,
        float(table.scale),
        v,
        0 if tiled else table.data.stride(0),
        K=k,
        TILED=tiled,
        FAULT=OUT_OF_RANGE,
        FORMAT=table.format.name,
        num_warps=4,
        **UNFUSED,
    )
    return y
