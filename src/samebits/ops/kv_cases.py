"""Cases of the ops on paged caches: scattered pages, poisoned unused cells, every layout and format."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import rounded
from samebits.core.numerics.settling import settle
from samebits.ops.kv_codec import encode_rows
from samebits.ops.paged import Cache, cache_views, kept
from samebits.ops.record import FLOATS, Case, Op
from samebits.ops.values import contents

POISON_BYTE = 0xFF  # NaN as float16, float32 and bfloat16 alike
QUERIES_AT_ONCE = 64  # bounds the memory of a mask


def empty_cache(fmt: str, shape: tuple[int, ...]) -> HostTensor:
    """A cache of NaN: a cell that is read before it is written spoils the result."""
    record = FORMATS[fmt]
    if isinstance(record, BlockFormat):
        num_blocks = -(-shape[-1] // record.block_len)
        return Packed(record, np.full((*shape[:-1], num_blocks * record.block_bytes), POISON_BYTE, np.uint8))
    dtype = record.dtype
    if dtype is None:
        raise TypeError(f"{fmt} is neither plain nor a block format")
    return np.full((*shape[:-1], shape[-1] * dtype.itemsize), POISON_BYTE, np.uint8).view(dtype)


def make_cache(extra: dict[str, Any], num_pages: int, page_size: int) -> dict[str, HostTensor]:
    """Poisoned k_cache (and v_cache) of the case's kind, layout and formats."""
    heads, head, v_dim = extra["heads"], extra["head"], extra["v_dim"]
    if extra["kind"] == "mla":
        return {"k_cache": empty_cache(extra["k"], (num_pages, page_size, head))}
    inner = (page_size, heads) if extra["layout"] == "NHD" else (heads, page_size)
    if extra["kind"] == "unified":
        return {"k_cache": empty_cache(extra["k"], (num_pages, 2, *inner, head))}
    return {
        "k_cache": empty_cache(extra["k"], (num_pages, *inner, head)),
        "v_cache": empty_cache(extra["v"], (num_pages, *inner, v_dim)),
    }


