"""Kernels as textbooks and GPU libraries write them: float32 sums in other orders, tensor cores, online softmax.

None has the definition's bits; `fast` permits all of them.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.rounding import widen

F = np.float32
Array = np.ndarray
BLOCK_K = 16  # terms that a tensor core adds at once


def chain(x: Array) -> Array:
    """The float32 sum over the last axis, one term after another."""
    return np.add.accumulate(np.asarray(x, F), axis=-1, dtype=F)[..., -1]


def rounded(x: Array, dtype: Any) -> Array:
    """float32 x rounded to a 16-bit type and back."""
    return np.asarray(x, F).astype(dtype).astype(F)


def as_tf32(x: Array) -> Array:
    """float32 x cut to 11 significant bits, as tensor cores read it."""
    return (np.ascontiguousarray(x, F).view(np.uint32) & np.uint32(0xFFFFE000)).view(F)


def tiles(a: Array, b: Array) -> Array:
    """a [M, K] b [K, N]: exact products, the sum of 16 at a time rounded into a float32 accumulator."""
    total = np.zeros((a.shape[0], b.shape[1]), F)
    for k in range(0, a.shape[1], BLOCK_K):
        part = a[:, k : k + BLOCK_K].astype(np.float64) @ b[k : k + BLOCK_K].astype(np.float64)
        total = (total + part).astype(F)
    return total


def split_k(a: Array, b: Array, parts: int = 4) -> Array:
    """The same in parts of K that are added at the end."""
    cuts = np.array_split(np.arange(a.shape[1]), parts)
    return chain(np.stack([tiles(a[:, cut], b[cut]) for cut in cuts], axis=-1))


def gemm(x: Array, weight: HostTensor, bias: Array | None = None, *, multiply: Any = tiles) -> Array:
    """A tensor core's product in the weight's type, TF32 for float32 weights, float16 for blocks."""
    if isinstance(weight, Packed):
        a, w = rounded(widen(x), np.float16), rounded(weight.unpack(), np.float16)
    elif weight.dtype == F:
        a, w = as_tf32(widen(x)), as_tf32(weight)
    else:
        a, w = rounded(widen(x), weight.dtype), widen(weight)
    y = multiply(a, np.ascontiguousarray(w.T))
    return (y if bias is None else y + widen(bias)).astype(x.dtype)


def rms_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float) -> Array:
    """A chain of squares, a division and a square root."""
    wide = widen(x)
    y = wide / np.sqrt(chain(wide * wide)[..., None] / F(x.shape[-1]) + F(eps))
    y = y if weight is None else y * widen(weight)
    return (y if bias is None else y + widen(bias)).astype(x.dtype)


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float) -> Array:
    """Two passes: the mean, then the centred squares."""
    wide = widen(x)
    return rms_norm((wide - chain(wide)[..., None] / F(x.shape[-1])).astype(F), weight, bias, eps=eps).astype(x.dtype)


def softmax(x: Array, *, scale: float, soft_cap: float) -> Array:
    """Exponentials in base 2 of scaled terms, a chain, a division."""
    assert not soft_cap
    s = widen(x) * F(scale) * F(math.log2(math.e))
    p = np.exp2(s - s.max(axis=-1, keepdims=True))
    return (p / chain(p)[..., None]).astype(x.dtype)


def silu_and_mul(x: Array) -> Array:
    gate, up = np.split(widen(x), 2, axis=-1)
    return (gate / (1 + np.exp(-gate)) * up).astype(x.dtype)


def gelu_and_mul(x: Array, *, form: str) -> Array:
    gate, up = np.split(widen(x), 2, axis=-1)
    if form == "tanh":
        inner = np.tanh(F(0.7978845608) * (gate + F(0.044715) * gate * gate * gate))
    else:
        inner = np.vectorize(math.erf, otypes=[F])(gate * F(math.sqrt(0.5)))
    return (F(0.5) * gate * (1 + inner) * up).astype(x.dtype)


def attention(
    q: Array, k: Array, v: Array, scale: float, block: int = 64, sums_rounded: bool = False
) -> tuple[Array, Array]:
    """One head's (out, lse) for queries q [n, D] that see all keys: online softmax over blocks, P in v's type.

    With `sums_rounded` the total is that of the rounded P: a column of ones beside V gives it for nothing.
    """
    m, total = np.full(len(q), -np.inf, F), np.zeros(len(q), F)
    acc = np.zeros((len(q), v.shape[1]), F)
    in_base_2 = F(scale * math.log2(math.e))
    for at in range(0, len(k), block):
        s = tiles(rounded(q, k.dtype), np.ascontiguousarray(widen(k[at : at + block]).T)) * in_base_2
        m_new = np.maximum(m, s.max(axis=1))
        p, alpha = np.exp2(s - m_new[:, None]), np.exp2(m - m_new)
        total = total * alpha + chain(rounded(p, v.dtype) if sums_rounded else p)
        acc = acc * alpha[:, None] + tiles(rounded(p, v.dtype), widen(v[at : at + block]))
        m = m_new
    return acc / total[:, None], m + np.log2(total)


def sequential_delta(
    q: Array, k: Array, v: Array, gates: Array, beta: Array, state: Array, scale: float, dtype: Any = ml_dtypes.bfloat16
) -> tuple[Array, Array]:
    """One sequence from position 0 token by token, operands of sums over K in `dtype`: (o [T, H, V], S [H, K, V])."""
    state, out = state.astype(F).copy(), []
    for t in range(len(q)):
        state *= np.exp(gates[t])[:, None, None]
        short = rounded(state, dtype)
        u = beta[t][:, None] * (v[t] - np.einsum("hk,hkv->hv", rounded(k[t], dtype), short).astype(F))
        state += rounded(k[t], dtype)[:, :, None] * u[:, None, :]
        out.append(np.einsum("hk,hkv->hv", rounded(q[t] * F(scale), dtype), rounded(state, dtype)))
    return np.stack(out).astype(F), state
