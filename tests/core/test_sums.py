"""The canonical orders of sums, against literal scalar statements of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.numerics.sums import chain, head_dot, pair_tree, row_sum, stream_dot, stream_sum

F = np.float32


def literal_sum(x: np.ndarray, in_runs: bool) -> np.float32:
    """Runs of 16 neighbours, or slots 16 apart; one scalar addition at a time."""
    total = F(0)
    for cut in range(0, len(x), 256):
        stop, cut_total = min(cut + 256, len(x)), F(0)
        for part in range(16):
            members = (
                range(cut + 16 * part, min(cut + 16 * part + 16, stop)) if in_runs else range(cut + part, stop, 16)
            )
            part_total = F(0)
            for i in members:
                part_total = F(part_total + x[i])
            cut_total = F(cut_total + part_total)
        total = F(total + cut_total)
    return total


def literal_head(x: np.ndarray) -> np.float32:
    """Runs of 8, then the tree, recursively."""

    def tree(parts: list[np.float32]) -> np.float32:
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        return F(tree(parts[:half]) + tree(parts[half:]))

    runs = []
    for start in range(0, len(x), 8):
        run = F(0)
        for value in x[start : start + 8]:
            run = F(run + value)
        runs.append(run)
    size = 1
    while size < len(runs):
        size *= 2
    return tree(runs + [F(0)] * (size - len(runs))) if runs else F(0)


def numbers(n: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(n) * 1000).astype(F)


@given(st.integers(0, 800), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_row_and_stream_sums_are_the_literal_orders(n: int, seed: int) -> None:
    x = numbers(n, seed)
    assert row_sum(x).tobytes() == literal_sum(x, in_runs=False).tobytes()
    assert stream_sum(x).tobytes() == literal_sum(x, in_runs=True).tobytes()


@given(st.integers(0, 600), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_stream_dot_is_the_stream_sum_of_its_products(n: int, width: int, seed: int) -> None:
    x = numbers(n * width, seed).reshape(n, width)
    assert stream_dot(n, (width,), lambda rows: x[rows]).tobytes() == stream_sum(x.T).tobytes()


@given(st.integers(0, 600), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_head_dot_is_the_literal_order(n: int, seed: int) -> None:
    x = numbers(n, seed)
    assert head_dot(n, (), lambda d: x[d]).tobytes() == literal_head(x).tobytes()


@given(st.integers(1, 700), st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_leaving_out_is_adding_zero(n: int, data: st.DataObject) -> None:
    x = numbers(n, n)
    kept = data.draw(st.integers(0, n))
    masked = np.where(np.arange(n) < kept, x, F(0))
    for total in (row_sum, stream_sum):
        assert total(masked).tobytes() == total(x[:kept]).tobytes()


@pytest.mark.parametrize("total", [row_sum, stream_sum, chain])
def test_minus_zero_sums_to_plus_zero(total: object) -> None:
    assert not np.signbit(total(np.full(5, -0.0, F)))  # type: ignore[operator]


def test_pair_tree_of_nothing_is_zero() -> None:
    assert pair_tree(np.zeros((3, 0), F)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("total", [row_sum, stream_sum])
def test_rows_are_independent(total: object) -> None:
    x = numbers(7 * 3 * 300, 0).reshape(7, 3, 300)
    together = total(x)  # type: ignore[operator]
    assert all(total(x[i, j]).tobytes() == together[i, j].tobytes() for i in range(7) for j in range(3))  # type: ignore[operator]