def chosen_pages(extra: dict[str, Any], counts: list[int], num_pages: int, stream: Stream) -> np.ndarray:
    """Page ids of all sequences, one after another: scattered, or as the case's `pages` says.

    "shared": sequences begin with the whole pages of the first one, as far as both have them unwritten;
    "repeated": a sequence's whole pages are all the same one.
    """
    ids = stream.permutation(num_pages)[: sum(counts)].copy()
    if "pool" in extra and len(ids) and num_pages - 1 not in ids:  # a large pool is there for its last pages
        ids[stream.child("last").integers(0, len(ids), (1,))] = num_pages - 1
    kind = extra.get("pages", "scattered")
    if kind == "ordered":
        return np.arange(num_pages - sum(counts), num_pages, dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    unwritten = [n - new for n, new in zip(extra["lengths"], extra.get("new", (0,) * len(counts)), strict=True)]
    whole = [n // extra["page_size"] for n in unwritten]
    for b, start in enumerate(starts[:-1]):
        if kind == "shared" and b:
            common = min(whole[0], whole[b])
            ids[start : start + common] = ids[:common]
        if kind == "repeated" and whole[b]:
            ids[start : start + whole[b]] = ids[start]
    return ids


def make_table(extra: dict[str, Any], stream: Stream) -> tuple[dict[str, HostTensor], int, int]:
    """Index arrays for the case's lengths; (arrays, num_pages, page_size)."""
    lengths, page_size = extra["lengths"], extra["page_size"]
    if not extra["table"]:
        last = {"kv_last_page_len": np.array(lengths, np.int32)}
        return last, len(lengths), max((*lengths, 1))  # type: ignore[return-value]
    counts = [-(-n // page_size) for n in lengths]
    num_pages = max(sum(counts) + 3, extra.get("pool", 0))
    last_lens = [n - (c - 1) * page_size if c else 0 for n, c in zip(lengths, counts, strict=True)]
    arrays: dict[str, HostTensor] = {
        "kv_last_page_len": np.array(last_lens, np.int32),
        "kv_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "kv_indices": chosen_pages(extra, counts, num_pages, stream),
    }
    return arrays, num_pages, page_size


def fill(cache: HostTensor, rows: np.ndarray, pages: np.ndarray, slots: np.ndarray) -> None:
    """Stores float32 rows [n, H, D], settled, in cells of a logical view."""
    target = cache.data if isinstance(cache, Packed) else cache
    target[pages, slots] = encode_rows(settle(rows), cache, "case", "rows")


def cells_of(
    arrays: dict[str, Any], sequence: int, positions: np.ndarray, page_size: int
) -> tuple[np.ndarray, np.ndarray]:
    if "kv_indices" not in arrays:
        return np.full(len(positions), sequence), positions
    pages = arrays["kv_indices"][arrays["kv_indptr"][sequence] :]
    return pages[positions // page_size], positions % page_size


def stored_range(extra: dict[str, Any], side: str) -> str:
    """Return the float format within whose range values of the "k" or the "v" cache are drawn."""
    return extra[side] if extra[side] in FLOATS else "f16"


def filled_inputs(extra: dict[str, Any], stream: Stream, counts: list[int]) -> dict[str, HostTensor]:
    """Cache and table with the first counts[b] tokens of sequence b stored."""
    arrays, num_pages, page_size = make_table(extra, stream.child("pages"))
    caches = make_cache(extra, num_pages, page_size)
    views: Cache = cache_views(
        "case", caches["k_cache"], caches.get("v_cache"), extra["layout"], extra["head"], extra["v_dim"]
    )
    for b, count in enumerate(counts):
        pages, slots = cells_of(arrays, b, np.arange(count), page_size)
        kind = extra.get("stored", "normal")
        keys = contents(kind, stream.child(f"k{b}"), (count, extra["heads"], extra["head"]), stored_range(extra, "k"))
        fill(views.k, keys, pages, slots)
        if extra["kind"] != "mla":
            shape = (count, extra["heads"], extra["v_dim"])
            values = contents(kind, stream.child(f"v{b}"), shape, stored_range(extra, "v"))
            fill(views.v, values, pages, slots)
    return {**caches, **arrays}


def poison(cache: HostTensor, pages: np.ndarray, slots: np.ndarray) -> None:
    """Fill cells of a logical view with NaN."""
    target = cache.data if isinstance(cache, Packed) else cache
    target[pages, slots] = np.full(target.dtype.itemsize, POISON_BYTE, np.uint8).view(target.dtype)[0]


def seen_positions(case: Case, inputs: dict[str, Any]) -> list[np.ndarray]:
    """Return for each sequence which of its positions any of its queries looks at; bool [length]."""
    causal, window, mask = case.attrs.get("causal", True), case.attrs.get("window_left", -1), inputs.get("custom_mask")
    seen, first = [], 0
    for count, length in zip(case.extra["queries"], case.extra["lengths"], strict=True):
        own = None if mask is None else mask[first : first + count * length].reshape(count, length)
        first += count * length
        any_query = np.zeros(length, bool)
        for start in range(0, count, QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, count))
            keep = kept(length - count + rows, length, causal, window, None if own is None else own[rows])
            any_query |= keep.any(axis=0)
        seen.append(any_query)
    return seen


def hide_unseen(case: Case, inputs: dict[str, Any]) -> None:
    """Poison all cells that no query looks at, in place, as they may hold anything.

    A table entry whose page no query of its sequence looks at names a page that nobody has written, as it does once the
    engine has released a page behind a window.
    """
    extra = case.extra
    cache = cache_views(
        "case", inputs["k_cache"], inputs.get("v_cache"), extra["layout"], extra["head"], extra["v_dim"]
    )
    seen = seen_positions(case, inputs)
    if all(positions.all() for positions in seen):
        return
    stored = [cells_of(inputs, b, np.arange(len(x)), cache.page_size) for b, x in enumerate(seen)]
    is_seen = np.zeros((cache.num_pages, cache.page_size), bool)
    for cells, positions in zip(stored, seen, strict=True):
        is_seen[cells[0][positions], cells[1][positions]] = True
    for pages, slots in stored:
        unseen = ~is_seen[pages, slots]
        for view in (cache.k, cache.v):
            poison(view, pages[unseen], slots[unseen])
    if "kv_indices" in inputs:
        table = inputs["kv_indices"]
        unused = np.ones(cache.num_pages, bool)
        unused[table] = False
        for b, positions in enumerate(seen):
            start = inputs["kv_indptr"][b]
            for page in range(-(-len(positions) // cache.page_size)):
                if not positions[page * cache.page_size : (page + 1) * cache.page_size].any():
                    table[start + page] = np.argmax(unused)


def kv_extra(**given: Any) -> dict[str, Any]:
    """A case's cache description with defaults filled in."""
    extra: dict[str, Any] = {
        "kind": "split",
        "layout": "NHD",
        "k": "f16",
        "v": "f16",
        "heads": 2,
        "head": 32,
        "v_dim": 0,
        "lengths": (5, 16, 40),
        "page_size": 16,
        "table": True,
    }
    extra.update(given)
    extra["v_dim"] = extra["v_dim"] or extra["head"]
    return extra


def append_case(case_id: str, *, new: tuple[int, ...] = (2, 16, 7), full: bool = False, **given: Any) -> Case:
    """`new` tokens at the end of each sequence are the ones to append."""
    extra = kv_extra(new=new, **given)
    return Case(case_id, {}, {"layout": extra["layout"]}, extra=extra, full=full)


def append_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Old tokens stored, new ones given with their right-aligned positions."""
    extra = case.extra
    old = [n - new for n, new in zip(extra["lengths"], extra["new"], strict=True)]
    inputs = filled_inputs(extra, stream, old)
    total = sum(extra["new"])
    kind = extra.get("values", "normal")
    for name, width in (("key", extra["head"]), ("value", extra["v_dim"])):
        if name == "key" or extra["kind"] != "mla":
            fmt = case.formats.get(name, "f32")
            limit = "f16" if fmt == "f16" else stored_range(extra, name[0])
            drawn = contents(kind, stream.child(name), (total, extra["heads"], width), limit)
            inputs[name] = rounded(drawn, _dtype(fmt))
    inputs["batch_indices"] = np.repeat(np.arange(len(old)), extra["new"]).astype(np.int32)
    spans = [np.arange(o, n) for o, n in zip(old, extra["lengths"], strict=True)]
    inputs["positions"] = np.concatenate([*spans, np.zeros(0)]).astype(np.int32)
    if extra.get("order") == "shuffled":
        order = stream.child("order").permutation(total)
        for name in ("batch_indices", "positions"):
            inputs[name] = inputs[name][order]
    return inputs


def _dtype(fmt: str) -> np.dtype:
    return np.dtype(FORMATS[fmt].dtype)


def attention_case(
    case_id: str,
    *,
    queries: tuple[int, ...] = (5, 1, 9),
    group: int = 2,
    attrs: dict[str, Any] | None = None,
    given: tuple[str, ...] = (),
    full: bool = False,
    **cache: Any,
) -> Case:
    """Return a case whose last `queries` tokens of each sequence look at its cache; `group` query heads a KV head.

    unseen="stored" keeps finite values in cells that no query looks at.
    """
    extra = kv_extra(queries=queries, group=group, **cache)
    stated = {"layout": extra["layout"], "v_dim": extra["v_dim"], **(attrs or {})}
    return Case(case_id, {}, stated, given=given, extra=extra, full=full)


def attention_inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    """Return queries, a filled cache and whatever optional inputs the case names.

    Cells that no query looks at are poison, unless the case says that it keeps them as `stored`.
    """
    extra = case.extra
    inputs = filled_inputs(extra, stream, list(extra["lengths"]))
    num_heads = extra["heads"] * extra["group"]
    shape = (sum(extra["queries"]), num_heads, extra["head"])
    fmt = extra.get("q", "f32")
    limit = "f16" if fmt == "f16" else stored_range(extra, "k")  # queries are rounded to the keys' format
    q = contents(extra.get("values", "normal"), stream.child("q"), shape, limit)
    inputs["q"] = q.astype(FORMATS[fmt].dtype)
    inputs["qo_indptr"] = np.concatenate([[0], np.cumsum(extra["queries"])]).astype(np.int32)
    if "alibi_slopes" in case.given:
        slopes = np.array([2.0 ** -(h + 1) for h in range(num_heads)], np.float32)
        drawn = stream.child("slopes").uniform(-0.5, 0.5, (num_heads,))
        inputs["alibi_slopes"] = drawn if "values" in extra else slopes
    if "sinks" in case.given:
        inputs["sinks"] = contents(extra.get("sinks", "normal"), stream.child("sinks"), (num_heads,), "f32")
    if "custom_mask" in case.given:
        total = sum(n * m for n, m in zip(extra["queries"], extra["lengths"], strict=True))
        mask = stream.child("mask").uniform(0, 1, (total,)) < 0.6
        if extra.get("masked_rows"):
            counts = [m for n, m in zip(extra["queries"], extra["lengths"], strict=True) for _ in range(n)]
            alive = stream.child("alive").integers(0, 2, (len(counts),)) > 0
            mask &= np.repeat(alive, counts)
        inputs["custom_mask"] = mask
    if extra.get("unseen") != "stored":
        hide_unseen(case, inputs)
    return inputs
