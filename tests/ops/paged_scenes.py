"""Sequences, ways to lay them out in a cache, and attention over them: what the paged tests are made of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from op_helpers import run

from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.numerics.counter import Stream

HEADS, GROUP, HEAD = 2, 2, 32


@dataclass
class Sequence:
    """Tokens as the model makes them: q [n, HEADS * GROUP, HEAD], k and v [n, HEADS, HEAD]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray

    def __len__(self) -> int:
        return len(self.q)


@dataclass(frozen=True)
class Layout:
    """Where and how a batch of sequences is stored."""

    k: str = "f16"
    v: str = "f16"
    page_size: int = 16
    order: str = "NHD"
    kind: str = "split"
    table: bool = True
    pages: tuple[int, ...] = ()  # page ids in the order they are handed out; identity if empty


def sequence(name: str, length: int) -> Sequence:
    s = Stream(name)
    shape = (length, HEADS, HEAD)
    return Sequence(s.child("q").normal((length, HEADS * GROUP, HEAD)), *(s.child(n).normal(shape) for n in "kv"))


def poisoned(fmt: str, shape: tuple[int, ...]) -> HostTensor:
    """A cache whose every byte is 0xFF: NaN in every format."""
    record = FORMATS[fmt]
    row = record.row_bytes(shape[-1])
    data = np.full((*shape[:-1], row), 0xFF, np.uint8)
    return Packed(record, data) if isinstance(record, BlockFormat) else data.view(record.dtype)


def table_for(layout: Layout, lengths: list[int]) -> dict[str, np.ndarray]:
    """Index arrays for sequences of these lengths, whose pages are handed out sequence after sequence."""
    if not layout.table:
        return {"kv_last_page_len": np.array(lengths, np.int32)}
    counts = [-(-n // layout.page_size) for n in lengths]
    ids = np.array(layout.pages or range(sum(counts)), np.int32)[: sum(counts)]
    last = [n - (c - 1) * layout.page_size if c else 0 for n, c in zip(lengths, counts, strict=True)]
    return {
        "kv_last_page_len": np.array(last, np.int32),
        "kv_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "kv_indices": ids,
    }


def empty_caches(layout: Layout, lengths: list[int]) -> dict[str, HostTensor]:
    page_size = layout.page_size if layout.table else max(lengths)
    num_pages = sum(-(-n // layout.page_size) for n in lengths) if layout.table else len(lengths)
    num_pages = max([num_pages, *(p + 1 for p in layout.pages)])
    inner = (page_size, HEADS) if layout.order == "NHD" else (HEADS, page_size)
    if layout.kind == "unified":
        return {"k_cache": poisoned(layout.k, (num_pages, 2, *inner, HEAD))}
    return {n: poisoned(f, (num_pages, *inner, HEAD)) for n, f in (("k_cache", layout.k), ("v_cache", layout.v))}


def append(inputs: dict[str, Any], layout: Layout, b: int, tokens: Sequence, start: int, stop: int) -> None:
    """Tokens start .. stop - 1 of sequence b into their cells."""
    run(
        "append_paged_kv_cache",
        key=tokens.k[start:stop],
        value=tokens.v[start:stop],
        batch_indices=np.full(stop - start, b, np.int32),
        positions=np.arange(start, stop, dtype=np.int32),
        layout=layout.order,
        **inputs,
    )


def stored(layout: Layout, batch: list[Sequence]) -> dict[str, Any]:
    """Caches and table with every sequence appended whole."""
    lengths = [len(s) for s in batch]
    inputs = {**empty_caches(layout, lengths), **table_for(layout, lengths)}
    for b, s in enumerate(batch):
        if len(s):
            append(inputs, layout, b, s, 0, len(s))
    return inputs


def attend(inputs: dict[str, Any], layout: Layout, queries: list[np.ndarray], **options: Any) -> list[tuple]:
    """(out, lse) per sequence; `queries` are each sequence's last ones, maybe none."""
    indptr = np.concatenate([[0], np.cumsum([len(q) for q in queries])]).astype(np.int32)
    out, lse = run(
        "paged_attention",
        q=np.concatenate(queries),
        qo_indptr=indptr,
        layout=layout.order,
        return_lse=True,
        **inputs,
        **options,
    )
    return [(out[i:j], lse[i:j]) for i, j in pairwise(indptr)]


def baseline(tokens: Sequence, k: str = "f16", v: str = "f16", **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The whole prompt alone, in pages 0, 1, 2 …: what everything else must equal."""
    layout = Layout(k=k, v=v)
    return attend(stored(layout, [tokens]), layout, [tokens.q], **options)[0]


SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
SINKS = np.array([0.3, -1.0, 2.0, 0.0], np.float32)
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window_left": 20},
    "window 0": {"window_left": 0},
    "sinks": {"sinks": SINKS},
    "alibi": {"alibi_slopes": SLOPES},
    "soft cap": {"logits_soft_cap": 5.0},
    "all": {"window_left": 37, "sinks": SINKS, "alibi_slopes": SLOPES, "logits_soft_cap": 20.0, "sm_scale": 0.2},
}
