"""The rules of `sample`: what the noise is keyed by, what the filters keep, and that draws follow the softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_helpers import run
from oracles import ranked
from oracles_sample import kept_tokens, noise, threefry2x32

from samebits.core.errors import BadInput
from samebits.core.numerics.counter import Stream, threefry
from samebits.ops.sampling import filtered, gumbel

F = np.float32


def draw(logits: np.ndarray, **changes: Any) -> np.ndarray:
    """Tokens of a batch with neutral settings, one row a position."""
    n = len(logits)
    settings = {
        "seed": np.full((n, 2), 7, np.uint32),
        "sample_index": np.zeros(n, np.int32),
        "position": np.arange(n, dtype=np.int32),
        "temperature": np.ones(n, F),
        "top_k": np.zeros(n, np.int32),
        "top_p": np.ones(n, F),
        "min_p": np.zeros(n, F),
    }
    for name, value in changes.items():
        settings[name] = np.full(n, value, settings[name].dtype) if np.isscalar(value) else value
    return run("sample", logits, **settings)


# Random123's known answers for threefry2x32-20: key, counter, result.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "want"), KNOWN)
def test_the_generator_is_threefry(key, counter, want):
    words = threefry(tuple(np.uint32(k) for k in key), tuple(np.uint32(c) for c in counter))
    assert tuple(int(w) for w in words) == want
    assert tuple(int(w) for w in threefry2x32(key, counter)) == want


def test_noise_is_the_oracles_noise():
    """-log(-log u) loses digits near 0, where only its absolute size counts: 2^-22 of a unit."""
    for sample_index, position in ((0, 0), (3, 1000), (2**31 - 1, 2**31 - 1)):
        got = gumbel(np.array([5, 9], np.uint32), np.int32(sample_index), np.int32(position), 5000)
        want = noise(np.array([5, 9]), sample_index, position, 5000)
        assert (np.abs(got - want) <= 2.0**-22 * np.maximum(1, np.abs(want))).all()


def test_same_key_same_token_and_every_part_of_the_key_counts():
    logits = np.tile(Stream("l").normal((1, 50)), (64, 1))
    base = draw(logits)
    assert (draw(logits) == base).all()
    seeds = np.full((64, 2), 7, np.uint32)
    for other in (
        {"sample_index": 1},
        {"position": np.arange(64, dtype=np.int32) + 64},
        {"seed": seeds + np.array([1, 0], np.uint32)},
        {"seed": seeds + np.array([0, 1], np.uint32)},
    ):
        assert (draw(logits, **other) != base).mean() > 0.5
    assert len(set(draw(logits, position=5).tolist())) == 1


@pytest.mark.parametrize("setting", [{"temperature": 0.0}, {"top_k": 1}, {"min_p": 1.0}, {"top_p": 2.0**-16}])
def test_settings_that_leave_one_token_equal_argmax(setting):
    logits = Stream("l").normal((40, 30))
    assert (draw(logits, **setting) == run("argmax", logits)).all()


def test_temperature_zero_takes_the_lowest_of_equals_and_ignores_the_filters():
    logits = np.zeros((3, 9), F)
    logits[:, [4, 7]] = 1
    assert draw(logits, temperature=0.0, top_k=5, min_p=0.5).tolist() == [4, 4, 4]


def test_tokens_at_minus_infinity_are_never_drawn():
    logits = np.full((200, 10), -np.inf, F)
    logits[:, [2, 6]] = [0, 1]
    assert set(draw(logits).tolist()) == {2, 6}


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.7, 0.0), (0, 0.05, 0.0), (0, 1.0, 0.1), (20, 0.9, 0.05), (1000, 0.5, 0.0)],
)
def test_filters_keep_what_the_textbook_keeps(top_k, top_p, min_p):
    """Except a token whose mass before it is within 2e-4 of top_p: mass is counted on a grid."""
    for row in Stream("rows").normal((30, 200), 2.0):
        got = set(np.isfinite(filtered(row, top_k, F(top_p), F(min_p))).nonzero()[0].tolist())
        x = row.astype(np.float64)
        want = {p: kept_tokens(x, top_k, p, min_p) for p in (top_p - 2e-4, top_p, min(top_p + 2e-4, 1.0))}
        assert want[top_p] == got or want[top_p - 2e-4] <= got <= want[min(top_p + 2e-4, 1.0)]
        assert ranked(x)[0] in got


def test_top_p_counts_after_top_k():
    """Half of the mass of the two that top-k leaves is the first one, though it is an eighth of all."""
    x = np.zeros(8, F)
    x[3] = 1e-3
    assert np.isfinite(filtered(x, 2, F(0.5), F(0))).nonzero()[0].tolist() == [3]
    assert len(np.isfinite(filtered(x, 0, F(0.5), F(0))).nonzero()[0]) == 4


def test_top_p_of_more_equals_than_64_bits_count():
    """Masses of 2^28, times 2^16, leave int64 from 2^19 equal tokens on."""
    kept = np.isfinite(filtered(np.zeros(700_000, F), 0, F(0.75), F(0)))
    assert kept[:525_000].all()
    assert not kept[525_000:].any()


HUGE = [[1e35, 2, 3], [-1e35, -1e35, -2e35]]


@pytest.mark.parametrize("row", HUGE)
def test_a_largest_logit_that_overflows_is_refused(row):
    with pytest.raises(BadInput, match=r"sample: logits has a row whose largest logit, .* is infinite, but"):
        draw(np.array([row], F), temperature=1e-4)
    assert draw(np.array([row], F)).tolist() == [0 if row[0] > 0 else np.argmax(row)]


def test_logits_below_the_largest_may_overflow_and_are_never_drawn():
    logits = np.tile(np.array([-1e35, 2, 3], F), (50, 1))
    assert set(draw(logits, temperature=1e-4).tolist()) == {2}
    assert 0 not in draw(logits, temperature=1.0)


def test_a_bias_and_penalties_that_overflow_are_refused_at_temperature_0_too():
    logits = np.array([[3e38, 1]], F)
    with pytest.raises(BadInput, match="largest logit"):
        draw(logits, temperature=0.0, bias=logits)
    ones = np.ones(1, F)
    seen = {"counts": np.ones((1, 2), np.int32), "presence": ones, "frequency": ones}
    with pytest.raises(BadInput, match="largest logit"):
        draw(logits, temperature=0.0, repetition=ones * F(0.01), **seen)
    assert draw(logits, temperature=0.0, repetition=ones, **seen).tolist() == [0]


CHI_SQUARE_9999 = {2: 18.4, 7: 29.9}  # exceeded once in ten thousand, by degrees of freedom


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.5}, {"sample_index": 3, "seed": 11}, {"top_k": 3}])
def test_frequencies_follow_the_softmax(changes):
    n, logits = 2000, np.array([0.0, 1.0, -1.0, 0.5, 2.0, -0.5, 1.5, 0.0], F)
    changes = dict(changes)
    if "seed" in changes:
        changes["seed"] = np.full((n, 2), changes["seed"], np.uint32)
    counts = np.bincount(draw(np.tile(logits, (n, 1)), **changes), minlength=8)
    x = logits.astype(np.float64) / changes.get("temperature", 1.0)
    keep = ranked(x)[: changes.get("top_k", 8)]
    expected = np.exp(x[keep]) / np.exp(x[keep]).sum() * n
    assert counts.sum() == counts[keep].sum() == n
    assert ((counts[keep] - expected) ** 2 / expected).sum() < CHI_SQUARE_9999[len(keep) - 1]


def test_penalties_only_touch_tokens_that_were_seen():
    logits = np.array([[2.0, 1.9, -1.0, -1.1]], F)
    one = np.ones(1, F)

    def best(counts: list[int], repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0) -> int:
        extra = {"counts": np.array([counts], np.int32), "repetition": one * F(repetition)}
        extra |= {"presence": one * F(presence), "frequency": one * F(frequency)}
        neutral = {n: np.zeros(1, np.int32) for n in ("sample_index", "position", "top_k")}
        return int(
            run(
                "sample",
                logits,
                np.zeros((1, 2), np.uint32),
                temperature=one * F(0),
                top_p=one,
                min_p=one * F(0),
                **neutral,
                **extra,
            )[0]
        )

    assert best([0, 0, 0, 0], 2.0, 1.0, 1.0) == 0
    assert best([1, 0, 0, 0], repetition=1.1) == 1
    assert best([1, 0, 0, 0], presence=0.05) == 0
    assert best([1, 0, 0, 0], presence=0.15) == 1
    assert best([3, 1, 0, 0], frequency=0.06) == 1
    assert best([9, 9, 1, 0], repetition=1.2, frequency=0.5) == 3  # a negative logit is multiplied, so it falls
