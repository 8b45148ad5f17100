"""Two sizes, or a size and an attribute, that go wrong together alone. See planted_sizes.py."""

from __future__ import annotations

import numpy as np
from planted import Results
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import append, blocks, call, floats, ints, rotary

from samebits.ops.rope import rope_table


class PairsTwoAtATime(Defect):
    """Rotates two pairs of neighbours at a time, and copies the last pair of an odd number above one."""

    ops = ("rope",)
    witness = shown_by(rotary, [3], rotary_dim=6, interleave=True)
    twin = shown_by(rotary, [3], rotary_dim=6)

    def spoil(self, a: Arguments, results: Results) -> None:
        num_pairs = a["table"].shape[1]
        if a["interleave"] and num_pairs % 2 and num_pairs > 1:
            last = slice(2 * num_pairs - 2, 2 * num_pairs)
            results[0][..., last] = a["x"][..., last]


def both(rotary_dim: int) -> Scene:
    """rope_both_and_append of a token at position 4, pairs being neighbours."""
    turned = {"query": floats(1, 2, 8), "pos_ids": ints(4), "table": rope_table(8, rotary_dim), "interleave": True}
    return append([4], op_name="rope_both_and_append", **turned)


class QueryPairsTwoAtATime(Defect):
    """Rotates two pairs of a query at a time, and copies the last of an odd number of neighbours above one."""

    ops = ("rope_both_and_append",)
    witness = shown_by(both, 6)
    twin = shown_by(both, 8)

    def spoil(self, a: Arguments, results: Results) -> None:
        num_pairs = a["table"].shape[1]
        if a["interleave"] and num_pairs % 2 and num_pairs > 1:
            last = slice(2 * num_pairs - 2, 2 * num_pairs)
            results[0][..., last] = a["query"][..., last]


def gated(num_tokens: int, width: int) -> Scene:
    """gemm_silu_q8 with 32 columns of a gate and as many of what it multiplies."""
    return call("gemm_silu_q8", **blocks(num_tokens, width), weight=floats(64, width, fmt="q8_0"))


class ScalesOfTheFirstTile(Defect):
    """Keeps the scales of the first 64 tokens for later ones where a row has more than 1,024 columns."""

    ops = ("gemm_silu_q8",)
    witness = shown_by(gated, 65, 1056)
    twin = shown_by(gated, 64, 1056)

    def change(self, a: Arguments) -> Arguments:
        count, width = a["codes"].shape
        return {"scales": a["scales"][np.arange(count) % 64]} if width > 1024 else {}
