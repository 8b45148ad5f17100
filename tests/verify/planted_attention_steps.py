"""Defects that show in mixed batches, odd groups and many query heads. See planted_attention.py."""

from __future__ import annotations

import numpy as np
from planted import Results
from planted_attention import Attention, masked, table_of
from planted_base import Arguments, shown_by
from planted_paged import attention_cache
from planted_scenes import attention


class LonePositionBesideAPrompt(Attention):
    """Beside a prompt of 32 queries or more, a decode misses a last page with one position."""

    witness = shown_by(attention, (40, 17), (40, 1))
    twin = shown_by(attention, (40, 18), (40, 1))

    def change(self, a: Arguments) -> Arguments:
        counts = np.diff(a["qo_indptr"])
        if "kv_indptr" not in a or counts.max(initial=0) < 32:
            return {}
        lengths = table_of(a).lengths
        is_hit = (counts == 1) & (a["kv_last_page_len"] == 1) & (lengths > 1)
        return masked(a, lambda b, q, kv: (kv < lengths[b] - 1) | ~is_hit[b])


class SeventhOfAGroup(Attention):
    """Pads a group of seven query heads to eight: the seventh uses the sixth's query."""

    witness = shown_by(attention, (6,), heads=7)
    twin = shown_by(attention, (6,), heads=6)

    def change(self, a: Arguments) -> Arguments:
        if a["q"].shape[1] != 7 * attention_cache(a).k.shape[2]:
            return {}
        q = a["q"].copy()
        q[:, 6::7] = q[:, 5::7]
        return {"q": q}


class QueryRowsIn11Bits(Attention):
    """Keeps a query's row of the batch in 11 bits: results from row 2,048 on are those of the first rows."""

    witness = shown_by(attention, (2,), (2049,), causal=False)
    twin = shown_by(attention, (2,), (2048,), causal=False)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][2048:] = results[0][: max(len(results[0]) - 2048, 0)]


class GridOfQueryHeads(Attention):
    """Gives every query head of the batch a block of the grid's second dimension, which has at most 65,535."""

    witness = shown_by(attention, (1,), (1025,), heads=64, causal=False)
    twin = shown_by(attention, (1,), (1025,), heads=2, causal=False)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0].reshape(-1, results[0].shape[-1])[65535:] = 0
