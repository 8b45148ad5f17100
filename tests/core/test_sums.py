"""The canonical order of sums, against a literal scalar statement of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.numerics.sums import canonical_dot, canonical_sum, chain

F = np.float32


def literal_sum(x: np.ndarray) -> np.float32:
    """docs/numerics.md word for word, one scalar at a time."""
    total = F(0)
    for cut in range(0, len(x), 256):
        cut_total = F(0)
        for slot in range(16):
            slot_total = F(0)
            for i in range(cut + slot, min(cut + 256, len(x)), 16):
                slot_total = F(slot_total + x[i])
            cut_total = F(cut_total + slot_total)
        total = F(total + cut_total)
    return total


@given(st.integers(0, 800), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_canonical_sum_is_the_literal_order(n: int, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(n) * 1000).astype(F)
    assert canonical_sum(x).tobytes() == literal_sum(x).tobytes()


@given(st.integers(0, 600), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_canonical_dot_is_the_sum_of_its_products(n: int, width: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((n, width)).astype(F)
    dot = canonical_dot(n, (width,), lambda start, stop: x[start:stop])
    assert dot.tobytes() == canonical_sum(x.T).tobytes()


@given(st.integers(1, 700), st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_leaving_out_is_adding_zero(n: int, data: st.DataObject) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(F)
    kept = data.draw(st.integers(0, n))
    masked = np.where(np.arange(n) < kept, x, F(0))
    assert canonical_sum(masked).tobytes() == canonical_sum(x[:kept]).tobytes()


def test_minus_zero_sums_to_plus_zero() -> None:
    assert not np.signbit(canonical_sum(np.full(5, -0.0, F)))
    assert not np.signbit(chain(np.full(5, -0.0, F)))


def test_rows_are_independent() -> None:
    x = np.random.default_rng(0).standard_normal((7, 3, 300)).astype(F)
    together = canonical_sum(x)
    assert all(canonical_sum(x[i, j]).tobytes() == together[i, j].tobytes() for i in range(7) for j in range(3))
