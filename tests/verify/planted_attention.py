"""What a query sees: defects of masks, windows and page tables in paged_attention."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_paged import attention_cache
from planted_scenes import attention, call, floats, ints

from samebits.ops.paged import PageTable, page_table


def table_of(a: Arguments) -> PageTable:
    cache = attention_cache(a)
    given = (a.get("kv_indptr"), a.get("kv_indices"), a["kv_last_page_len"])
    return page_table("planted", *given, cache.num_pages, cache.page_size)


def masked(a: Arguments, rule: Callable[..., Any], **changes: Any) -> Arguments:
    """The call with fewer positions kept: those where rule(sequence, query positions [n, 1], positions [1, m]) is true.

    What the call masks by itself stays masked, except as `changes` say.
    """
    masks = [np.zeros(0, bool)]
    for b, (length, count) in enumerate(zip(table_of(a).lengths, np.diff(a["qo_indptr"]), strict=True)):
        q = np.arange(count)[:, None] - count + length
        keep = rule(b, q, np.arange(length)[None, :])
        masks.append(np.broadcast_to(keep, (count, length)).ravel())
    mask = np.concatenate(masks)
    return {"custom_mask": mask & a["custom_mask"] if "custom_mask" in a else mask, **changes}


def mask_of(*parts: int, seed: int = 0) -> np.ndarray:
    """A mask for sequences with so many entries each, the last of every part kept."""
    mask = np.random.default_rng(seed).random(sum(parts)) < 0.5
    mask[np.cumsum(parts) - 1] = True
    return mask


class Attention(Defect):
    ops = ("paged_attention",)


class WindowForgottenPast256(Attention):
    """Ignores the window for queries past position 256, where another kernel takes over."""

    witness = shown_by(attention, (258,), window_left=100, page_size=64)
    twin = shown_by(attention, (256,), window_left=100, page_size=64)

    def change(self, a: Arguments) -> Arguments:
        w = a["window_left"]
        return masked(a, lambda b, q, kv: (kv >= q - w) | (q > 256), window_left=-1) if w >= 0 else {}


class WindowByWholePages(Attention):
    """Skips whole pages left of the window, and attends to all of the first page that it keeps."""

    witness = shown_by(attention, (40,), window_left=10)
    twin = shown_by(attention, (40,), window_left=7)

    def change(self, a: Arguments) -> Arguments:
        w, size = a["window_left"], attention_cache(a).page_size
        return masked(a, lambda b, q, kv: kv >= (q - w) // size * size, window_left=-1) if w >= 0 else {}


class WindowOfTheFirstQuery(Attention):
    """Computes the window's left edge for the first query of a tile and uses it for all of them."""

    witness = shown_by(attention, (12,), (3,), window_left=4)
    twin = shown_by(attention, (12, 7), window_left=4)

    def change(self, a: Arguments) -> Arguments:
        w = a["window_left"]
        return masked(a, lambda b, q, kv: kv >= q[:1] - w, window_left=-1) if w >= 0 else {}


class WindowFromTheChunk(Attention):
    """Counts positions from the start of the chunk for the window, though not for the causal edge."""

    witness = shown_by(attention, (12,), (6,), window_left=2)
    twin = shown_by(attention, (12,), (12,), window_left=2)

    def change(self, a: Arguments) -> Arguments:
        w = a["window_left"]
        return masked(a, lambda b, q, kv: kv >= q - q[:1] - w, window_left=-1) if w >= 0 else {}


class WindowOfZeroIsOff(Attention):
    """Takes a window of 0, a query that sees itself alone, for no window."""

    witness = shown_by(attention, (6,), window_left=0)
    twin = shown_by(attention, (6,), window_left=1)

    def change(self, a: Arguments) -> Arguments:
        return {"window_left": a["window_left"] or -1}


class WindowNeedsCausal(Attention):
    """Applies the window only to causal attention."""

    witness = shown_by(attention, (9,), window_left=3, causal=False)
    twin = shown_by(attention, (9,), window_left=3)

    def change(self, a: Arguments) -> Arguments:
        return {} if a["causal"] else {"window_left": -1}


