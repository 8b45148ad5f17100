"""Pairs of tokens and ranks: p = t * R + r is token t's choice of rank r. Their layouts, sizes and checks."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.shapes import Dim, Sym
from samebits.ops.ragged import check_index_range, check_indptr


def layout_of(expert_ids: np.ndarray, num_experts: int) -> tuple[np.ndarray, np.ndarray]:
    """(pairs [P], seg_indptr [E + 1]) of choices [T, R]: pair numbers by expert, then rising; where experts begin."""
    chosen = expert_ids.reshape(-1)
    counts = np.bincount(chosen, minlength=num_experts)
    return np.argsort(chosen, kind="stable").astype(np.int32), np.cumsum([0, *counts]).astype(np.int32)


def for_experts(pairs: np.ndarray, seg_indptr: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(expert, its pairs), of those that have any."""
    bounds = zip(seg_indptr[:-1].tolist(), seg_indptr[1:].tolist(), strict=True)
    return [(e, pairs[start:stop]) for e, (start, stop) in enumerate(bounds) if start < stop]


def scaled_dim(dim: Dim, factor: int) -> Dim:
    """factor * dim."""
    return Sym(dim.name, dim.limit, dim.factor * factor, dim.plus * factor) if isinstance(dim, Sym) else dim * factor


def check_pairs(where: str, argument: str, num_rows: Dim, num_pairs: Dim, share: int | None = None) -> None:
    """BadInput unless every row has as many pairs, `share` where it is known.

    Sizes that do not depend on each other before a step are left to the step.
    """
    if isinstance(num_rows, Sym) and isinstance(num_pairs, Sym) and num_rows.name != num_pairs.name:
        return
    needed = f"a multiple of the {num_rows} rows" if share is None else f"{share} for each of {num_rows} tokens"
    if share is None:
        share = pairs_per_row(*(d.upper if isinstance(d, Sym) else d for d in (num_rows, num_pairs)))
    if share < 1 or scaled_dim(num_rows, share) != num_pairs:
        raise BadInput(where, argument, f"{num_pairs} pairs", needed)


def pairs_per_row(num_rows: int, num_pairs: int) -> int:
    """How many pairs read a row, 1 where there is none."""
    return num_pairs // num_rows if num_rows else 1


def check_layout(where: str, pairs: np.ndarray, seg_indptr: np.ndarray) -> None:
    """Every pair in one segment."""
    check_indptr(where, "seg_indptr", seg_indptr, len(pairs))
    check_index_range(where, "pairs", pairs, len(pairs))
    if (np.bincount(pairs, minlength=len(pairs)) != 1).any():
        raise BadInput(where, "pairs", f"pair {np.bincount(pairs).argmax()} more than once", "every pair once")
