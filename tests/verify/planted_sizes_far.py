"""Sizes of long contexts, large batches and wide rows: defects beyond bounds that small cases never reach."""

from __future__ import annotations

import numpy as np
from planted import Results
from planted_attention import masked
from planted_base import Arguments, Defect, shown_by
from planted_scenes import append, attention, call, floats

LIMIT = 1 << 16


class KeysBeyond65536(Defect):
    """Keeps a key's position in 16 bits: keys from position 65,536 on are not seen."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (LIMIT + 1,), page_size=512, head=1)
    twin = shown_by(attention, (LIMIT,), page_size=512, head=1)

    def change(self, a: Arguments) -> Arguments:
        is_far = len(a["kv_last_page_len"]) and self.longest(a) > LIMIT
        return masked(a, lambda b, q, kv: kv < LIMIT) if is_far else {}

    @staticmethod
    def longest(a: Arguments) -> int:
        """Return an upper bound of the tokens of a sequence."""
        page_size = a["k_cache"].shape[1 if a["layout"] == "NHD" or a["k_cache"].ndim == 3 else 2]
        pages = np.diff(a["kv_indptr"]).max(initial=0) if a.get("kv_indptr") is not None else 1
        return int(pages) * int(page_size)


class AppendBeyond65536(Defect):
    """Keeps a token's position in 16 bits: tokens from position 65,536 on are not written."""

    ops = ("append_paged_kv_cache", "rope_and_append")
    witness = shown_by(append, [7, LIMIT], head=1)
    twin = shown_by(append, [7, LIMIT - 1], head=1)

    def change(self, a: Arguments) -> Arguments:
        near = np.flatnonzero(a["positions"] < LIMIT)
        names = ("key", "value", "batch_indices", "positions", "pos_ids")
        return {name: a[name][near] for name in names if a.get(name) is not None}


class SequencesBeyond1024(Defect):
    """Gives each thread of a block of 1,024 a sequence: later ones are not computed."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (1,) * 1025, page_size=1, head=1)
    twin = shown_by(attention, (1,) * 1024, page_size=1, head=1)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][a["qo_indptr"][min(1024, len(a["qo_indptr"]) - 1)] :] = 0


class QueriesBeyond1024(Defect):
    """Computes 16 tiles of 64 queries of a sequence, and copies the last tile's first row into later ones."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (1025,), (1025,), page_size=512, head=1)
    twin = shown_by(attention, (1024,), (1024,), page_size=512, head=1)

    def spoil(self, a: Arguments, results: Results) -> None:
        for start, stop in zip(a["qo_indptr"], a["qo_indptr"][1:], strict=False):
            results[0][start + 1024 : stop] = results[0][start + 960] if stop - start > 1024 else 0


class GatedColumnsIn15Bits(Defect):
    """Keeps a column's number in 15 bits: later columns of a gated row stay zero."""

    ops = ("silu_and_mul", "gelu_and_mul", "clamped_swiglu")
    witness = shown_by(call, "silu_and_mul", x=floats(1, 2 * 32769))
    twin = shown_by(call, "silu_and_mul", x=floats(1, 2 * 32768))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][..., 32768:] = 0


class QuantizedColumnsIn15Bits(Defect):
    """Keeps a column's number in 15 bits: later columns of a gated product stay zero."""

    ops = ("gemm_silu_q8",)
    codes, scales = np.ones((1, 32), np.int8), np.ones((1, 1), np.float32)
    witness = shown_by(lambda: QuantizedColumnsIn15Bits.scene(1025))
    twin = shown_by(lambda: QuantizedColumnsIn15Bits.scene(1024))

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][..., 32768:] = 0

    @classmethod
    def scene(cls, num_blocks: int):  # type: ignore[no-untyped-def]
        weight = floats(64, 32, fmt="q8_0")[np.arange(2 * 32 * num_blocks) % 64]
        return call("gemm_silu_q8", codes=cls.codes, scales=cls.scales, weight=weight)
