"""Equivalents of the ops on paged caches: other pages, page sizes, layouts, batches and chunks, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed, copy_tensor, format_of
from samebits.ops.equivalents import Equivalent, Results
from samebits.ops.kv_cases import cells_of, make_cache
from samebits.ops.paged import cache_views
from samebits.ops.record import Op

TABLE = ("kv_indptr", "kv_indices", "kv_last_page_len")


class StoredBatch:
    """A case's cache as logical rows per sequence, so that it can be laid out again in another way."""

    def __init__(self, inputs: dict[str, Any], head: int, v_dim: int) -> None:
        self.layout: str = inputs["layout"]
        self.kind = {3: "mla", 4: "split", 5: "unified"}[inputs["k_cache"].ndim]
        views = cache_views("equivalent", inputs["k_cache"], inputs.get("v_cache"), self.layout, head, v_dim)
        self.views, self.head, self.v_dim = views, head, v_dim
        self.page_size = views.page_size
        self.has_table = inputs.get("kv_indices") is not None
        last = inputs["kv_last_page_len"].astype(np.int64)
        if self.has_table:
            counts = np.diff(inputs["kv_indptr"]).astype(np.int64)
            self.lengths = np.where(counts > 0, (counts - 1) * self.page_size + last, 0).tolist()
        else:
            self.lengths = last.tolist()
        self.rows = []
        for b, length in enumerate(self.lengths):
            cells = cells_of(inputs, b, np.arange(length), self.page_size)
            self.rows.append((_bytes(views.k)[cells], None if self.kind == "mla" else _bytes(views.v)[cells]))

    def lay_out(
        self,
        *,
        sequences: list[int] | None = None,
        lengths: list[int] | None = None,
        layout: str | None = None,
        kind: str | None = None,
        page_size: int | None = None,
        has_table: bool | None = None,
        reverse_pages: bool = False,
    ) -> dict[str, Any]:
        """Cache, table and layout attr of the same tokens, differently arranged; unused cells are poison."""
        sequences = list(range(len(self.lengths))) if sequences is None else sequences
        lengths = [self.lengths[b] for b in sequences] if lengths is None else lengths
        has_table = self.has_table if has_table is None else has_table
        page_size = (page_size or self.page_size) if has_table else max([*lengths, 1])
        layout, kind = layout or self.layout, kind or self.kind
        arrays = (
            _table(lengths, page_size, reverse_pages)
            if has_table
            else {"kv_last_page_len": np.array(lengths, np.int32)}
        )
        num_pages = int(arrays["kv_indptr"][-1]) + 2 if has_table else max(len(lengths), 1)
        shape = {"heads": self.views.k.shape[2], "head": self.head, "v_dim": self.v_dim}
        names = {"k": _format(self.views.k), "v": _format(self.views.v), "kind": kind, "layout": layout}
        caches = make_cache({**shape, **names}, num_pages, page_size)
        views = cache_views("equivalent", caches["k_cache"], caches.get("v_cache"), layout, self.head, self.v_dim)
        for slot, (b, length) in enumerate(zip(sequences, lengths, strict=True)):
            cells = cells_of(arrays, slot, np.arange(length), page_size)
            keys, values = self.rows[b]
            _bytes(views.k)[cells] = keys[:length]
            if values is not None:
                _bytes(views.v)[cells] = values[:length]
        nothing = dict.fromkeys(("v_cache", *TABLE))
        return {**nothing, **caches, **arrays, "layout": layout}

    @property
    def one_format(self) -> bool:
        return self.kind != "mla" and _format(self.views.k) == _format(self.views.v) and self.head == self.v_dim


def _bytes(x: HostTensor) -> np.ndarray:
    return x.data if isinstance(x, Packed) else x


def _format(x: HostTensor) -> str:
    return format_of(x).name


