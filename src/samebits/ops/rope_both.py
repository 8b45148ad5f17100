"""rope_both_and_append: all that happens to queries, keys and values between the projections and attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.format import FORMATS, HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import rounded
from samebits.ops.fused import rope_and_append
from samebits.ops.kv_equivalents import append_equivalents
from samebits.ops.kv_spaces import ROPE_BOTH_SPACE
from samebits.ops.paged import K_CACHE, KV_INDICES, KV_INDPTR, KV_LAST, LAYOUT, V_CACHE
from samebits.ops.record import FLOATS, INDEX, OPS, Attr, Case, Input, Op, Result, define_op
from samebits.ops.rope import rope
from samebits.ops.values import contents

PARTS = OPS["rope_and_append"]
ROPE = OPS["rope"]


def _decompose(b: Any, query: Any, pos_ids: Any, table: Any, *, interleave: bool, **rest: Any) -> tuple[Any, ...]:
    rotated = b.rope(query, pos_ids, table, interleave=interleave)
    caches = b.rope_and_append(pos_ids=pos_ids, table=table, interleave=interleave, **rest)
    return rotated, *(caches if isinstance(caches, tuple) else (caches,))


def _check(query: np.ndarray, pos_ids: np.ndarray, table: np.ndarray, interleave: bool, **rest: Any) -> None:
    if ROPE.check is not None and PARTS.check is not None:
        ROPE.check(x=query, pos_ids=pos_ids, table=table, interleave=interleave)
        PARTS.check(pos_ids=pos_ids, table=table, interleave=interleave, **rest)


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """rope_and_append's, and a group of query heads a key head, two if it does not say."""
    inputs: dict[str, HostTensor] = PARTS.make_inputs(op, case, stream) if PARTS.make_inputs is not None else {}
    num_tokens, num_heads, head_size = inputs["key"].shape
    shape, fmt = (num_tokens, case.extra.get("group", 2) * num_heads, head_size), case.formats.get("query", "f32")
    query = contents(case.extra.get("values", "normal"), stream.child("query"), shape, fmt)
    inputs["query"] = rounded(query, np.dtype(FORMATS[fmt].dtype))
    return inputs


def _cases() -> list[Case]:
    kept = [case for case in PARTS.cases if case.id != "hnd"]
    return [*kept, replace(kept[0], id="f16-query", formats={"query": "f16"})]


def _cache_bytes(query: Any, **rest: Any) -> int:
    return PARTS.cache_bytes(**rest) if PARTS.cache_bytes is not None else 0


@define_op(
    inputs=[
        Input("query", "T Hq D", FLOATS, "query heads, before rope"),
        Input("key", "T Hkv D", FLOATS, "new keys, before rope"),
        Input("value", "T Hkv Dv", FLOATS, "new values"),
        Input("pos_ids", "T", INDEX, "position of each token, a row of the table"),
        Input("table", "P_table R 2", ("f32",), "rope_table(): cos and sin; the rotary size is 2R"),
        Input("batch_indices", "T", INDEX, "sequence of each token"),
        Input("positions", "T", INDEX, "position of each token in its sequence"),
        K_CACHE,
        KV_LAST,
        V_CACHE,
        KV_INDPTR,
        KV_INDICES,
    ],
    attrs=[Attr("interleave", bool, False, "pairs (2i, 2i+1) instead of (i, i+R)"), LAYOUT],
    results=[
        Result("rotated", "T Hq D", "=query", "the query after rope"),
        Result("k_cache", "", "=k_cache", alias_of="k_cache"),
        Result("v_cache", "", "=v_cache", alias_of="v_cache"),
    ],
    freedom="float32 operations, fused or not; a code beyond a tie",
    cases=lambda: _cases(),
    invariant_axes=("T",),
    check=_check,
    make_inputs=_inputs,
    decompose=_decompose,
    equivalents=append_equivalents,
    cache_bytes=_cache_bytes,
    operations=lambda query, key, value, **_: 3 * (query.size + key.size) + value.size,
    space=lambda: ROPE_BOTH_SPACE,
    smallest=-123,
)
def rope_both_and_append(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    pos_ids: np.ndarray,
    table: np.ndarray,
    batch_indices: np.ndarray,
    positions: np.ndarray,
    k_cache: HostTensor,
    kv_last_page_len: np.ndarray,
    v_cache: HostTensor | None = None,
    kv_indptr: np.ndarray | None = None,
    kv_indices: np.ndarray | None = None,
    *,
    interleave: bool = False,
    layout: str = "NHD",
) -> tuple[HostTensor, ...]:
    """rope(query) and rope_and_append(key, value), the cache written in place."""
    cells = (batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices)
    caches = rope_and_append(key, value, pos_ids, table, *cells, interleave=interleave, layout=layout)
    return rope(query, pos_ids, table, interleave=interleave), *caches
