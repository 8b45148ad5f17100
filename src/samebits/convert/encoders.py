"""Tensors as bytes of a block format, with codes of little error; the same bytes with any number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from samebits.convert.fitting import Affine, fit_affine, fit_signed
from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, FORMATS, BlockFormat
from samebits.formats.bits import f16_bytes, merge, pack_fields, pack_nibbles, pack_six_bit_pairs, split_last
from samebits.formats.iq4_nl import LEVELS, nearest_levels
from samebits.formats.q2_k import pack_pairs
from samebits.formats.q4_k import pack_codes

CHUNK_ELEMENTS = 1 << 18  # side by side: their arrays fit a core's cache


def encode(x: np.ndarray, name: str) -> np.ndarray:
    """float32 [..., n] as uint8 [..., row bytes] of a block format; BadInput for NaN, Inf or a ragged row.

    Formats of one scale per block follow the rule of their own `encode`, which is ggml's. Those of super-blocks are
    fitted to least squared error.
    """
    fmt = FORMATS[name]
    if not isinstance(fmt, BlockFormat):
        raise BadInput("quantize", "type", name, "a block format")
    row_bytes = fmt.row_bytes(x.shape[-1])
    if not np.isfinite(x).all():
        raise BadInput("quantize", "tensor", "NaN or Inf", "finite values")
    fit = FITTED.get(name)
    if fit is None:
        return np.asarray(fmt.encode(np.ascontiguousarray(x, np.float32))[0])
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, fmt.block_len)
    out = np.empty((len(blocks), fmt.block_bytes), np.uint8)
    step = max(1, CHUNK_ELEMENTS // fmt.block_len)

    def run(start: int) -> None:
        out[start : start + step] = fit(blocks[start : start + step])

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(run, range(0, len(blocks), step)))
    return out.reshape(*x.shape[:-1], row_bytes)


def _subs(blocks: np.ndarray, num_subs: int) -> np.ndarray:
    """float32 [blocks, 256] as [subs, elements, blocks]."""
    return np.ascontiguousarray(split_last(blocks, num_subs, blocks.shape[-1] // num_subs).transpose(1, 2, 0))


def _codes(q: np.ndarray) -> np.ndarray:
    """Whole numbers [..., blocks] as uint8 [blocks, ...]."""
    return np.ascontiguousarray(np.moveaxis(q, -1, 0).astype(np.uint8))


def _header(found: Affine) -> list[np.ndarray]:
    """Of Q4_K and Q5_K: d, dmin, and eight scales and offsets of six bits."""
    return [f16_bytes(found.d), f16_bytes(found.dmin), pack_six_bit_pairs(_codes(found.scales), _codes(found.offsets))]


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    found = fit_affine(_subs(blocks, 8), 15, 63)
    return np.concatenate([*_header(found), pack_codes(_codes(found.q))], axis=-1)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    found = fit_affine(_subs(blocks, 8), 31, 63)
    q = _codes(found.q)
    parts = [*_header(found), pack_fields(q >> np.uint8(4), 1), pack_codes(q & np.uint8(15))]
    return np.concatenate(parts, axis=-1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    found = fit_signed(_subs(blocks, 16), np.arange(-32, 32), -128, 127)
    q = _codes(merge(found.levels, 0) + 32)
    low = merge(pack_nibbles(split_last(q & np.uint8(15), 2, 128)), -2)
    high = merge(pack_fields(split_last(q >> np.uint8(4), 2, 4, BLOCK), 2), -2)
    scales = np.ascontiguousarray(found.scales.T.astype(np.int8)).view(np.uint8)
    return np.concatenate([low, high, scales, f16_bytes(found.d)], axis=-1)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    found = fit_affine(_subs(blocks, 16), 3, 15)
    scales, mins = _codes(found.scales), _codes(found.offsets)
    q = split_last(_codes(merge(found.q, 0)), 8, BLOCK)
    parts = [scales | (mins << np.uint8(4)), pack_pairs(q), f16_bytes(found.d), f16_bytes(found.dmin)]
    return np.concatenate(parts, axis=-1)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    found = fit_signed(_subs(blocks, 16), np.arange(-4, 4), -32, 31)
    scales, q = _codes(found.scales + 32), split_last(_codes(merge(found.levels, 0) + 4), 8, BLOCK)
    low, high = pack_nibbles(scales & np.uint8(15)), pack_fields(split_last(scales >> np.uint8(4), 4, 4), 2)
    parts = [pack_fields(q >> np.uint8(2), 1), pack_pairs(q & np.uint8(3)), low, high, f16_bytes(found.d)]
    return np.concatenate(parts, axis=-1)


def _level_codes(levels: np.ndarray) -> np.ndarray:
    return nearest_levels(np.ascontiguousarray(np.moveaxis(levels, -1, 0)))


def _iq4_nl(blocks: np.ndarray) -> np.ndarray:
    found = fit_signed(_subs(blocks, 1), LEVELS, 1, 1)
    return np.concatenate([f16_bytes(found.d), pack_nibbles(_level_codes(found.levels[0]))], axis=-1)


def _iq4_xs(blocks: np.ndarray) -> np.ndarray:
    found = fit_signed(_subs(blocks, 8), LEVELS, -32, 31)
    scales = _codes(found.scales + 32)
    high = pack_fields(split_last(scales >> np.uint8(4), 2, 4).swapaxes(-1, -2), 2)
    low = pack_fields(split_last(scales & np.uint8(15), 4, 2).swapaxes(-1, -2), 4)
    return np.concatenate([f16_bytes(found.d), high, low, merge(pack_nibbles(_level_codes(found.levels)), -2)], axis=-1)


FITTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
}
