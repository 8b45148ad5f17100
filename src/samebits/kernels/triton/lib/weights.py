"""Weights in block formats, rearranged for matrix products: planes of tiles of 16 rows.

A weight [N, K] has nb = K / 32 blocks a row; rows come in tiles of 16, N padded with zeros to whole tiles. [E, N, K] is
the same for each expert, experts one after another. `Tiled.data` holds planes, each padded to 256 bytes, in this order
(tile, then block, then row of the tile, then bytes):

codes   4-bit part: uint8 [tiles][nb][16][16], byte j holds element j in bits 0-3 and element 16 + j in bits 4-7,
        codes as stored (unsigned; the low four bits of q5 and q6; E2M1 of nvfp4 and mxfp4); q3_k's plus 4, so that
        they are around 8; q2_k's take four bits here too.
        q8_0: int8 [tiles][nb][2][16][16], half 0 holds elements 0..15.
high    q5_0, q5_1, q5_k: uint8 [tiles][nb][16][4], bit g of byte i is bit 4 of element 4g + i, g in 0..7.
        q6_k: uint8 [tiles][nb][16][2][4], bits 2g and 2g + 1 of byte i of word h are bits 4-5 of element
        16h + 4g + i, g in 0..3. So a shift and a mask bring all high bits of a word of codes in place.
d       float16 [tiles][nb][16]; k-quants: [tiles][nb / 8][16]; mxfp4: uint8 [tiles][nb][16], d's exponent as float32
        has it, 0 for a d of 0.
m       q4_1, q5_1: m; q4_k, q5_k, q2_k: dmin. As d.
sub     q4_k, q5_k: uint8 [tiles][nb][16], the 6-bit scales; q6_k, q3_k: int8 [tiles][nb][16][2], iq4_xs: the same scale
        twice; nvfp4: the e4m3 bytes, uint8 [tiles][nb][16][2]; q2_k: alike, scales in bits 0-3 and mins in bits 4-7.
msub    q4_k, q5_k: uint8 [tiles][nb][16], the 6-bit mins.

At the end, of all formats, lies a power of two, as float16 and twice: it brings the largest scale or offset near a
16th of float16's end, and is at most 2^15.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from samebits.core.format import BLOCK, FORMATS, BlockFormat
from samebits.formats.mxfp4 import SMALLEST_BYTE
from samebits.kernels.triton.lib.tensors import Blocks, Tiled

TILE = 16
CHUNK = 8  # blocks that are summed in one chain: a super-block of the k-quants
ALIGN = 256
LARGEST_HALF = 65504.0
FAINT = 2.0**6  # times the power: the values of a row below it have fewer than 10 bits in products in float16
LARGEST_SUB = {"q4_k": 63, "q5_k": 63, "q6_k": 128}  # by which a super-block's d may be multiplied
SLAB_TILES = 256  # tiles rearranged at once: what limits the memory a rearrangement takes beside its result

# Bytes that a row has in a plane, a block of 32; d and m of the k-quants come once in CHUNK blocks.
PLANES: dict[str, dict[str, int]] = {
    "q4_0": {"codes": 16, "d": 2},
    "q4_1": {"codes": 16, "d": 2, "m": 2},
    "q5_0": {"codes": 16, "high": 4, "d": 2},
    "q5_1": {"codes": 16, "high": 4, "d": 2, "m": 2},
    "q8_0": {"codes": 32, "d": 2},
    "q4_k": {"codes": 16, "d": 2, "m": 2, "sub": 1, "msub": 1},
    "q5_k": {"codes": 16, "high": 4, "d": 2, "m": 2, "sub": 1, "msub": 1},
    "q6_k": {"codes": 16, "high": 8, "d": 2, "sub": 2},
    "nvfp4": {"codes": 16, "sub": 2},
    "mxfp4": {"codes": 16, "d": 1},
    "q2_k": {"codes": 16, "d": 2, "m": 2, "sub": 2},
    "q3_k": {"codes": 16, "d": 2, "sub": 2},
    "iq4_nl": {"codes": 16, "d": 2},
    "iq4_xs": {"codes": 16, "d": 2, "sub": 2},
}


def num_tiles(shape: tuple[int, ...]) -> int:
    """Tiles of a weight [..., N, K], all experts."""
    return math.prod(shape[:-2]) * -(-shape[-2] // TILE)


def _tile_bytes(format_name: str, plane: str, k: int) -> int:
    """Bytes of one tile in a plane."""
    groups = k // BLOCK
    if FORMATS[format_name].block_len > BLOCK and plane in ("d", "m"):
        groups //= CHUNK
    return groups * TILE * PLANES[format_name][plane]


def plane_offsets(format_name: str, num_rows: int, k: int) -> dict[str, int]:
    """Where each plane begins, in bytes, and under "end" how many there are; num_rows counts padding and experts."""
    tiles, at, offsets = -(-num_rows // TILE), 0, {}
    for plane in PLANES[format_name]:
        offsets[plane] = at
        at += -(-tiles * _tile_bytes(format_name, plane, k) // ALIGN) * ALIGN
    return {**offsets, "power": at, "end": at + ALIGN}


def tiled_bytes(fmt: BlockFormat, shape: tuple[int, ...]) -> int:
    """Bytes of a weight [N, K] or [E, N, K] in this form."""
    return plane_offsets(fmt.name, TILE * num_tiles(shape), shape[-1])["end"]


def tiled_offsets(x: Tiled) -> tuple[int, ...]:
    """Where codes, high, d, m, sub and msub begin: what a kernel takes; 0 for a plane that the format lacks."""
    at = plane_offsets(x.format.name, TILE * num_tiles(x.shape), x.shape[-1])
    return tuple(at.get(plane, 0) for plane in ("codes", "high", "d", "m", "sub", "msub"))


def _code_bits(format_name: str) -> int:
    return (PLANES[format_name]["codes"] + PLANES[format_name].get("high", 0)) * 8 // BLOCK


def power_offset(x: Tiled) -> int:
    """Where the power begins."""
    return plane_offsets(x.format.name, TILE * num_tiles(x.shape), x.shape[-1])["power"]


def with_power(x: Tiled) -> Tiled:
    """Return a weight whose scales are in place with its power, also written to its data, and whether it is faint."""
    views, is_faint = plane_views(x), False
    power = torch.ones((), dtype=torch.float32, device=x.data.device)
    if PLANES[x.format.name].get("d") == 2 and views["d"].numel():
        planes = torch.stack([views[plane].view(torch.float16) for plane in ("d", "m") if plane in views])
        sizes = planes.float().abs().nan_to_num(nan=0.0, posinf=0.0)  # what is no number says nothing of other rows
        of_rows = sizes.unflatten(2, (-1, TILE)).amax(dim=2) * LARGEST_SUB.get(x.format.name, 1)
        exponent = torch.frexp(LARGEST_HALF / 16 / of_rows.max().clamp(min=1e-9)).exponent - 1
        power = torch.ldexp(power, exponent.clamp(-14, 15))
        of_rows[0] *= 2 ** _code_bits(x.format.name)
        raised = of_rows.amax(dim=0) * power
        is_faint = not x.data.is_meta and bool(((raised > 0) & (raised < FAINT)).any())
    x.data[power_offset(x) :][:4] = power.half().expand(2).contiguous().view(torch.uint8)
    return x if x.data.is_meta else replace(x, power=float(power), is_faint=is_faint)


def plane_views(x: Tiled) -> dict[str, torch.Tensor]:
    """Every plane as uint8 [tiles, bytes of a tile], views of the data."""
    tiles, k = num_tiles(x.shape), x.shape[-1]
    offsets = plane_offsets(x.format.name, TILE * tiles, k)
    views = {}
    for plane in PLANES[x.format.name]:
        size = _tile_bytes(x.format.name, plane, k)
        views[plane] = x.data[offsets[plane] : offsets[plane] + tiles * size].view(tiles, size)
    return views


def tile_weight(x: Blocks) -> Tiled:
    """Rearranges a weight [N, K] or [E, N, K] on its device."""
    shape = x.shape
    data = torch.zeros(tiled_bytes(x.format, shape), dtype=torch.uint8, device=x.data.device)
    tiled = Tiled(x.format, shape, data, x.scale)
    if not x.data.numel():
        return with_power(tiled)
    views = plane_views(tiled)
    tiles = -(-shape[-2] // TILE)
    experts = x.data.reshape(-1, *x.data.shape[-2:])
    for e in range(experts.shape[0]):
        for first in range(0, tiles, SLAB_TILES):
            rows = experts[e, first * TILE : (first + SLAB_TILES) * TILE]
            at = e * tiles + first
            for plane, part in _planes(x.format, _whole_tiles(rows)).items():
                views[plane][at : at + part.shape[0]] = part.reshape(part.shape[0], -1)
    return with_power(tiled)


def _whole_tiles(rows: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, bytes] as [tiles, 16, bytes], padded with zeros."""
    missing = -rows.shape[0] % TILE
    if missing:
        rows = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])
    return rows.reshape(-1, TILE, rows.shape[1])


