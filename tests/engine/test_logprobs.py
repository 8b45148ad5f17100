"""Log-probabilities of many rows at once: the bits of one row alone, and the order of a whole sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import exp, log
from samebits.core.numerics.sums import row_sum
from samebits.engine.logprobs import BLOCK, GROUP, ROWS_AT_ONCE, likeliest, log_probabilities, token_logprobs

WIDTHS = (1, 2, GROUP - 1, GROUP + 1, 3 * GROUP, 1000, BLOCK - 1, BLOCK + 1, 2 * BLOCK + 77)


def rows_of(seed: int, num_rows: int, width: int, step: float) -> np.ndarray:
    """float32 [num_rows, width]; a large step makes most values equal, and some are -Inf."""
    rng = np.random.default_rng(seed)
    rows = (np.rint(rng.normal(0, 4, (num_rows, width)) / step) * step).astype(np.float32)
    rows[:, 1:][rng.random((num_rows, width - 1)) < 0.1] = -np.inf
    return rows


@given(
    seed=st.integers(0, 1 << 30),
    num_rows=st.integers(1, ROWS_AT_ONCE + 3),
    width=st.sampled_from(WIDTHS),
    step=st.sampled_from([1e-6, 0.5, 2.0, 100.0]),
    data=st.data(),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_rows_together_give_what_each_gives_alone(
    seed: int, num_rows: int, width: int, step: float, data: st.DataObject
) -> None:
    logits = rows_of(seed, num_rows, width, step)
    tokens = data.draw(st.lists(st.integers(0, width - 1), min_size=num_rows, max_size=num_rows))
    counts = data.draw(st.lists(st.integers(0, 128), min_size=num_rows, max_size=num_rows))
    found = token_logprobs(logits, tokens, counts)
    for row, token, count, result in zip(logits, tokens, counts, found, strict=True):
        shifted = row - row.max()
        want = shifted - log(row_sum(exp(shifted)))
        assert log_probabilities(row).tobytes() == want.tobytes()
        assert result.chosen == float(want[token])
        order = np.lexsort((np.arange(width), -want))[:count].tolist()
        assert result.top == tuple((i, float(want[i])) for i in order)


def test_ties_go_to_the_lowest_id_however_many_there_are() -> None:
    row = np.zeros(10 * GROUP, np.float32)
    assert [token for token, _ in likeliest(row, 5)] == [0, 1, 2, 3, 4]
    row[-3:] = 1.0
    assert [token for token, _ in likeliest(row, 5)] == [637, 638, 639, 0, 1]
    row[::2] = -0.0
    assert [token for token, _ in likeliest(row, 5)] == [637, 639, 0, 1, 2]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 5])
def test_rows_that_are_no_logits_are_refused(wrong: float, column: int) -> None:
    logits = rows_of(0, 3, 1000, 0.5)
    logits[1, column] = wrong
    with pytest.raises(BadInput, match="log-probabilities: logits has NaN"):
        token_logprobs(logits, [0, 0, 0], [1, 1, 1])
