"""How keys and values go into a cache in each format. Rounded once, in canonical operations."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, HostTensor, Packed
from samebits.core.numerics.elementary import recip, round_to_int
from samebits.core.numerics.rounding import as_operand, narrow
from samebits.ops.quantize import block_range, int8_blocks

F = np.float32


def encode_rows(x: np.ndarray, cache: HostTensor, where: str, argument: str) -> np.ndarray:
    """float32 x [T, H, D] as the cache stores it: its dtype [T, H, D], or uint8 [T, H, row bytes]."""
    if not isinstance(cache, Packed):
        return narrow(as_operand(x, cache.dtype, where, argument), cache.dtype)
    num_blocks = -(-x.shape[-1] // BLOCK)
    padded = np.zeros((*x.shape[:-1], num_blocks * BLOCK), np.float32)
    padded[..., : x.shape[-1]] = x
    blocks = padded.reshape(*x.shape[:-1], num_blocks, BLOCK)
    scale, body = (_q8_0 if cache.format.name == "q8_0" else _q4_0)(blocks, where, argument)
    stored_scale = narrow(scale, np.dtype(np.float16))
    if not np.isfinite(stored_scale).all():
        raise BadInput(where, argument, "a magnitude whose scale exceeds float16", "values the cache can hold")
    row = np.concatenate([stored_scale[..., None].view(np.uint8), body], axis=-1)
    return row.reshape(*x.shape[:-1], num_blocks * row.shape[-1])


def _q8_0(blocks: np.ndarray, where: str, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """scale = amax * (1/127), code = rint(x * (127 * recip(amax)))."""
    codes, scale = int8_blocks(blocks, where, argument)
    return scale, codes.view(np.uint8)


def _q4_0(blocks: np.ndarray, where: str, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """scale = extreme * (-1/8), extreme the first element of largest magnitude;
    code = min(rint(x * (-8 * recip(extreme))) + 8, 15), elements 0-15 in the low nibbles."""
    magnitude = np.abs(blocks)
    at = np.argmax(magnitude, axis=-1)[..., None]
    amax = np.take_along_axis(magnitude, at, axis=-1)[..., 0]
    extreme = np.take_along_axis(blocks, at, axis=-1)[..., 0]
    alive = block_range(amax, where, argument)
    to_code = np.copysign(F(8) * recip(np.where(alive, amax, F(1))), -extreme)
    codes = np.minimum(round_to_int(blocks * to_code[..., None]) + F(8), F(15))
    codes = np.where(alive[..., None], codes, F(8)).astype(np.uint8)
    scale = np.where(alive, extreme * F(-0.125), F(0))
    return scale, codes[..., : BLOCK // 2] | (codes[..., BLOCK // 2 :] << 4)
