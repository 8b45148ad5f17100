"""Checks that index arrays share. Indices come from outside and are never trusted."""

from __future__ import annotations

import numpy as np

from samebits.core.errors import BadInput


def check_indptr(where: str, argument: str, indptr: np.ndarray, total: int) -> None:
    """0 = indptr[0] <= indptr[1] <= ... <= indptr[-1] = total."""
    if len(indptr) < 1 or indptr[0] != 0:
        raise BadInput(where, argument, f"first entry {indptr[:1].tolist()}", "0 first")
    steps = np.diff(indptr.astype(np.int64))
    if (steps < 0).any():
        at = int(np.argmax(steps < 0))
        raise BadInput(where, argument, f"{indptr[at]} then {indptr[at + 1]} at {at}", "entries that never fall")
    if indptr[-1] != total:
        raise BadInput(where, argument, f"last entry {indptr[-1]}", f"the total {total}")


def check_index_range(where: str, argument: str, indices: np.ndarray, limit: int) -> None:
    """Every index in 0 .. limit - 1."""
    wrong = (indices < 0) | (indices >= limit)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadInput(where, argument, f"{indices.ravel()[at]} at {at}", f"0 .. {limit - 1}")


def check_no_nan(where: str, argument: str, x: np.ndarray) -> None:
    """No NaN: an order over values has no place for it."""
    if np.isnan(x).any():
        at = int(np.argmax(np.isnan(x).ravel()))
        raise BadInput(where, argument, f"NaN at {at}", "no NaN")
