"""Elements and rows: sums and products of a few numbers, gated activations, softmax, positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.verify.bounds.near import LOG2E, UNIT, Near, exp, log2, recip, sigmoid, tanh

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def add(x: np.ndarray, y: np.ndarray) -> tuple[Near]:
    return (Near.of(x) + Near.of(y),)


def mul(x: np.ndarray, y: np.ndarray) -> tuple[Near]:
    return (Near.of(x) * Near.of(y),)


def scale(x: np.ndarray, *, factor: float) -> tuple[Near]:
    return (Near.of(x) * Near.of(np.float32(factor)),)


def sigmoid_and_mul(x: np.ndarray, gate: np.ndarray) -> tuple[Near]:
    return (Near.of(x) * sigmoid(Near.of(gate)),)


def silu(gate: Near) -> Near:
    return gate * sigmoid(gate)


def silu_gated(x: Near) -> Near:
    gate, up = x.halves()
    return silu(gate) * up


def silu_and_mul(x: np.ndarray) -> tuple[Near]:
    return (silu_gated(Near.of(x)),)


def gelu_gated(x: Near, form: str = "tanh") -> Near:
    """gelu(gate) * up. Textbooks write it as half the gate times a sum that cancels in the negative tail."""
    gate, up = x.halves()
    g = gate.value
    if form == "tanh":
        inner = SQRT_2_OVER_PI * (g + 0.044715 * g**3)
        factor = np.where(inner < 0, np.exp(2 * inner) / (1 + np.exp(2 * inner)), 1 / (1 + np.exp(-2 * np.abs(inner))))
        # errors of the argument: a few roundings of each term, times the slope of the sigmoid
        moved = 16 * UNIT * np.minimum(np.abs(inner), 1e4) * factor * (1 - factor)
    else:
        factor = 0.5 * _erfc(-g * math.sqrt(0.5))
        moved = 8 * UNIT * np.minimum(np.abs(g), 1e4) * np.exp(-np.minimum(g**2 / 2, 600))
    factor = np.where(np.isneginf(g), 0.0, np.where(np.isposinf(g), 1.0, factor))
    slope = 1.2  # the largest of either form
    made = Near(g * factor, np.abs(g) * (moved + 8 * UNIT) + slope * gate.error)
    return made * up


def gelu_and_mul(x: np.ndarray, *, form: str) -> tuple[Near]:
    return (gelu_gated(Near.of(x), form),)


def clamped_gated(x: Near, alpha: float, limit: float) -> Near:
    gate, up = x.halves()
    gate, up = gate.clipped(-np.inf, limit), up.clipped(-limit, limit)
    return (up + Near.of(1.0)) * (gate * sigmoid(gate * Near.of(np.float32(alpha))))


def clamped_swiglu(x: np.ndarray, *, alpha: float, limit: float) -> tuple[Near]:
    return (clamped_gated(Near.of(x), alpha, float(np.float32(limit))),)


def capped(s: Near, cap: float) -> Near:
    """cap * tanh(s / cap), or s if cap is 0."""
    if cap == 0:
        return s
    limit = float(np.float32(cap))
    return Near.of(limit) * tanh(s * recip(Near.of(limit)))


def soft_cap(x: np.ndarray, *, cap: float) -> tuple[Near]:
    return (capped(Near.of(x), cap),)


def softmax(
    x: np.ndarray,
    mask: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    *,
    scale: float = 1.0,
    soft_cap: float = 0.0,
) -> tuple[Near]:
    s = capped(Near.of(x) * Near.of(np.float32(scale)), soft_cap)
    keep = np.ones(x.shape, bool) if mask is None else np.broadcast_to(mask, x.shape)
    return (weights_of(s, keep, None if sinks is None else np.asarray(sinks, np.float64)),)


def weights_of(s: Near, keep: np.ndarray, sinks: np.ndarray | None) -> Near:
    """Probabilities of scores s [..., K] that are kept, beside a sink [...]. A row without any is 0."""
    value = np.where(keep, s.value, -np.inf)
    top = value.max(axis=-1, keepdims=True, initial=-np.inf)
    sink = None if sinks is None else np.broadcast_to(sinks, s.value.shape[:-1])[..., None]
    top = top if sink is None else np.maximum(top, sink)
    shift = np.where(np.isneginf(top), 0.0, top)
    alive = np.isfinite(value)
    centred = np.where(alive, value - shift, 0.0)
    # kernels may scale by log2(e) before they subtract, so that both terms are rounded
    error = np.where(alive, s.error + 4 * UNIT * (np.abs(value) + np.abs(shift)), 0.0)
    p = exp(Near(centred, error))
    p = Near(np.where(alive, p.value, 0.0), np.where(alive, p.error, 0.0))
    total = p.sum()
    if sink is not None:
        lowered = np.where(np.isneginf(sink), -100.0, sink - shift)
        rest = exp(Near(lowered, 4 * UNIT * (np.abs(shift) + np.where(np.isfinite(sink), np.abs(sink), 0.0))))
        total = total + Near(np.where(np.isneginf(sink), 0.0, rest.value), rest.error)
    seen = total.value > 0
    inverse = recip(Near(np.where(seen, total.value, 1.0), np.where(seen, total.error, 0.0)))
    return p * inverse


def rope(x: np.ndarray, pos_ids: np.ndarray, table: np.ndarray, *, interleave: bool = False) -> tuple[Near]:
    pairs = table.shape[1]
    cos, sin = (Near.of(table[pos_ids, None, :, i]) for i in (0, 1))
    first = slice(0, 2 * pairs, 2) if interleave else slice(pairs)
    second = slice(1, 2 * pairs, 2) if interleave else slice(pairs, 2 * pairs)
    a, b = Near.of(x[..., first]), Near.of(x[..., second])
    y = Near.of(x)
    for place, rotated in ((first, a * cos - b * sin), (second, b * cos + a * sin)):
        y.value[..., place], y.error[..., place] = rotated.value, rotated.error
    return (y,)


def merge_state(v_a: np.ndarray, s_a: np.ndarray, v_b: np.ndarray, s_b: np.ndarray) -> tuple[Near, Near]:
    top = np.maximum(s_a, s_b).astype(np.float64)
    shift = np.where(np.isneginf(top), 0.0, top)
    weights = []
    for s in (s_a, s_b):
        alive = np.isfinite(s)
        lowered = np.where(alive, (np.where(alive, s, 0.0) - shift) / LOG2E, 0.0)
        error = np.where(alive, 4 * UNIT * (np.abs(np.where(alive, s, 0.0)) + np.abs(shift)), 0.0)
        w = exp(Near(lowered, error))
        weights.append(Near(np.where(alive, w.value, 0.0), np.where(alive, w.error, 0.0)))
    total = weights[0] + weights[1]
    seen = total.value > 0
    known = Near(np.where(seen, total.value, 1.0), np.where(seen, total.error, 0.0))
    a, b = (
        Near.of(np.where(w.value[..., None] > 0, v, 0.0)) * w[..., None]
        for v, w in zip((v_a, v_b), weights, strict=True)
    )
    v = (a + b) * recip(known)[..., None]
    return v, Near.of(np.where(seen, top, -np.inf)) + log2(known)


def combine(
    y: np.ndarray, weights: np.ndarray, shared: np.ndarray | None = None, shared_gate: np.ndarray | None = None
) -> tuple[Near]:
    num_tokens, num_ranks = weights.shape
    rows = Near.of(y.reshape(num_tokens, num_ranks, y.shape[1]).swapaxes(1, 2))
    total = (rows * Near.of(weights[:, None, :])).sum()[..., 0]
    if shared is not None:
        more = Near.of(shared)
        total = total + (more if shared_gate is None else more * sigmoid(Near.of(shared_gate)))
    return (total,)


def route(logits: np.ndarray, ids: np.ndarray, attrs: dict[str, Any]) -> Near:
    """The weights of the experts `ids` [T, top_k] that the definition chose."""
    rule = attrs["scores"]
    every = np.ones(logits.shape, bool)
    if rule == "softmax":
        score = weights_of(Near.of(logits), every, None)
    else:
        score = sigmoid(Near.of(logits)) if rule == "sigmoid" else Near.of(logits)
    w = Near(np.take_along_axis(score.value, ids, axis=-1), np.take_along_axis(score.error, ids, axis=-1))
    if rule == "chosen":
        w = weights_of(w, np.ones(w.value.shape, bool), None)
    if attrs["normalize"]:
        total = w.sum() + Near.of(np.float32(attrs["eps"]))
        seen = total.value > 0
        inverse = recip(Near(np.where(seen, total.value, 1.0), np.where(seen, total.error, 0.0)))
        w = w * Near(np.where(seen, inverse.value, 0.0), np.where(seen, inverse.error, 0.0))
    return w.settled() * Near.of(np.float32(attrs["scale"]))


def _erfc(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.vectorize(math.erfc, otypes=[float])(x)
    return result
