"""paged_attention: ragged prefill and decode in one op, reading the cache through its page table.

For each query and head:
  score  = q . k            Q rounded to K's 16-bit type (exact products), head order;
                            a quantized K: Q in int8 blocks, exact integer sums, the block order of gemm
  s      = capped(settle(score) * sm_scale) + slope * (kv position - q position)
  m      = max over what is kept, and the sink; p = exp(s - m); l = sum p + exp(sink - m)
  out    = settle(sum p * v) * recip(l)   P rounded to V's 16-bit type (exact products);
                            a quantized V: float16(p * d) times the integer code
Sums over positions are in stream order at absolute positions, so neither batch, chunk nor page moves a bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import BLOCK, Codes, HostTensor, Packed
from samebits.core.numerics.elementary import LOG2E, log2
from samebits.core.numerics.rounding import F32, as_operand, narrow, widen
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import head_dot, stream_dot, stream_sum
from samebits.core.shapes import Env, TensorSpec
from samebits.ops.attention_cases import attention_cases
from samebits.ops.gemm import block_matmul
from samebits.ops.kv_cases import attention_inputs
from samebits.ops.kv_equivalents import attention_equivalents
from samebits.ops.kv_spaces import ATTENTION_SPACE
from samebits.ops.paged import (
    K_CACHE,
    KV_INDICES,
    KV_INDPTR,
    KV_LAST,
    LAYOUT,
    V_CACHE,
    Cache,
    PageTable,
    cache_views,
    kept,
    page_table,
)
from samebits.ops.ragged import check_indptr
from samebits.ops.record import FLOATS, INDEX, Attr, Input, Result, define_op
from samebits.ops.softmax import check_sinks, normalizer, not_negative, shifted_exp, soft_capped

F = np.float32
OP = "paged_attention"
QUERY_BLOCK = 64  # bounds the memory of the score matrix; has no effect on bits


def scores(q: np.ndarray, k: HostTensor) -> np.ndarray:
    """q float32 [Tq, D] against the keys of one head, k [n, D] as stored; float32 [Tq, n]."""
    if isinstance(k, Packed):
        padded = np.zeros((len(q), k.shape[-1]), np.float32)
        padded[:, : q.shape[1]] = q
        return block_matmul(padded, _stored_codes(k, "k_cache"), OP, "q")
    rounded = as_operand(q, k.dtype, OP, "q")
    keys = _stored_operand(k, "k_cache")
    return head_dot(q.shape[1], (len(q), len(keys)), lambda d: rounded[:, d, None] * keys[None, :, d])


def weighted_values(p: np.ndarray, keep: np.ndarray, v: HostTensor, v_dim: int) -> np.ndarray:
    """sum over positions of p * v; p float32 [Tq, n], v [n, Dv] as stored; float32 [Tq, Dv].

    A value that is not kept is never multiplied, so what it holds does not matter.
    """
    if isinstance(v, Packed):
        codes = _stored_codes(v, "v_cache")
        values = codes.q.reshape(len(codes.q), v.shape[-1])[:, :v_dim].astype(np.float32)
        block_of = np.arange(v_dim) // BLOCK

        def products(rows: slice) -> np.ndarray:
            scaled = p.T[rows, :, None] * codes.d[rows, None, :]
            weight = widen(narrow(scaled, np.dtype(np.float16)))[:, :, block_of]
            return np.where(keep.T[rows, :, None], weight * values[rows, None, :], F(0))
    else:
        weights = as_operand(p, v.dtype, OP, "p")
        stored = _stored_operand(v, "v_cache")

        def products(rows: slice) -> np.ndarray:
            terms = weights.T[rows, :, None] * stored[rows, None, :]
            return np.where(keep.T[rows, :, None], terms, F(0))

    return stream_dot(p.shape[1], (len(p), v_dim), products)


def _stored_operand(x: np.ndarray, argument: str) -> np.ndarray:
    """Cached 16-bit values as float32; BadInput where append would not have stored them."""
    return as_operand(widen(x), x.dtype, OP, argument) if x.dtype != F32 else x


def _stored_codes(x: Packed, argument: str) -> Codes:
    """Return cached blocks taken apart. Raise BadInput for a scale that append would not have stored."""
    codes = x.codes()
    if not np.isfinite(codes.d).all():
        raise BadInput(OP, argument, "NaN, Inf or a value beyond the type's range", "what append stores")
    return codes


def seen_only(x: HostTensor, keep: np.ndarray) -> HostTensor:
    """x [n, H, D] as stored, zeros at positions that no query looks at: they may hold anything, NaN included."""
    seen = np.asarray(keep.any(axis=0))[:, None, None]
    if isinstance(x, Packed):
        return Packed(x.format, np.where(seen, x.data, np.uint8(0)), x.scale)
    return np.where(seen, x, np.zeros(1, x.dtype))


@np.errstate(invalid="ignore")  # a place masked for one query only may hold Inf
def attend(
    q: np.ndarray,
    k: HostTensor,
    v: HostTensor,
    q_positions: np.ndarray,
    keep: np.ndarray,
    *,
    sm_scale: np.float32,
    soft_cap: float,
    slope: np.float32 | None,
    sink: np.float32 | None,
    v_dim: int,
) -> tuple[np.ndarray, np.ndarray]:
    """One head of one sequence: (out [Tq, Dv], lse [Tq])."""
    s = soft_capped(settle(scores(q, k)) * sm_scale, soft_cap)
    if slope is not None:
        s = s + slope * (np.arange(keep.shape[1])[None, :] - q_positions[:, None]).astype(np.float32)
    if not (s < np.inf)[keep].all():  # -Inf is below all others
        raise BadInput(OP, "q", "a score that is NaN or +Inf", "finite scores")
    sinks = None if sink is None else np.full(len(q), sink, np.float32)
    maximum, p, sink_term = shifted_exp(s, keep, sinks)
    total = stream_sum(p) + sink_term
    out = settle(weighted_values(p, keep, v, v_dim)) * normalizer(total)[:, None]
    lse = maximum * LOG2E + log2(np.where(total > 0, total, F(1)))
    return settle(out), settle(np.where(total > 0, lse, F(-np.inf)))


def _result_dims(specs: dict[str, TensorSpec], attrs: dict[str, Any]) -> Env:
    """Return the size of a value head. Raise BadInput for heads without elements: their scores have no scale."""
    if specs["q"].shape[-1] == 0:
        raise BadInput(OP, "q", "heads of 0 elements", "1 or more")
    return {"Dv": attrs["v_dim"] or specs["q"].shape[-1]}


def _stored(q: np.ndarray, k_cache: HostTensor, kv_last_page_len: np.ndarray, **given: Any) -> tuple[Cache, PageTable]:
    """The cache of a call as views, and its checked table."""
    v_dim = given["v_dim"] or q.shape[-1]
    cache = cache_views(OP, k_cache, given["v_cache"], given["layout"], q.shape[-1], v_dim)
    sizes = cache.num_pages, cache.page_size
    return cache, page_table(OP, given["kv_indptr"], given["kv_indices"], kv_last_page_len, *sizes)


def _operations(q: np.ndarray, qo_indptr: np.ndarray, **given: Any) -> int:
    """Two products of queries and positions, as if nothing were masked."""
    pairs = int((np.diff(qo_indptr) * _stored(q, **given)[1].lengths).sum())
    return 2 * pairs * q.shape[1] * (q.shape[-1] + (given["v_dim"] or q.shape[-1]))


def _cache_bytes(q: np.ndarray, **given: Any) -> int:
    """Every token of every sequence, read once."""
    cache, table = _stored(q, **given)
    return int(table.lengths.sum()) * cache.token_bytes


def _window(value: int) -> str | None:
    return None if value >= -1 else "-1 (off) or more"


def _size(value: int) -> str | None:
    return None if value >= 0 else "0 (that of q) or more"


def _check(q: np.ndarray, qo_indptr: np.ndarray, **given: Any) -> None:
    cache, table = _stored(q, **given)
    num_kv_heads = cache.k.shape[2]
    if num_kv_heads == 0 or q.shape[1] % num_kv_heads or cache.v.shape[2] != num_kv_heads:
        raise BadInput(OP, "q", f"{q.shape[1]} heads", f"a multiple of the cache's {num_kv_heads}")
    check_indptr(OP, "qo_indptr", qo_indptr, len(q))
    query_counts = np.diff(qo_indptr)
    if given["causal"] and (query_counts > table.lengths).any():
        b = int(np.argmax(query_counts > table.lengths))
        raise BadInput(
            OP, "qo_indptr", f"{query_counts[b]} queries in sequence {b}", f"at most its length {table.lengths[b]}"
        )
    mask, total = given["custom_mask"], int((query_counts * table.lengths).sum())
    if mask is not None and len(mask) != total:
        raise BadInput(OP, "custom_mask", f"{len(mask)} entries", f"queries x length of every sequence: {total}")
    if not np.isfinite(q).all():
        raise BadInput(OP, "q", "NaN or Inf", "finite values")
    check_sinks(OP, given["sinks"])
    if given["alibi_slopes"] is not None and not np.isfinite(given["alibi_slopes"]).all():
        raise BadInput(OP, "alibi_slopes", "NaN or Inf", "finite values")


@define_op(
    aliases=("batch_prefill_with_kv_cache", "batch_prefill_attention", "batch_decode_with_kv_cache"),
    inputs=[
        Input("q", "T Hq D", FLOATS, "queries, after rope; the last ones of each sequence"),
        K_CACHE,
        Input("qo_indptr", "B+1", INDEX, "queries of sequence b: rows qo_indptr[b] .. qo_indptr[b+1] - 1"),
        KV_LAST,
        V_CACHE,
        KV_INDPTR,
        KV_INDICES,
        Input("alibi_slopes", "Hq", ("f32",), "slope * (kv position - q position) is added", optional=True),
        Input("sinks", "Hq", ("f32",), "one more logit per head, in the sum only", optional=True),
        Input(
            "custom_mask",
            "NM",
            ("bool",),
            "true keeps a position; [queries, length] of every sequence, flat",
            optional=True,
        ),
    ],
    attrs=[
        LAYOUT,
        Attr("causal", bool, True, "query i of n sees positions up to length - n + i"),
        Attr("sm_scale", float, None, "float32(1/sqrt(D)) if absent"),
        Attr("window_left", int, -1, "how many positions a query sees to its left; -1 is all", _window),
        Attr("logits_soft_cap", float, 0.0, "cap * tanh(s / cap); 0 is off", not_negative),
        Attr("v_dim", int, 0, "size of a value head; 0 takes that of q", _size),
        Attr("return_lse", bool, False, "also return log2 of the sum of exponentials"),
    ],
    results=[
        Result("out", "T Hq Dv", "=q"),
        Result("lse", "T Hq", "f32", "base 2; -Inf where nothing is seen", when="return_lse"),
    ],
    freedom="order of sums in float32; the device's elementary functions; Q as given; P rounded to the type of "
    "the values at any scale",
    cases=attention_cases,
    invariant_axes=("T", "B", "Hq"),
    check=_check,
    make_inputs=attention_inputs,
    shape_env=_result_dims,
    equivalents=attention_equivalents,
    operations=_operations,
    cache_bytes=_cache_bytes,
    space=lambda: ATTENTION_SPACE,
    smallest=-123,
)
def paged_attention(
    q: np.ndarray,
    k_cache: HostTensor,
    qo_indptr: np.ndarray,
    kv_last_page_len: np.ndarray,
    v_cache: HostTensor | None = None,
    kv_indptr: np.ndarray | None = None,
    kv_indices: np.ndarray | None = None,
    alibi_slopes: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    custom_mask: np.ndarray | None = None,
    *,
    layout: str = "NHD",
    causal: bool = True,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float = 0.0,
    v_dim: int = 0,
    return_lse: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """softmax(q k^T) v over a paged cache, for every sequence of a ragged batch."""
    num_tokens, num_heads, head_size = q.shape
    v_dim = v_dim or head_size
    cache = cache_views(OP, k_cache, v_cache, layout, head_size, v_dim)
    table = page_table(OP, kv_indptr, kv_indices, kv_last_page_len, cache.num_pages, cache.page_size)
    group = num_heads // cache.k.shape[2]
    scale = F(1.0 / math.sqrt(head_size)) if sm_scale is None else F(sm_scale)
    out = np.zeros((num_tokens, num_heads, v_dim), np.float32)
    lse = np.full((num_tokens, num_heads), -np.inf, np.float32)
    mask_start = 0
    for b, kv_len in enumerate(table.lengths.tolist()):
        first, stop = int(qo_indptr[b]), int(qo_indptr[b + 1])
        cells = table.cells(b, np.arange(kv_len), cache.page_size)
        keys, values = cache.k[cells], cache.v[cells]
        custom = None
        if custom_mask is not None:
            custom = custom_mask[mask_start : mask_start + (stop - first) * kv_len].reshape(stop - first, kv_len)
            mask_start += custom.size
        for start in range(first, stop, QUERY_BLOCK):
            rows = slice(start, min(start + QUERY_BLOCK, stop))
            positions = np.arange(rows.start, rows.stop) - stop + kv_len
            block_mask = None if custom is None else custom[rows.start - first : rows.stop - first]
            keep = kept(positions, kv_len, causal, window_left, block_mask)
            seen_keys, seen_values = seen_only(keys, keep), seen_only(values, keep)
            for h in range(num_heads):
                out[rows, h], lse[rows, h] = attend(
                    q[rows, h],
                    seen_keys[:, h // group],
                    seen_values[:, h // group],
                    positions,
                    keep,
                    sm_scale=scale,
                    soft_cap=logits_soft_cap,
                    slope=None if alibi_slopes is None else alibi_slopes[h],
                    sink=None if sinks is None else sinks[h],
                    v_dim=v_dim,
                )
    return (out, lse) if return_lse else out
