"""Tiled block weights as float16 values, for the fast tier: code times scale plus offset, rounded once.

A block of 32 is taken as its two halves of 16, since that is how four-bit codes lie in bytes. Values leave out the
global scale of nvfp4: whoever adds the products multiplies by it. All values of a weight are multiplied by one power of
two, `value_power`, so that none leaves float16's range; whoever adds the products divides by it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.format import BLOCK
from samebits.kernels.triton.lib.devices import PTX_HERE
from samebits.kernels.triton.lib.registry import FUSED
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import TILE, num_tiles, plane_offsets

SERVED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "nvfp4")
ROWS, BLOCKS = 16, 8  # of a program that fills memory

# How many times the largest scale or offset of a weight a value can be, where that is more than 16.
MAX_SCALES = {"q5_1": 32, "q5_k": 32, "q6_k": 32, "q8_0": 128}

# 1024 + code is code | 0x6400 in float16, and one fma takes 1024 and the format's own offset away.
_NIBBLES = tl.constexpr("""{
.reg .b32 t, h, c;
mov.b32 c, 0x64006400;
prmt.b32 t, $4, 0, 0x4140;
lop3.b32 $0, t, 0x000F000F, c, 0xEA;
lop3.b32 $2, t, 0x00F000F0, c, 0xEA;
prmt.b32 h, $4, 0, 0x4342;
lop3.b32 $1, h, 0x000F000F, c, 0xEA;
lop3.b32 $3, h, 0x00F000F0, c, 0xEA;
}""")
_BYTES = tl.constexpr("""{
.reg .b32 t, c;
mov.b32 c, 0x64646464;
xor.b32 t, $2, 0x80808080;
prmt.b32 $0, t, c, 0x4140;
prmt.b32 $1, t, c, 0x4342;
}""")


@triton.jit
def _halves_of_nibbles(packed, ZERO: tl.constexpr, PTX: tl.constexpr):
    """uint8 to two float16: low nibble - ZERO, high nibble - ZERO."""
    if PTX:
        low, high = tl.inline_asm_elementwise(_NIBBLES, "=r,=r,=r,=r,r", [packed], (tl.float16, tl.float16), True, 4)
        return low - (1024.0 + ZERO), high * 0.0625 - (64.0 + ZERO)
    return (packed & 15).to(tl.float16) - ZERO, (packed >> 4).to(tl.float16) - ZERO


@triton.jit
def _from_bytes(codes, PTX: tl.constexpr):
    """int8 to float16."""
    if PTX:
        return tl.inline_asm_elementwise(_BYTES, "=r,=r,r", [codes], tl.float16, True, 4) - 1152.0
    return codes.to(tl.float16)


@triton.jit
def _from_e2m1(code):
    """Four bits in an int32 to float16."""
    pattern = ((code & 8) << 12) | ((code & 7) << 9)
    return pattern.to(tl.int16).to(tl.float16, bitcast=True) * 16384.0


@triton.jit
def _from_e4m3(byte):
    pattern = ((byte.to(tl.int32) & 128) << 8) | ((byte.to(tl.int32) & 127) << 7)
    return pattern.to(tl.int16).to(tl.float16, bitcast=True) * 256.0


@triton.jit
def _spread(per_block):
    """[rows, blocks] to [rows, blocks * 16]."""
    rows: tl.constexpr = per_block.shape[0]
    blocks: tl.constexpr = per_block.shape[1]
    wide = tl.broadcast_to(per_block[:, :, None], [rows, blocks, 16])
    return tl.reshape(wide, [rows, blocks * 16])


@triton.jit
def _codes(data_ptr, high_at, at, mask, j, FORMAT: tl.constexpr, PTX: tl.constexpr):
    """Codes of both halves of blocks, float16 [rows, blocks * 16]; `at` is tile, block and row in one, j 0..15."""
    if FORMAT == "q8_0":
        # the halves lie 16 rows of 16 bytes apart
        place = data_ptr + (at // 16) * 512 + (at % 16) * 16 + j
        first = tl.load(place.to(tl.pointer_type(tl.int8)), mask=mask, other=0)
        second = tl.load((place + 256).to(tl.pointer_type(tl.int8)), mask=mask, other=0)
        low, high = _from_bytes(first, PTX), _from_bytes(second, PTX)
    else:
        packed = tl.load(data_ptr + at * 16 + j, mask=mask, other=0)
        if FORMAT == "nvfp4":
            low, high = _from_e2m1(packed.to(tl.int32)), _from_e2m1(packed.to(tl.int32) >> 4)
        else:
            zero: tl.constexpr = 8.0 if FORMAT == "q4_0" else 0.0
            low, high = _halves_of_nibbles(packed, zero, PTX)
    if FORMAT == "q6_k":
        first = tl.load(data_ptr + high_at + at * 8 + j % 4, mask=mask, other=0).to(tl.int32)
        second = tl.load(data_ptr + high_at + at * 8 + 4 + j % 4, mask=mask, other=0).to(tl.int32)
        shift = 2 * (j // 4)
        low += (((first >> shift) & 3) * 16 - 32).to(tl.float16)
        high += (((second >> shift) & 3) * 16 - 32).to(tl.float16)
    elif FORMAT == "q5_0" or FORMAT == "q5_1" or FORMAT == "q5_k":
        bits = tl.load(data_ptr + high_at + at * 4 + j % 4, mask=mask, other=0).to(tl.int32)
        zero_high: tl.constexpr = 16 if FORMAT == "q5_0" else 0
        low += (((bits >> (j // 4)) & 1) * 16 - zero_high).to(tl.float16)
        high += (((bits >> (4 + j // 4)) & 1) * 16 - zero_high).to(tl.float16)
    return low, high


@triton.jit
def _raised(d_ptr, at, mask, power):
    """float32: float16 scales or offsets, times the power."""
    return tl.load(d_ptr + at, mask=mask, other=0.0).to(tl.float32) * power


@triton.jit
def _scales(data_ptr, d_at, m_at, sub_at, msub_at, at, chunk_at, mask, power, FORMAT: tl.constexpr):
    """(scale of the low half, of the high half, offset) of blocks [rows, blocks] times the power, which is 1 for nvfp4.

    Unused ones are the first.
    """
    d_ptr = (data_ptr + d_at).to(tl.pointer_type(tl.float16))
    m_ptr = (data_ptr + m_at).to(tl.pointer_type(tl.float16))
    if FORMAT == "nvfp4":
        low = _from_e4m3(tl.load(data_ptr + sub_at + at * 2, mask=mask, other=0))
        high = _from_e4m3(tl.load(data_ptr + sub_at + at * 2 + 1, mask=mask, other=0))
        offset = low
    elif FORMAT == "q6_k":
        sub_ptr = (data_ptr + sub_at).to(tl.pointer_type(tl.int8))
        d = _raised(d_ptr, chunk_at, mask, power)
        low = d * tl.load(sub_ptr + at * 2, mask=mask, other=0).to(tl.float32)
        high = d * tl.load(sub_ptr + at * 2 + 1, mask=mask, other=0).to(tl.float32)
        offset = low
    elif FORMAT == "q4_k" or FORMAT == "q5_k":
        d = _raised(d_ptr, chunk_at, mask, power)
        low = d * tl.load(data_ptr + sub_at + at, mask=mask, other=0).to(tl.float32)
        high = low
        m = _raised(m_ptr, chunk_at, mask, power)
        offset = -m * tl.load(data_ptr + msub_at + at, mask=mask, other=0).to(tl.float32)
    elif FORMAT == "q4_1" or FORMAT == "q5_1":
        low = _raised(d_ptr, at, mask, power)
        high = low
        offset = _raised(m_ptr, at, mask, power)
    else:
        low = _raised(d_ptr, at, mask, power).to(tl.float16)
        high, offset = low, low
    return low, high, offset


@triton.jit
def values(
    data_ptr,
    planes,
    row,
    first,
    num_rows,
    power,
    nb: tl.constexpr,
    FORMAT: tl.constexpr,
    BLOCKS: tl.constexpr,
    PTX: tl.constexpr,
):
    """float16 values times the power, of BLOCKS blocks from `first` of rows: halves low and high, [rows, BLOCKS * 16]
    each."""
    high_at, d_at, m_at, sub_at, msub_at = planes
    element = tl.arange(0, BLOCKS * 16)
    block = first + element // 16
    tile = (row // 16).to(tl.int64) * nb
    at = (tile[:, None] + block[None, :]) * 16 + (row % 16)[:, None]
    mask = (row < num_rows)[:, None] & (block < nb)[None, :]
    j = (element % 16)[None, :]
    low, high = _codes(data_ptr, high_at, at, mask, j, FORMAT, PTX)
    block = first + tl.arange(0, BLOCKS)
    at = (tile[:, None] + block[None, :]) * 16 + (row % 16)[:, None]
    chunk_at = ((tile // 8)[:, None] + (block // 8)[None, :]) * 16 + (row % 16)[:, None]
    mask = (row < num_rows)[:, None] & (block < nb)[None, :]
    s_low, s_high, offset = _scales(data_ptr, d_at, m_at, sub_at, msub_at, at, chunk_at, mask, power, FORMAT)
    # A product with a float16 scale rounds once; scales in float32 widen the codes first, to round once too.
    if FORMAT == "q6_k" or FORMAT == "nvfp4":
        low, high = low * _spread(s_low), high * _spread(s_high)
    elif FORMAT == "q4_0" or FORMAT == "q5_0" or FORMAT == "q8_0":
        low, high = low * _spread(s_low), high * _spread(s_low)
    else:
        low, high = low * _spread(s_low) + _spread(offset), high * _spread(s_low) + _spread(offset)
    return low.to(tl.float16), high.to(tl.float16)


@triton.jit
def _dequantize(
    data_ptr,
    high_at,
    d_at,
    m_at,
    sub_at,
    msub_at,
    y_ptr,
    num_rows,
    power,
    nb: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    GROUP: tl.constexpr,
    PTX: tl.constexpr,
):
    """GROUP: 0, or rows of the first half and of the second by turns, so many of each."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * BLOCKS
    planes = (high_at, d_at, m_at, sub_at, msub_at)
    low, high = values(data_ptr, planes, row, first, num_rows, power, nb, FORMAT, BLOCKS, PTX)
    element = tl.arange(0, BLOCKS * 16)
    block = first + element // 16
    mask = (row < num_rows)[:, None] & (block < nb)[None, :]
    to = row
    if GROUP > 0:
        within = row % (num_rows // 2)
        to = within // GROUP * (2 * GROUP) + row // (num_rows // 2) * GROUP + within % GROUP
    at = to.to(tl.int64)[:, None] * nb * 32 + (block * 32 + element % 16)[None, :]
    tl.store(y_ptr + at, low, mask=mask)
    tl.store(y_ptr + at + 16, high, mask=mask)


def planes_of(weight: Tiled) -> tuple[int, ...]:
    """Offsets of the planes beside the codes, in the order the kernels take them; 0 where a format has none."""
    rows = TILE * num_tiles(weight.shape)
    offsets = plane_offsets(weight.format.name, rows, weight.shape[-1])
    return tuple(offsets.get(name, 0) for name in ("high", "d", "m", "sub", "msub"))


def value_power(weight: Tiled) -> float:
    """Return the power of two by which all float16 values of a weight are multiplied."""
    return weight.power * 16 / MAX_SCALES.get(weight.format.name, 16)


def dequantized(weight: Tiled, group: int = 0) -> torch.Tensor:
    """Return values times `value_power` as float16 [N, K], without the global scale of nvfp4.

    group: 0, or rows of both halves by turns, so many of each, a divisor of N / 2.
    """
    num_rows, k = weight.shape
    y = torch.empty(num_rows, k, dtype=torch.float16, device=weight.data.device)
    nb = k // BLOCK
    grid = (cdiv(num_rows, ROWS), cdiv(nb, BLOCKS))
    if y.numel():
        _dequantize[grid](
            weight.data,
            *planes_of(weight),
            y,
            num_rows,
            value_power(weight),
            nb,
            weight.format.name,
            ROWS,
            BLOCKS,
            group,
            PTX_HERE,
            num_warps=4,
            **FUSED,
        )
    return y
