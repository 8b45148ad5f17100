"""Attention: scores that are sums over D, weights that are exponentials, outputs that are sums over positions.

What `fast` leaves free beside the order of float32 sums and the device's exponentials:
  Q   rounded to the keys' 16-bit type, or in int8 blocks beside quantized keys, as the definition has it; or kept
  P   rounded to the values' 16-bit type at any scale, to float16 times a block's scale beside quantized values, as
      the definition has it; or kept. The sum that divides outputs and gives lse may be that of rounded P
Operands of float32 caches stay float32.
An error of a score moves an output by its weight times the distance of the value from the output, so what all scores
have in common moves nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.core.format import BLOCK, HostTensor, Packed
from samebits.core.numerics.rounding import F32, narrow, widen
from samebits.ops.attention import OP, QUERY_BLOCK, seen_only
from samebits.ops.paged import cache_views, kept, page_table
from samebits.ops.quantize import int8_blocks
from samebits.verify.bounds.expected import ROUNDING
from samebits.verify.bounds.near import LOG2E, SMALLEST, UNIT, Near, growth
from samebits.verify.bounds.products import DEVIATIONS, rounded_terms

ROUNDED = 0.45  # standard deviation of a relative rounding error, in units of the largest one of its format
ALIKE = 0.25  # of the largest rounding error: numbers this close are rounded nearly alike
LEAST_P = {"f16": 2.0**-25, "blocks": 2.0**-25}  # half the step of float16 below its normal numbers


def _wide(x: HostTensor) -> np.ndarray:
    return (x.unpack() if isinstance(x, Packed) else widen(x)).astype(np.float64)


def as_read(q: np.ndarray, k: HostTensor) -> np.ndarray:
    """Queries [n, D] as the definition's products read them."""
    if not isinstance(k, Packed):
        return widen(narrow(q, k.dtype)).astype(np.float64)
    padded = np.zeros((len(q), k.shape[-1]), np.float32)
    padded[:, : q.shape[1]] = q
    codes, scales = int8_blocks(padded.reshape(len(q), k.shape[-1] // BLOCK, BLOCK), OP, "q")
    read: np.ndarray = (codes * scales[..., None].astype(np.float64)).reshape(padded.shape)
    return read


class Scores:
    """Scores [n, kv] of one head, with two kinds of errors.

    error   what float32 arithmetic may move each score
    spread  a standard deviation of what operands of other bits move it; independent from one score to the next
    gained  what each score gains if Q keeps what rounding takes of it
    """

    def __init__(self, q: np.ndarray, k: HostTensor, scale: float, cap: float) -> None:
        keys, read = _wide(k), as_read(q, k)
        rest = np.zeros_like(read)
        rest[:, : q.shape[1]] = q
        rest -= read
        dots = read @ keys.T
        self.value = dots * scale
        self.error = abs(scale) * UNIT * growth(keys.shape[1]) * (np.abs(read) @ np.abs(keys).T)
        self.error += 6 * UNIT * np.abs(self.value)
        self.gained = scale * (rest @ keys.T)
        self.spread = abs(scale) * np.sqrt(rest**2 @ (keys**2).T) / DEVIATIONS
        if cap:
            t = np.tanh(self.value / cap)
            slope = 1 - t**2
            self.value = cap * t
            self.error = slope * self.error + 16 * UNIT * cap
            self.gained, self.spread = slope * self.gained, slope * self.spread

    def add(self, bias: np.ndarray) -> None:
        self.value = self.value + bias
        self.error = self.error + 2 * UNIT * (np.abs(bias) + np.abs(self.value))


def attend(scores: Scores, v: HostTensor, keep: np.ndarray, sink: float | None, v_dim: int) -> tuple[Near, Near]:
    """(out [n, Dv], lse [n]) of one head."""
    s = np.where(keep, scores.value, -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    top = top if sink is None else np.maximum(top, sink)
    shift = np.where(np.isneginf(top), 0.0, top)
    p = np.exp(s - shift)
    rest = np.zeros_like(shift) if sink is None else np.exp(sink - shift)
    seen = np.where(np.isfinite(s), s, 0.0)
    total = p.sum(axis=-1, keepdims=True) + rest
    is_seen = total > 0
    inverse = np.where(is_seen, 1 / np.where(is_seen, total, 1.0), 0.0)
    p = p * inverse
    # an exponential in base 2 of terms that were scaled before they were subtracted
    each = scores.error + UNIT * (8 + 8 * (np.abs(seen) + np.abs(shift)))
    each = np.where(p > 0, np.minimum(each, 60.0), 0.0)
    gained, spread = (np.where(p > 0, x, 0.0) for x in (scores.gained, scores.spread))
    values = _wide(v)[:, :v_dim]
    sizes, squares = np.abs(values), values**2
    out = p @ values
    # float32: weights and their sum, then the sum over positions
    moved = p * each
    error = moved @ sizes + np.abs(out) * moved.sum(axis=-1, keepdims=True)
    error += UNIT * (growth(p.shape[1]) + 24) * (p @ sizes + np.abs(out)) + SMALLEST * sizes.sum(axis=0) * inverse
    # scores of other operands: all gain what Q keeps, or each moves by itself
    error += np.abs((p * gained) @ values - out * (p * gained).sum(axis=-1, keepdims=True))
    weights = (p * spread) ** 2
    variance = weights @ squares - 2 * out * (weights @ values) + out**2 * weights.sum(axis=-1, keepdims=True)
    error += DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))
    error += _rounded_weights(p, inverse, v, out, squares, sizes)
    lse_error = moved.sum(axis=-1) + np.abs((p * gained).sum(axis=-1)) + DEVIATIONS * np.sqrt(weights.sum(axis=-1))
    if isinstance(v, Packed) or v.dtype != F32:
        is_f16 = isinstance(v, Packed) or v.dtype == np.float16
        lse_error += _rounded_total(p, inverse[:, 0], "f16" if is_f16 else "bf16")
    log_total = np.log2(np.where(is_seen, total, 1.0))[:, 0]
    lse = np.where(is_seen[:, 0], shift[:, 0] * LOG2E + log_total, -np.inf)
    rounding = UNIT * (growth(p.shape[1]) + 16 + 4 * np.abs(np.where(np.isfinite(lse), lse, 0.0)))
    rounding += 4 * UNIT * np.abs(shift[:, 0]) * LOG2E
    return Near(out, error), Near(lse, lse_error * LOG2E + rounding)


def _rounded_weights(
    p: np.ndarray, inverse: np.ndarray, v: HostTensor, out: np.ndarray, squares: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The error of outputs whose weights are rounded as the module says."""
    if isinstance(v, Packed):
        codes = np.abs(v.codes().q.reshape(len(squares), -1)[:, : squares.shape[1]]).astype(np.float64)
        lost = LEAST_P["blocks"] * codes.sum(axis=0) * inverse
        return rounded_terms(ROUNDING["f16"], p**2 @ squares, out) + lost
    if v.dtype == F32:
        return np.zeros(out.shape)
    is_f16 = v.dtype == np.float16
    error = rounded_terms(ROUNDING["f16" if is_f16 else "bf16"], p**2 @ squares, out)
    return error + LEAST_P["f16"] * sizes.sum(axis=0) * inverse if is_f16 else error


def _rounded_total(p: np.ndarray, inverse: np.ndarray, fmt: str) -> np.ndarray:
    """Return the error of a sum of weights p [n, kv] that are rounded to a 16-bit format, for weights that sum to 1.

    Weights as good as equal are rounded alike, and others by chance. A bound for roundings that are all alike would
    hide a missing key.
    """
    unit, squares = ROUNDING[fmt], np.zeros(len(p))
    for i, row in enumerate(p):
        alive = row[row > 0]
        _, group = np.unique(np.round(np.log2(alive) / (ALIKE * unit)), return_inverse=True)
        squares[i] = (np.bincount(group, alive) ** 2).sum()
    error: np.ndarray = DEVIATIONS * ROUNDED * unit * np.sqrt(squares)
    return error + LEAST_P["f16"] * (p > 0).sum(axis=-1) * inverse if fmt == "f16" else error


def paged_attention(
    q: np.ndarray,
    k_cache: HostTensor,
    qo_indptr: np.ndarray,
    kv_last_page_len: np.ndarray,
    v_cache: HostTensor | None,
    kv_indptr: np.ndarray | None,
    kv_indices: np.ndarray | None,
    alibi_slopes: np.ndarray | None,
    sinks: np.ndarray | None,
    custom_mask: np.ndarray | None,
    *,
    layout: str,
    sm_scale: float | None,
    logits_soft_cap: float,
    v_dim: int,
    return_lse: bool,
    **seen: Any,
) -> tuple[Near, ...]:
    num_tokens, num_heads, head_size = q.shape
    v_dim = v_dim or head_size
    cache = cache_views(OP, k_cache, v_cache, layout, head_size, v_dim)
    table = page_table(OP, kv_indptr, kv_indices, kv_last_page_len, cache.num_pages, cache.page_size)
    group = num_heads // cache.k.shape[2]
    scale = float(np.float32(1.0 / math.sqrt(head_size) if sm_scale is None else sm_scale))
    cap = float(np.float32(logits_soft_cap))
    out = Near.of(np.zeros((num_tokens, num_heads, v_dim)))
    lse = Near.of(np.full((num_tokens, num_heads), -np.inf))
    lse.error[:] = 0.0
    mask_start = 0
    for b, length in enumerate(table.lengths.tolist()):
        first, stop = int(qo_indptr[b]), int(qo_indptr[b + 1])
        cells = table.cells(b, np.arange(length), cache.page_size)
        keys, values = cache.k[cells], cache.v[cells]
        custom = None
        if custom_mask is not None:
            custom = custom_mask[mask_start : mask_start + (stop - first) * length].reshape(stop - first, length)
            mask_start += custom.size
        for start in range(first, stop, QUERY_BLOCK) if length else ():
            rows = slice(start, min(start + QUERY_BLOCK, stop))
            positions = np.arange(rows.start, rows.stop) - stop + length
            mask = None if custom is None else custom[rows.start - first : rows.stop - first]
            keep = kept(positions, length, seen["causal"], seen["window_left"], mask)
            k, v = seen_only(keys, keep), seen_only(values, keep)
            for h in range(num_heads):
                scores = Scores(q[rows, h], k[:, h // group], scale, cap)
                if alibi_slopes is not None:
                    scores.add(float(alibi_slopes[h]) * (np.arange(length)[None, :] - positions[:, None]))
                sink = None if sinks is None else float(sinks[h])
                made = attend(scores, v[:, h // group], keep, sink, v_dim)
                for whole, part in zip((out, lse), made, strict=True):
                    whole.value[rows, h], whole.error[rows, h] = part.value, part.error
    if sinks is not None:  # a sequence without tokens still has its sinks
        for b in np.flatnonzero(table.lengths == 0).tolist():
            lse.value[int(qo_indptr[b]) : int(qo_indptr[b + 1])] = np.asarray(sinks, np.float64) * LOG2E
            lse.error[int(qo_indptr[b]) : int(qo_indptr[b + 1])] = 16 * UNIT * np.abs(np.asarray(sinks)) * LOG2E
    return (out, lse) if return_lse else (out,)
