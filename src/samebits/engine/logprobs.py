"""Log-probabilities of rows of logits, in the portable arithmetic, and the likeliest tokens of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import exp, log
from samebits.core.numerics.sums import row_sum
from samebits.ops.select import ranking

BLOCK = 1 << 14  # elements whose intermediate results stay in a core's cache
ROWS_AT_ONCE = 16  # bounds the memory of many rows
GROUP = 64  # columns of which the largest is looked at first


@dataclass(frozen=True)
class TokenLogprobs:
    """A chosen token's log-probability, and the likeliest tokens with theirs."""

    chosen: float
    top: tuple[tuple[int, float], ...]


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """log softmax of float32 logits [..., vocab]; BadInput where a row holds NaN or +Inf, or nothing but -Inf."""
    maximum = logits.max(axis=-1, keepdims=True)
    if not np.isfinite(maximum).all():
        raise BadInput("log-probabilities", "logits", "NaN, +Inf or only -Inf in a row", "a finite logit in every row")
    shifted = logits - maximum
    weights = np.empty(shifted.shape, np.float32)
    source, target = shifted.reshape(-1), weights.reshape(-1)
    for start in range(0, len(source), BLOCK):
        target[start : start + BLOCK] = exp(source[start : start + BLOCK])
    shifted -= log(row_sum(weights))[..., None]
    return shifted


def likeliest(log_probs: np.ndarray, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` likeliest tokens of a row [vocab] and their log-probabilities, ties to the lowest id.

    Not a sort of the row: at least `count` values reach the count-th largest of the groups' maxima, so the likeliest
    are among those that do.
    """
    count = min(count, len(log_probs))
    if count == 0:
        return ()
    num_groups = len(log_probs) // GROUP
    ids = np.arange(len(log_probs))
    if num_groups > count:
        maxima = log_probs[: num_groups * GROUP].reshape(num_groups, GROUP).max(axis=1)
        ids = np.flatnonzero(log_probs >= np.partition(maxima, num_groups - count)[num_groups - count])
    first = ids[ranking(log_probs[ids])[:count]]
    return tuple(zip(first.tolist(), log_probs[first].tolist(), strict=True))


def token_logprobs(logits: np.ndarray, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """For each row of float32 logits [rows, vocab]: of its token, and of its `counts[row]` likeliest."""
    found: list[TokenLogprobs] = []
    for start in range(0, len(logits), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        for row, token, count in zip(log_probabilities(logits[part]), tokens[part], counts[part], strict=True):
            found.append(TokenLogprobs(float(row[token]), likeliest(row, count)))
    return found