def _planes(fmt: BlockFormat, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Planes [tiles, ...] of raw rows [tiles, 16, bytes]."""
    blocks = rows.reshape(rows.shape[0], TILE, -1, fmt.block_bytes).transpose(1, 2)  # [tiles, blocks, 16, bytes]
    if fmt.name in OWN_PLANES:
        return OWN_PLANES[fmt.name](blocks)
    if fmt.name == "q8_0":
        halves = blocks[..., 2:].unflatten(-1, (2, 16)).transpose(2, 3)
        return {"codes": halves, "d": blocks[..., :2]}
    if fmt.name == "mxfp4":
        scale = blocks[..., :1]
        return {"codes": blocks[..., 1:], "d": torch.where(scale < SMALLEST_BYTE, 0, scale - 1)}
    head = 4 if fmt.name in ("q4_1", "q5_1") else 2
    planes = {"codes": blocks[..., -16:], "d": blocks[..., :2]}
    if head == 4:
        planes["m"] = blocks[..., 2:4]
    if fmt.name in ("q5_0", "q5_1"):
        planes["high"] = _pack_high(_unpack(blocks[..., head : head + 4], 1, -1).flatten(-2), 1)
    return planes


def _unpack(packed: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """uint8 [..., n] to fields of `width` bits, lowest first, in a new axis at `dim`."""
    mask = (1 << width) - 1
    return torch.stack([(packed >> s) & mask for s in range(0, 8, width)], dim=dim)


def _pack_high(bits: torch.Tensor, width: int) -> torch.Tensor:
    """High bits [..., 32] as bytes: field g of byte i of word h is that of element (32 / words) h + 4g + i."""
    fields = bits.unflatten(-1, (-1, 8 // width, 4))  # [..., words, field, byte]
    parts = [fields[..., g, :] << (width * g) for g in range(8 // width)]
    packed = parts[0]
    for part in parts[1:]:
        packed = packed | part
    return packed.flatten(-2)


def _pack_nibbles(low: torch.Tensor) -> torch.Tensor:
    """Four-bit codes [..., 32] as bytes [..., 16]: element j below element 16 + j."""
    return low[..., :16] | (low[..., 16:] << 4)


def _sub_blocks(codes: torch.Tensor) -> torch.Tensor:
    """[tiles, super-blocks, 16, 8, ...] as [tiles, blocks, 16, ...]."""
    return codes.movedim(3, 2).flatten(1, 2)


def _planes_affine_super(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    """Q4_K and Q5_K; see formats/superblock.py and bits.split_six_bit_pairs."""
    scale_head, min_head, tail = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = torch.cat([scale_head & 63, (tail & 15) | ((scale_head >> 6) << 4)], dim=-1)
    mins = torch.cat([min_head & 63, (tail >> 4) | ((min_head >> 6) << 4)], dim=-1)
    nibbles = _unpack(blocks[..., -128:].unflatten(-1, (4, 32)), 4, -2).flatten(-3, -2)
    planes = {
        "codes": _sub_blocks(_pack_nibbles(nibbles)),
        "d": blocks[..., 0:2],
        "m": blocks[..., 2:4],
        "sub": _sub_blocks(scales),
        "msub": _sub_blocks(mins),
    }
    if blocks.shape[-1] > 144:
        planes["high"] = _sub_blocks(_pack_high(_unpack(blocks[..., 16:48], 1, -2), 1))
    return planes


def _pairs(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [..., 64] as fields of 2 bits [..., 8, 32], as Q2_K, Q3_K and Q6_K store them."""
    return _unpack(packed.unflatten(-1, (2, 32)), 2, -2).flatten(-3, -2)


def _planes_q2_k(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "codes": _sub_blocks(_pack_nibbles(_pairs(blocks[..., 16:80]))),
        "d": blocks[..., 80:82],
        "m": blocks[..., 82:84],
        "sub": _sub_blocks(blocks[..., :16].unflatten(-1, (8, 2))),
    }


def _planes_q3_k(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    q = _pairs(blocks[..., 32:96]) | (_unpack(blocks[..., :32], 1, -2) << 2)
    scales = _unpack(blocks[..., 96:104], 4, -2).flatten(-2) | (_unpack(blocks[..., 104:108], 2, -2).flatten(-2) << 4)
    return {
        "codes": _sub_blocks(_pack_nibbles(q + 4)),
        "d": blocks[..., 108:110],
        "sub": _sub_blocks((scales - 32).unflatten(-1, (8, 2))),  # bytes wrap to int8
    }


def _planes_iq4_xs(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    scales = _unpack(blocks[..., 4:8], 4, -1).flatten(-2) | (_unpack(blocks[..., 2:4], 2, -1).flatten(-2) << 4)
    return {
        "codes": _sub_blocks(blocks[..., 8:].unflatten(-1, (8, 16))),
        "d": blocks[..., :2],
        "sub": _sub_blocks(torch.stack([scales - 32] * 2, dim=-1)),
    }


def _planes_q6_k(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    low = _unpack(blocks[..., :128].unflatten(-1, (2, 64)), 4, -2).flatten(-3).unflatten(-1, (8, 32))
    high = _pairs(blocks[..., 128:192])
    return {
        "codes": _sub_blocks(_pack_nibbles(low)),
        "high": _sub_blocks(_pack_high(high, 2)),
        "d": blocks[..., 208:210],
        "sub": _sub_blocks(blocks[..., 192:208].unflatten(-1, (8, 2))),
    }


def _planes_nvfp4(blocks: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two blocks of 16 make one of 32."""
    pairs = blocks.unflatten(1, (-1, 2)).transpose(2, 3)  # [tiles, nb, 16, 2, 9]
    elements = _unpack(pairs[..., 1:], 4, -1).flatten(-3)
    return {"codes": _pack_nibbles(elements), "sub": pairs[..., 0]}


OWN_PLANES = {
    "nvfp4": _planes_nvfp4,
    "q4_k": _planes_affine_super,
    "q5_k": _planes_affine_super,
    "q6_k": _planes_q6_k,
    "q2_k": _planes_q2_k,
    "q3_k": _planes_q3_k,
    "iq4_xs": _planes_iq4_xs,
}

PREPACK = {"weight": tile_weight}  # the one packing that all products and tied embeddings agree on