class NegativePositionsUnsigned(Attention):
    """Compares positions as unsigned numbers: a query before the first key, as non-causal ones may be, sees all."""

    witness = shown_by(attention, (2,), (4,), causal=False, window_left=1)
    twin = shown_by(attention, (4,), (4,), causal=False, window_left=1)

    def change(self, a: Arguments) -> Arguments:
        return masked(a, lambda b, q, kv: q >= 0) if a["window_left"] >= 0 else {}


def released(length: int, window: int) -> Scene:
    """One query, behind whose window no cell was written."""
    scene = attention((length,), window_left=window)
    tensors = scene.runs[0]
    unseen = np.arange(length - 1 - window)
    for name in ("k_cache", "v_cache"):
        tensors[name][tensors["kv_indices"][unseen // 16], unseen % 16] = np.nan  # type: ignore[index,union-attr,operator]
    return scene


class ReleasedValuesTimesZero(Attention):
    """Multiplies values that the window has released by a weight of 0: NaN there spreads."""

    witness = shown_by(released, 90, 20)
    twin = shown_by(released, 90, 25)

    def spoil(self, a: Arguments, results: Results) -> None:
        cache, table = attention_cache(a), table_of(a)
        for b, (first, stop) in enumerate(pairwise(a["qo_indptr"].tolist())):
            low = max(int(table.lengths[b]) - (stop - first) - a["window_left"], 0) if a["window_left"] >= 0 else 0
            values = cache.v[table.cells(b, np.arange(low // 64 * 64, low), cache.page_size)]
            if isinstance(values, np.ndarray) and np.isnan(values.astype(np.float32)).any():
                results[0][first:stop] = np.nan


class CausalByTilesOf16(Attention):
    """Lets the queries of a second tile of 16 see only the keys that the first tile sees."""

    witness = shown_by(attention, (18,), (18,))
    twin = shown_by(attention, (17,), (17,))

    def change(self, a: Arguments) -> Arguments:
        def rule(b: int, q: np.ndarray, kv: np.ndarray) -> Any:
            row = np.arange(len(q))[:, None]
            return (kv <= np.where(row < 16, q, q - row % 16)) | (not a["causal"])

        return masked(a, rule)


class MaskOfEqualSizes(Attention):
    """Locates a sequence's mask as if all masks were as large as the first one."""

    witness = shown_by(attention, (3, 5, 4), custom_mask=mask_of(3, 5, 4, seed=3))
    twin = shown_by(attention, (4, 4, 4), custom_mask=mask_of(4, 4, 4, seed=1))

    def change(self, a: Arguments) -> Arguments:
        if "custom_mask" not in a or not len(a["custom_mask"]):
            return {}
        sizes = np.diff(a["qo_indptr"]) * table_of(a).lengths
        parts = [b * sizes[0] + np.arange(n) for b, n in enumerate(sizes)]
        return {"custom_mask": a["custom_mask"][np.concatenate(parts) % len(a["custom_mask"])]}


class MaskIgnoredByDecode(Attention):
    """Ignores the mask when a sequence has one query."""

    witness = shown_by(attention, (6,), custom_mask=mask_of(6))
    twin = shown_by(attention, (6,), (2,), custom_mask=mask_of(6, 6))

    def change(self, a: Arguments) -> Arguments:
        if "custom_mask" not in a:
            return {}
        counts = np.diff(a["qo_indptr"])
        decode = np.repeat(counts == 1, counts * table_of(a).lengths)
        return {"custom_mask": a["custom_mask"] | decode}


class MaskPitchOfEight(Attention):
    """Reads the rows of the mask as if each were padded to a multiple of 8."""

    witness = shown_by(attention, (6,), (3,), custom_mask=mask_of(6, 6, 6, seed=2))
    twin = shown_by(attention, (8,), (3,), custom_mask=mask_of(8, 8, 8, seed=2))

    def change(self, a: Arguments) -> Arguments:
        if "custom_mask" not in a:
            return {}
        parts, start = [np.zeros(0, np.int64)], 0
        for count, length in zip(np.diff(a["qo_indptr"]), table_of(a).lengths, strict=True):
            pitched = np.arange(count)[:, None] * (-(-length // 8) * 8) + np.arange(length)
            parts.append(start + pitched.ravel() % max(count * length, 1))
            start += count * length
        return {"custom_mask": a["custom_mask"][np.concatenate(parts)]}


def read_once(a: Arguments, key: Callable[[int, int], object]) -> Arguments:
    """Masks a page whose key(sequence, page) came before in the tables."""
    size, seen, again = attention_cache(a).page_size, set(), []
    for b, pages in enumerate(table_of(a).page_ids):
        again.append(np.zeros(len(pages), bool))
        for i, page in enumerate(pages.tolist()):
            again[b][i] = key(b, page) in seen
            seen.add(key(b, page))
    return masked(a, lambda b, q, kv: ~again[b][kv // size])


class SharedPageSkipped(Attention):
    """Fetches each page once for the batch: the second sequence that lists a shared page misses it."""

    witness = shown_by(attention, (20, 20), pages=[[0, 1], [0, 2]])
    twin = shown_by(attention, (20, 20), pages=[[0, 1], [3, 2]])

    def change(self, a: Arguments) -> Arguments:
        return read_once(a, lambda b, page: page)


class RepeatedPageSkipped(Attention):
    """Removes duplicates from a page table: a page that a sequence lists twice is read once."""

    witness = shown_by(attention, (40,), pages=[[2, 0, 2]])
    twin = shown_by(attention, (20, 20), pages=[[0, 1], [0, 2]])

    def change(self, a: Arguments) -> Arguments:
        return read_once(a, lambda b, page: (b, page))


class FullLastPageIsEmpty(Attention):
    """Takes the length of the last page modulo the page size, so a full page counts as empty."""

    witness = shown_by(attention, (32,))
    twin = shown_by(attention, (31,))

    def change(self, a: Arguments) -> Arguments:
        size, lengths = attention_cache(a).page_size, table_of(a).lengths
        return masked(a, lambda b, q, kv: kv < lengths[b] - size * (lengths[b] % size == 0))


class EmptySequenceShiftsTable(Attention):
    """Counts a sequence without pages as one page: later sequences read their tables one entry off."""

    witness = shown_by(attention, (20, 0, 20), (1, 0, 1))
    twin = shown_by(attention, (20, 20, 0), (1, 1, 0))

    def change(self, a: Arguments) -> Arguments:
        if "kv_indices" not in a or not len(a["kv_indices"]):
            return {}
        counts = np.diff(a["kv_indptr"])
        behind = np.repeat(np.cumsum(counts == 0) > 0, counts)
        early = np.maximum(np.arange(len(behind)) - behind, 0)
        return {"kv_indices": a["kv_indices"][early]}


class TableOfFirstSequence(Attention):
    """When all sequences are one page long, reads every one's page from the first one's table."""

    witness = shown_by(attention, (5, 7))
    twin = shown_by(attention, (5, 20))

    def change(self, a: Arguments) -> Arguments:
        if "kv_indices" not in a or not len(a["kv_indices"]) or (np.diff(a["kv_indptr"]) != 1).any():
            return {}
        return {"kv_indices": np.resize(a["kv_indices"][:1], a["kv_indices"].shape)}


class QueriesOfTheFirstSequence(Attention):
    """Computes only as many queries of a sequence as the first one has, and repeats the last in the rows beyond."""

    witness = shown_by(attention, (9, 9), (1, 4))
    twin = shown_by(attention, (9, 9), (4, 4))

    def spoil(self, a: Arguments, results: Results) -> None:
        count = int(a["qo_indptr"][1]) if len(a["qo_indptr"]) > 1 else 0
        for first, stop in pairwise(a["qo_indptr"]):
            if 0 < count < stop - first:
                results[0][first + count : stop] = results[0][first + count - 1]


def latent(v_dim: int) -> Scene:
    """Attention over an MLA cache."""
    table = {"kv_last_page_len": ints(3), "kv_indptr": ints(0, 1), "kv_indices": ints(0)}
    tensors = {"q": floats(1, 2, 8), "k_cache": floats(1, 4, 8, seed=1), "qo_indptr": ints(0, 1)}
    return call("paged_attention", **tensors, **table, v_dim=v_dim)


class ValuesFromTheEndOfMla(Attention):
    """Takes an MLA head's values from its last elements instead of its first."""

    witness = shown_by(latent, 4)
    twin = shown_by(latent, 8)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        size = arguments["v_dim"]
        if arguments["k_cache"].ndim != 3 or not size:
            return super().kernel(op_name, arguments)
        out, *rest = super().kernel(op_name, {**arguments, "v_dim": 0})
        return np.ascontiguousarray(out[..., -size:]), *rest
