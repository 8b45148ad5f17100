"""What a tolerance lets pass, on small arrays."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.verify.tolerance import is_far

INF, NAN = np.inf, np.nan
ROWS = np.array([[3, 4, -INF, NAN], [3, 4, 0, 0]], np.float32)


@pytest.mark.parametrize(
    ("index", "value", "is_wrong"),
    [
        ((0, 0), 3.01, False),
        ((0, 0), 5.0, True),  # a finite element beside an Inf
        ((1, 1), 8.0, True),
        ((0, 0), NAN, True),
        ((0, 0), INF, True),
        ((0, 2), INF, True),  # the other infinity
        ((0, 2), 0.0, True),
        ((0, 3), 0.0, True),
    ],
)
def test_finite_elements_of_a_row_with_an_infinity_are_judged(
    index: tuple[int, int], value: float, is_wrong: bool
) -> None:
    got = ROWS.copy()
    got[index] = value
    assert is_far(got, ROWS) == is_wrong


def test_equal_rows_and_other_shapes() -> None:
    assert not is_far(ROWS.copy(), ROWS)
    assert is_far(ROWS[:1], ROWS)
    assert not is_far(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))
