"""Fused ops on the cache: rope_and_append."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.append import append_paged_kv_cache
from samebits.ops.kv_cases import append_case, append_inputs
from samebits.ops.kv_equivalents import append_equivalents
from samebits.ops.kv_spaces import ROPE_APPEND_SPACE
from samebits.ops.paged import K_CACHE, KV_INDICES, KV_INDPTR, KV_LAST, LAYOUT, V_CACHE
from samebits.ops.record import FLOATS, INDEX, OPS, Attr, Case, Input, Op, Result, define_op
from samebits.ops.rope import rope, rope_table

APPEND, ROPE = OPS["append_paged_kv_cache"], OPS["rope"]


def _decompose(
    b: Any,
    key: Any,
    pos_ids: Any,
    table: Any,
    batch_indices: Any,
    positions: Any,
    k_cache: Any,
    kv_last_page_len: Any,
    value: Any = None,
    v_cache: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    *,
    interleave: bool,
    layout: str,
) -> Any:
    key = b.rope(key, pos_ids, table, interleave=interleave)
    cells = (batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices)
    return b.append_paged_kv_cache(key, value, *cells, layout=layout)


def _check(
    key: np.ndarray, pos_ids: np.ndarray, table: np.ndarray, *, interleave: bool, layout: str, **cells: Any
) -> None:
    """What either part refuses; the cache's format may refuse a key only once it is turned."""
    if ROPE.check is not None and APPEND.check is not None:
        ROPE.check(x=key, pos_ids=pos_ids, table=table, interleave=interleave)
        APPEND.check(key=rope(key, pos_ids, table, interleave=interleave), layout=layout, **cells)


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    inputs = append_inputs(op, case, stream)
    inputs["pos_ids"] = inputs["positions"]
    num_positions = max((*case.extra["lengths"], 1))
    if case.extra.get("turns") == "by-others":
        num_positions += 300
        inputs["pos_ids"] = stream.child("turns").integers(0, num_positions, inputs["positions"].shape)
    rotary, magnitude = case.extra.get("rotary", case.extra["head"]), case.extra.get("magnitude", 1.0)
    inputs["table"] = rope_table(num_positions, rotary, magnitude=magnitude)
    return inputs


def _case(case_id: str, *, interleave: bool = False, **given: Any) -> Case:
    case = append_case(case_id, **given)
    return replace(case, attrs={**case.attrs, "interleave": interleave})


def _cache_bytes(key: np.ndarray, pos_ids: Any, table: Any, interleave: bool, **cells: Any) -> int:
    return APPEND.cache_bytes(key=key, **cells) if APPEND.cache_bytes is not None else 0


@define_op(
    inputs=[
        Input("key", "T Hkv D", FLOATS, "new keys, before rope"),
        Input("value", "T Hkv Dv", FLOATS, "new values; absent for an MLA cache", optional=True),
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
        Result("k_cache", "", "=k_cache", alias_of="k_cache"),
        Result("v_cache", "", "=v_cache", alias_of="v_cache"),
    ],
    freedom="float32 operations, fused or not; a code beyond a tie",
    cases=lambda: [
        _case("f32-f32", k="f32", v="f32"),
        _case("f16-f16"),
        _case("bf16-q8_0", k="bf16", v="q8_0"),
        _case("q8_0-q4_0", k="q8_0", v="q4_0"),
        _case("q4_0-f16", k="q4_0"),
        _case("interleave", interleave=True),
        _case("partial", rotary=8),
        _case("hnd", layout="HND"),
        _case("unified-hnd-q8_0", kind="unified", layout="HND", k="q8_0", v="q8_0"),
        _case("contiguous", table=False),
        _case("page-edge", lengths=(17, 16, 15), new=(3, 2, 1)),
        _case("no-tokens", lengths=(4,), new=(0,)),
        _case("llama-3-8b", heads=8, head=128, lengths=(47, 213, 891), new=(47, 1, 128), full=True),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=_inputs,
    decompose=_decompose,
    equivalents=append_equivalents,
    cache_bytes=_cache_bytes,
    operations=lambda key, value, **_: 3 * key.size + (0 if value is None else value.size),
    space=lambda: ROPE_APPEND_SPACE,
    smallest=-123,
)
def rope_and_append(
    key: np.ndarray,
    value: np.ndarray | None,
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
    """append_paged_kv_cache(rope(key), value), in place."""
    turned = rope(key, pos_ids, table, interleave=interleave)
    cells = (batch_indices, positions, k_cache, kv_last_page_len, v_cache, kv_indptr, kv_indices)
    return append_paged_kv_cache(turned, value, *cells, layout=layout)