def _table(lengths: list[int], page_size: int, reverse: bool) -> dict[str, Any]:
    counts = [-(-n // page_size) for n in lengths]
    total = sum(counts)
    ids = np.arange(total + 2, dtype=np.int32)
    order = ids[::-1][:total] if reverse else ids[1 : total + 1]
    last = [n - (c - 1) * page_size if c else 0 for n, c in zip(lengths, counts, strict=True)]
    return {
        "kv_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "kv_indices": np.ascontiguousarray(order),
        "kv_last_page_len": np.array(last, np.int32),
    }


def _queries(inputs: dict[str, Any], sequences: list[int]) -> tuple[dict[str, Any], np.ndarray]:
    """q, qo_indptr and custom_mask of these sequences, and the rows of the original they are."""
    indptr = inputs["qo_indptr"]
    rows = np.concatenate([np.arange(indptr[b], indptr[b + 1]) for b in sequences] or [np.zeros(0)]).astype(np.int64)
    counts = [int(indptr[b + 1] - indptr[b]) for b in sequences]
    return {"q": inputs["q"][rows], "qo_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)}, rows


def attention_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """The same queries and tokens in other arrangements. A custom mask is laid out by sequence: kept whole."""
    v_dim = inputs["v_dim"] or inputs["q"].shape[-1]
    batch = StoredBatch(inputs, inputs["q"].shape[-1], v_dim)

    def arranged(check: str, detail: str, **how: Any) -> Equivalent:
        return Equivalent(check, detail, lambda execute: execute({**inputs, **batch.lay_out(**how)}))

    yield arranged("pages", "pages in order", page_size=batch.page_size, has_table=True)
    yield arranged("pages", "pages in reverse order", page_size=batch.page_size, has_table=True, reverse_pages=True)
    for page_size in (8, 32):
        yield arranged("page-size", f"pages of {page_size}", page_size=page_size, has_table=True)
    yield arranged("contiguous", "a contiguous cache", has_table=False)
    if batch.kind != "mla":
        other = "HND" if batch.layout == "NHD" else "NHD"
        yield arranged("layout", other, layout=other)
        if batch.one_format:
            kind = "split" if batch.kind == "unified" else "unified"
            yield arranged("layout", kind, kind=kind)
    if inputs.get("custom_mask") is None:
        yield from _batch_equivalents(inputs, batch)
        if inputs["causal"]:
            yield from _split_equivalents(inputs, batch)


def _batch_equivalents(inputs: dict[str, Any], batch: StoredBatch) -> Iterator[Equivalent]:
    sequences = list(range(len(batch.lengths)))
    for check, detail, chosen in (
        *(("batch-size", f"sequence {b} alone", [b]) for b in sequences),
        ("batch-size", "33 sequences", [b % len(sequences) for b in range(33)] if sequences else []),
        ("order", "sequences reversed", sequences[::-1]),
    ):
        queries, rows = _queries(inputs, chosen)
        call = {**inputs, **queries}
        yield Equivalent(
            check,
            detail,
            lambda execute, call=call, chosen=chosen: execute({**call, **batch.lay_out(sequences=chosen)}),  # type: ignore[misc]
            lambda results, rows=rows: tuple(r[rows] for r in results),  # type: ignore[misc]
        )


def _split_equivalents(inputs: dict[str, Any], batch: StoredBatch) -> Iterator[Equivalent]:
    """Each sequence's queries in two chunks, the first with the cache as it was then."""
    counts = np.diff(inputs["qo_indptr"]).tolist()
    longest = max(counts, default=0)
    places = sorted({1, longest // 2, longest - 1, *(p for p in (15, 16, 17) if p < longest)})
    for place in places:
        if not 0 < place < longest:
            continue
        firsts = [min(place, n) for n in counts]

        def compute(execute: Any, firsts: list[int] = firsts) -> Results:
            start = inputs["qo_indptr"][:-1]
            parts = []
            for is_second in (False, True):
                sizes = [n - f if is_second else f for n, f in zip(counts, firsts, strict=True)]
                offset = firsts if is_second else [0] * len(firsts)
                rows = np.concatenate(
                    [np.arange(s + o, s + o + n) for s, o, n in zip(start, offset, sizes, strict=True)]
                )
                lengths = [
                    length - (0 if is_second else n - f)
                    for length, n, f in zip(batch.lengths, counts, firsts, strict=True)
                ]
                call = {
                    **inputs,
                    **batch.lay_out(lengths=lengths),
                    "q": inputs["q"][rows.astype(np.int64)],
                    "qo_indptr": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
                }
                parts.append((rows.astype(np.int64), execute(call)))
            joined = []
            for i in range(len(parts[0][1])):
                whole = np.zeros((len(inputs["q"]), *parts[0][1][i].shape[1:]), parts[0][1][i].dtype)
                for rows, results in parts:
                    whole[rows] = results[i]
                joined.append(whole)
            return tuple(joined)

        yield Equivalent("split", f"prompt cut after {place} queries", compute)


def append_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """Tokens in another order, or in two calls, leave the same bytes in every cell, used or not.

    A turned query, where the op has one, is a result of rows before the caches.
    """
    count = len(inputs["positions"])
    caches = [name for name in ("k_cache", "v_cache") if inputs.get(name) is not None]
    names = ("query", "key", "value", "pos_ids", "batch_indices", "positions")
    per_token = [n for n in names if inputs.get(n) is not None]
    turned = int("query" in per_token)

    def fresh() -> dict[str, Any]:
        return {**inputs, **{name: copy_tensor(inputs[name]) for name in caches}}

    def rows(chosen: np.ndarray) -> dict[str, Any]:
        return {name: inputs[name][chosen] for name in per_token}

    if count > 1:
        reverse = np.arange(count)[::-1]
        yield Equivalent(
            "order",
            "tokens reversed",
            lambda execute: execute({**fresh(), **rows(reverse)}),
            lambda results: (*(x[reverse] for x in results[:turned]), *results[turned:]),
        )
    for place in sorted({1, count // 2}):
        if 0 < place < count:

            def compute(execute: Any, place: int = place) -> Results:
                call = {**fresh(), **rows(np.arange(place))}
                first = execute(call)
                halfway = dict(zip(caches, first[turned:], strict=True))
                second = execute({**call, **halfway, **rows(np.arange(place, count))})
                both = zip(first[:turned], second[:turned], strict=True)
                return (*(np.concatenate(pair) for pair in both), *second[turned:])

            yield Equivalent("split", f"two calls, {place} tokens first", compute)
