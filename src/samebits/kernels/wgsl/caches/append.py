"""append_paged_kv_cache and rope_and_append: keys, then values, each into their cells."""

from __future__ import annotations

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.cache_views import BLOCK_FORMATS, UNITS, CacheView, cache_views, whole_words
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, Tables, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32

OP = "append_paged_kv_cache"
GROUP = 64  # invocations
FAULTS = {
    "NO_SEQUENCE": fault(OP, "batch_indices", "a sequence that is not there", "0 .. sequences - 1"),
    "OUTSIDE_SEQUENCE": fault(OP, "positions", "a position outside its sequence", "0 .. its length - 1"),
    "NOT_A_PAGE": fault(OP, "kv_indices", "a page that is not there", "0 .. pages - 1"),
    "NOT_STORABLE": fault(
        OP, "key or value", "NaN, Inf or a value beyond the cache's range", "finite values it can hold"
    ),
    "OUTSIDE_TABLE": fault("rope", "pos_ids", "a position outside the table", "0 .. rows of the table - 1"),
}


def _refusal(call: OpCall) -> str | None:
    return only_f32("key", "value")(call) or whole_words(call)


def _stored(call: Call, x: Operand, cache: CacheView, angles: Operand | None) -> Dispatch:
    """x [T, H, D] into its cells, turned where there are angles."""
    num_tokens, num_heads, head_size = x.shape
    is_block = cache.format in BLOCK_FORMATS
    count = num_tokens * num_heads * ceil_div(head_size, UNITS[cache.format])
    indices = call.optional("kv_indices")
    tables = {
        "batch": call.tensor("batch_indices"),
        "positions": call.tensor("positions"),
        "last": call.tensor("kv_last_page_len"),
        "indptr": call.optional("kv_indptr"),
        "indices": indices,
        "pos_ids": None if angles is None else call.tensor("pos_ids"),
    }
    formats = {} if is_block else {"IS_F32": cache.format == "f32", "IS_F16": cache.format == "f16"}
    return Dispatch(
        "caches/append_blocks" if is_block else "caches/append",
        (
            Binding("x", x),
            Binding("angles", angles),
            Tables(tables),
            Binding("cache", cache.tensor, "write", cache.view),
        ),
        linear(ceil_div(count, GROUP)),
        consts={
            "D": head_size,
            "HEADS": num_heads,
            "R": 0 if angles is None else angles.shape[1],
            "INTERLEAVE": bool(call.attrs.get("interleave", False)),
            "PAGE_SIZE": cache.page_size,
            **cache.numbers("CACHE"),
            **formats,
        },
        params={
            "count": count,
            "num_sequences": call.tensor("kv_last_page_len").shape[0],
            "num_entries": 0 if indices is None else indices.shape[0],
            "num_pages": cache.num_pages,
            "num_angles": 0 if angles is None else angles.shape[0],
        },
        snippets=(f"kv_{cache.format}",) if is_block else (),
        faults=FAULTS,
    )


def _append(call: Call, angles: Operand | None) -> list[Dispatch]:
    keys, values = cache_views(call.tensor("k_cache"), call.optional("v_cache"), str(call.attrs["layout"]))
    value = call.optional("value")
    parts = [_stored(call, call.tensor("key"), keys, angles)]
    return parts if value is None else [*parts, _stored(call, value, values, None)]


@implements("append_paged_kv_cache", when=_refusal)
def append_paged_kv_cache(call: Call) -> list[Dispatch]:
    return _append(call, None)


@implements("rope_and_append", when=_refusal)
def rope_and_append(call: Call) -> list[Dispatch]:
    return _append(call, call.tensor("table"))
