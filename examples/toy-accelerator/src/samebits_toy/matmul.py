"""gemm, a tile of 32 x 32 outputs at a time."""

from __future__ import annotations

import numpy as np

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits_toy import device as dev
from samebits_toy.memory import Window

F = np.float32


def can_multiply(call: OpCall) -> str | None:
    fmt = call.inputs["weight"].format
    return None if fmt in ("f32", "f16", "bf16", *dev.BLOCK_BYTES) else f"toy-tiles gemm has no {fmt} weights"


@dev.table.implements("gemm", tier=Tier.PORTABLE, when=can_multiply)
def gemm(x: Window, weight: Window, bias: Window | None = None) -> tuple[np.ndarray]:
    y = np.zeros((x.num_rows, weight.num_rows), F)
    for x_rows in dev.strips(x.num_rows):
        lanes = dev.unpack(x, x_rows)
        codes = dev.quantize(lanes) if weight.format in dev.BLOCK_BYTES else None
        for w_rows in dev.strips(weight.num_rows):
            tile = float_tile(lanes, weight, w_rows) if codes is None else quantized_tile(*codes, weight, w_rows)
            y[np.ix_(x_rows, w_rows)] = dev.settle(tile)  # what a bias is added to is a result of its own
    return (y if bias is None else dev.add(y, bias.vector().astype(F)),)


def float_tile(x: np.ndarray, weight: Window, w_rows: np.ndarray) -> np.ndarray:
    """Stream order over K. 16-bit products are exact, so fma is allowed; float32 ones round first."""
    a = dev.operand(x, weight.format).T
    w = dev.operand(dev.unpack(weight, w_rows), weight.format).T

    def fused(lanes: np.ndarray, k: np.ndarray) -> np.ndarray:
        return dev.fma(a[k, :, None], w[k, None, :], lanes)

    def rounded(lanes: np.ndarray, k: np.ndarray) -> np.ndarray:
        return dev.add(lanes, dev.mul(a[k, :, None], w[k, None, :]))

    return dev.stream(len(a), (len(x), len(w_rows)), rounded if weight.format == "f32" else fused)


def quantized_tile(a: np.ndarray, a_scale: np.ndarray, weight: Window, w_rows: np.ndarray) -> np.ndarray:
    """Block order: an exact integer sum and one float32 term per block; every parenthesis is part of the definition."""
    codes, d, m = dev.unpack_blocks(weight, w_rows)
    scale = a_scale.T[:, :, None]
    terms = dev.mul(dev.dot32(a, codes), dev.mul(d.T[:, None, :], scale))
    if m is not None:
        sums = a.sum(axis=-1, dtype=np.int32).astype(F).T[:, :, None]  # of the activations' codes: what m multiplies
        terms = dev.add(terms, dev.mul(sums, dev.mul(m.T[:, None, :], scale)))
    return dev.block_sum(terms)
