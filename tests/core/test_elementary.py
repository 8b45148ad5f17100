"""Elementary functions: measured error against float64 and what docs/numerics.md states of it, and edges."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.numerics import elementary as E

F = np.float32
DOC = Path(__file__).parents[2] / "docs" / "numerics.md"
COUNT = 400_000
erf64, erfc64 = np.vectorize(math.erf), np.vectorize(math.erfc)


def log_uniform(low: float, high: float) -> np.ndarray:
    return np.exp2(np.random.default_rng(1).uniform(low, high, COUNT)).astype(F)


def uniform(low: float, high: float, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(2).uniform(low, high, count).astype(F)


def sigmoid64(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-np.maximum(x, 0))))


# name: (function, float64 truth, inputs). The domain is the one docs/numerics.md states.
MEASURED: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray], np.ndarray]] = {
    "exp": (E.exp, np.exp, np.concatenate([uniform(-34.5, 88), uniform(-1, 1)])),
    "recip": (E.recip, lambda x: 1 / x, np.concatenate([log_uniform(-100, 100), uniform(1, 2)])),
    "rsqrt": (E.rsqrt, lambda x: 1 / np.sqrt(x), np.concatenate([log_uniform(-100, 126), uniform(1, 4)])),
    "log": (E.log, np.log, np.concatenate([log_uniform(-126, 126), uniform(0.5, 2)])),
    "log2": (E.log2, np.log2, np.concatenate([log_uniform(-126, 126), uniform(0.5, 2)])),
    "sigmoid": (E.sigmoid, sigmoid64, uniform(-34.5, 40)),
    "tanh": (E.tanh, np.tanh, np.concatenate([uniform(-10, 10), uniform(-0.7, 0.7)])),
    "erf": (E.erf, erf64, uniform(-6, 6, 100_000)),
    "softplus": (E.softplus, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), uniform(-34.5, 80)),
}


def stated_errors() -> dict[str, float]:
    """The 'max ulp' column of the table in docs/numerics.md."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d.]+) \|$", DOC.read_text(), re.MULTILINE)
    return {name: float(ulp) for name, ulp in rows}


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(F)).astype(np.float64)


@pytest.mark.parametrize("name", MEASURED)
def test_error_is_within_what_the_document_states(name: str) -> None:
    function, truth, x = MEASURED[name]
    worst = ulp_error(function(x), truth(x.astype(np.float64))).max()
    stated = stated_errors()[name]
    assert worst <= stated
    assert worst > 0.5 * stated, "the document states an error far from what is measured"


def test_erfc_is_accurate_to_float32_of_one() -> None:
    x = uniform(-6, 6, 100_000)
    assert np.abs(E.erfc(x) - erfc64(x.astype(np.float64))).max() < 2.0**-22


@pytest.mark.parametrize(
    ("function", "x", "want"),
    [
        (E.exp, [0.0, -0.0, -34.6, -np.inf, 88.5, np.inf, 1.0], [1, 1, 0, 0, np.inf, np.inf, F(math.e)]),
        (E.log, [1.0, 0.0, 2.0**-126], [0, -np.inf, F(-126 * math.log(2))]),
        (E.log2, [1.0, 0.0, 8.0, 2.0**-100], [0, -np.inf, 3, -100]),
        (E.recip, [1.0, 2.0, 0.25], [1, 0.5, 4]),
        (E.rsqrt, [1.0, 4.0, 0.25], [1, 0.5, 2]),
        (E.sigmoid, [0.0, -100.0, 100.0], [0.5, 0, 1]),
        (E.tanh, [0.0, 20.0, -20.0, np.inf], [0, 1, -1, 1]),
        (E.erf, [0.0, 7.0, -7.0], [0, 1, -1]),
        (E.softplus, [-100.0, 100.0], [0, 100]),
    ],
)
def test_edges(function: Callable[..., np.ndarray], x: list[float], want: list[float]) -> None:
    got = function(np.array(x, F))
    assert got.dtype == F
    np.testing.assert_array_max_ulp(got, np.array(want, F), maxulp=1)


@pytest.mark.parametrize("function", [E.exp, E.sigmoid, E.tanh, E.erf, E.erfc, E.softplus])
def test_nan_stays_nan(function: Callable[..., np.ndarray]) -> None:
    assert np.isnan(function(np.array([np.nan], F)))[0]


def test_rsqrt_is_finite_at_zero_so_a_zero_row_with_eps_0_normalises_to_zero() -> None:
    assert np.isfinite(E.rsqrt(np.zeros(1, F)))[0]


def test_exp_is_monotonic_over_the_range_softmax_uses() -> None:
    x = np.sort(uniform(-34.5, 0))
    assert (np.diff(E.exp(x)) >= 0).all()


@given(st.floats(-(2.0**21), 2.0**21, width=32))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_round_to_int_is_half_to_even(x: float) -> None:
    assert E.round_to_int(np.array([x], F))[0] == np.rint(F(x))


@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_bits_do_not_depend_on_the_neighbours(values: list[float]) -> None:
    x = np.array(values, F)
    for function in (E.exp, E.sigmoid, E.tanh, E.erf, E.erfc, E.softplus):
        together = function(x)
        alone = np.concatenate([function(x[i : i + 1]) for i in range(len(x))])
        assert together.tobytes() == alone.tobytes()
