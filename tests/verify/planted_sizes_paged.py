"""Sizes of caches, page tables and heads: defects beyond a bound that a kernel has. See planted_sizes.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from planted import Results, stored
from planted_attention import mask_of, masked
from planted_base import Arguments, Defect, Scene, shown_by
from planted_paged import attention_cache
from planted_scenes import append, attention, call, floats, ints

from samebits.core.format import copy_tensor


class MoreThanFourQueryHeads(Defect):
    """Has registers for four query heads of a group: the fifth uses the first one's query, and so on."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (5,), heads=5)
    twin = shown_by(attention, (5,), heads=8, kv_heads=2)

    def change(self, a: Arguments) -> Arguments:
        num_heads = a["q"].shape[1]
        group = num_heads // attention_cache(a).k.shape[2]
        heads = np.arange(num_heads)
        return {"q": a["q"][:, heads - (heads % group) // 4 * 4]}


class SequencesBeyond64(Defect):
    """Computes at most 64 sequences."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (1,) * 65, page_size=1)
    twin = shown_by(attention, (1,) * 64, page_size=1)

    def spoil(self, a: Arguments, results: Results) -> None:
        if len(a["qo_indptr"]) > 65:
            results[0][a["qo_indptr"][64] :] = 0


class HeadTailOf16(Defect):
    """Ignores the elements of a head after the last whole group of 16 in q . k."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (5,), head=24)
    twin = shown_by(attention, (5,), head=32)

    def change(self, a: Arguments) -> Arguments:
        size = a["q"].shape[-1]
        return {"q": np.where(np.arange(size) < size // 16 * 16, a["q"], a["q"].dtype.type(0))} if size > 16 else {}


class ValueHeadBeyond128(Defect):
    """Accumulates only the first 128 elements of a value head."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (3,), v_dim=136)
    twin = shown_by(attention, (3,), v_dim=128)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][..., 128:] = 0


class SlotsOfSixteen(Defect):
    """Takes a position modulo 16 for its slot in a page, also where pages are larger."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (20,), page_size=32)
    twin = shown_by(attention, (20,), page_size=16)

    def change(self, a: Arguments) -> Arguments:
        copies = {n: copy_tensor(a[n]) for n in ("k_cache", "v_cache") if n in a}
        cache = attention_cache({**a, **copies})
        for view in {id(stored(v)): stored(v) for v in (cache.k, cache.v)}.values():
            view[:] = view[:, np.arange(view.shape[1]) % 16]
        return copies


class PageIdsInOneByte(Defect):
    """Keeps page ids in one byte."""

    ops = ("paged_attention",)
    mask = 0xFF
    witness = shown_by(attention, (20,), pages=[[3, 256]])
    twin = shown_by(attention, (20,), pages=[[3, 255]])

    def change(self, a: Arguments) -> Arguments:
        return {"kv_indices": a["kv_indices"] & self.mask} if "kv_indices" in a else {}


class PageIdsIn15Bits(PageIdsInOneByte):
    """Keeps page ids in signed 16-bit numbers."""

    mask = 0x7FFF
    witness = shown_by(attention, (2,), page_size=1, head=4, pages=[[3, 32768]])
    twin = shown_by(attention, (2,), page_size=1, head=4, pages=[[3, 32767]])


class PositionsBeyond4096(Defect):
    """Has room for the scores of 4,096 positions: the oldest ones beyond that are forgotten."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (4097,), page_size=512, head=4)
    twin = shown_by(attention, (4096,), page_size=512, head=4)

    def change(self, a: Arguments) -> Arguments:
        return {"window_left": 4095} if a["causal"] and not 0 <= a["window_left"] < 4096 else {}


class WindowInTenBits(Defect):
    """Keeps the width of a window in ten bits: one beyond 1,023 sees 1,023 positions to its left."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (1025,), page_size=256, head=4, window_left=5000)
    twin = shown_by(attention, (1024,), page_size=256, head=4, window_left=5000)

    def change(self, a: Arguments) -> Arguments:
        return {"window_left": min(a["window_left"], 1023)}


class MaskOffsetsIn16Bits(Defect):
    """Keeps the number of a mask's entry in 16 bits, which wrap in a batch of long prompts."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (257,), (256,), page_size=64, head=4, custom_mask=mask_of(256 * 257))
    twin = shown_by(attention, (256,), (256,), page_size=64, head=4, custom_mask=mask_of(256 * 256))

    def change(self, a: Arguments) -> Arguments:
        mask = a.get("custom_mask")
        return {} if mask is None else {"custom_mask": mask[np.arange(len(mask)) & 0xFFFF]}


class ResumedBeyond128Queries(Defect):
    """Forgets the positions before a chunk for its queries from the 129th on, which are in the second tile."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (140,), (130,), page_size=64, head=4)
    twin = shown_by(attention, (140,), (128,), page_size=64, head=4)

    def change(self, a: Arguments) -> Arguments:
        def rule(b: int, q: np.ndarray, kv: np.ndarray) -> Any:
            row = np.arange(len(q))[:, None]
            return (row < 128) | (kv <= row)

        return masked(a, rule) if a["causal"] else {}


class AppendBeyond64Tokens(Defect):
    """Appends only the first 64 tokens of a call."""

    ops = ("append_paged_kv_cache", "rope_and_append")
    witness = shown_by(append, list(range(65)))
    twin = shown_by(append, list(range(64)))

    def change(self, a: Arguments) -> Arguments:
        per_token = [n for n in ("key", "value", "batch_indices", "positions", "pos_ids") if n in a]
        return {name: a[name][:64] for name in per_token}


def copied(num_pages: int, sources: list[int], targets: list[int]) -> Scene:
    tensors: dict[str, Any] = {"k_cache": floats(num_pages, 1, 1, 2), "v_cache": floats(num_pages, 1, 1, 2, seed=1)}
    return call("copy_kv_pages", **tensors, sources=ints(*sources), targets=ints(*targets))


class CopiesInOneByte(Defect):
    """Keeps the id of the page to copy in one byte."""

    ops = ("copy_kv_pages",)
    witness = shown_by(copied, 300, [256, 4], [1, 2])
    twin = shown_by(copied, 300, [255, 4], [1, 2])

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        kept = tuple(arguments[n] for n in ("k_cache", "v_cache") if n in arguments)
        for pages in map(stored, kept):
            pages[arguments["targets"]] = pages[arguments["sources"] & 255]
        return kept
