"""Results in int8 blocks: a code may fall on the other side of a tie as far as its value is unsure."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import BLOCK, Packed
from samebits.ops.quantize import SMALLEST_AMAX
from samebits.verify.bounds.expected import SAFETY, Expected
from samebits.verify.bounds.near import SMALLEST, UNIT, Near
from samebits.verify.bounds.norms import fused_add_rms_norm
from samebits.verify.bounds.products import expert_gemm_q8, product_q8
from samebits.verify.bounds.rows import clamped_gated, gelu_gated, silu_gated

ROUNDINGS = 8 * 2 * UNIT  # relative, of x * (127 / amax): a quotient within 4 ulp and two products


def in_blocks(x: Near) -> tuple[Expected, Expected]:
    """(codes, scales) of rows in blocks of 32.

    A block is all zeros if its largest magnitude is below 2^-43; nothing is expected of one that may be on either side.
    """
    blocks = x.reshape(*x.value.shape[:-1], x.value.shape[-1] // BLOCK, BLOCK)
    sizes, unsure = np.abs(blocks.value), SAFETY * blocks.error
    largest, largest_error = sizes.max(axis=-1, initial=0.0), unsure.max(axis=-1, initial=0.0)
    alive = largest >= float(SMALLEST_AMAX)
    is_open = np.abs(largest - float(SMALLEST_AMAX)) <= largest_error
    is_open &= largest_error > 0
    safe = np.where(alive, largest, 1.0)
    ratio = np.where(alive[..., None], 127 * blocks.value / safe[..., None], 0.0)
    moved = 127 * (unsure + sizes * (largest_error / safe)[..., None]) / safe[..., None]
    error = np.where(alive[..., None], 0.5 + moved + ROUNDINGS * np.abs(ratio), 0.0)
    error = np.where(is_open[..., None], np.inf, error)
    scales = np.where(alive, largest / 127, 0.0)
    scale_error = np.where(alive, largest_error / 127 + 8 * UNIT * scales + SMALLEST, 0.0)
    scale_error = np.where(is_open, largest_error + 2 * SMALLEST_AMAX, scale_error)
    return Expected(ratio.reshape(x.value.shape), error.reshape(x.value.shape)), Expected(scales, scale_error)


def quantize_q8(x: np.ndarray) -> tuple[Expected, Expected]:
    return in_blocks(Near.of(x))


def add_rms_norm_q8(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, *, eps: float) -> tuple[Any, ...]:
    y, total = fused_add_rms_norm(x, residual, weight, eps=eps)
    return *in_blocks(y.settled()), total


def gemm_silu_q8(codes: np.ndarray, scales: np.ndarray, weight: Packed) -> tuple[Expected, Expected]:
    return in_blocks(silu_gated(product_q8(codes, scales, weight).settled()).settled())


def expert_gate_q8(
    codes: np.ndarray,
    scales: np.ndarray,
    weight: Packed,
    pairs: np.ndarray,
    seg_indptr: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: str,
    alpha: float,
    limit: float,
) -> tuple[Expected, Expected]:
    both = expert_gemm_q8(codes, scales, weight, pairs, seg_indptr, bias)[0]
    if activation == "clamped":
        return in_blocks(clamped_gated(both, alpha, float(np.float32(limit))).settled())
    return in_blocks((silu_gated(both) if activation == "silu" else gelu_gated(both)).settled())
