"""Kernels that move columns between rows and heads, and rope, which turns pairs of them.

In tiles a head is a row: [T, H, D] has T * H rows of D. The packer writes lanes in the shape of the result, so a kernel
that only moves elements hands them over in order.
"""

from __future__ import annotations

import numpy as np

from samebits.core.tiers import Tier
from samebits.kernels.record import OpCall
from samebits_toy import device as dev
from samebits_toy.memory import Window
from samebits_toy.rows import Results, by_strips, is_matrix


def all_rows(x: Window) -> np.ndarray:
    return dev.unpack(x, np.arange(x.num_rows))


@dev.table.implements("split_heads", tier=Tier.PORTABLE)
def split_heads(x: Window, *, heads: int) -> Results:
    return (all_rows(x),)


@dev.table.implements("merge_heads", tier=Tier.PORTABLE)
def merge_heads(x: Window) -> Results:
    return (all_rows(x),)


@dev.table.implements("slice_columns", tier=Tier.PORTABLE, when=is_matrix)
def slice_columns(x: Window, *, start: int, stop: int) -> Results:
    return (all_rows(x)[:, start:stop],)


def are_matrices(call: OpCall) -> str | None:
    return None if len(call.inputs["a"].shape) > 1 else "toy-tiles joins the columns of matrices, not vectors"


@dev.table.implements("concat_columns", tier=Tier.PORTABLE, when=are_matrices)
def concat_columns(a: Window, b: Window) -> Results:
    return (np.concatenate([all_rows(a), all_rows(b)], axis=1),)


@dev.table.implements("rope", tier=Tier.PORTABLE)
def rope(x: Window, pos_ids: Window, table: Window, *, interleave: bool) -> Results:
    """The table [P, R, 2] has P * R rows: the cosine and the sine of one pair at one position."""
    num_heads, num_pairs = x.shape[1], table.shape[1]
    pair = np.arange(num_pairs)
    first, second = (2 * pair, 2 * pair + 1) if interleave else (pair, pair + num_pairs)
    positions = pos_ids.vector().astype(np.int64)

    def strip(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        angles = (positions[rows // num_heads, None] * num_pairs + pair).reshape(-1)
        cos, sin = dev.unpack(table, angles).reshape(len(rows), num_pairs, 2).transpose(2, 0, 1)
        a, b = y[:, first], y[:, second]
        y[:, first] = dev.add(dev.mul(a, cos), -dev.mul(b, sin))
        y[:, second] = dev.add(dev.mul(b, cos), dev.mul(a, sin))
        return y

    return by_strips(x, x.shape[-1], strip)
