"""Settled numbers: what they are in each format, and that arithmetic on them never meets a subnormal."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.numerics import elementary as E
from samebits.core.numerics.rounding import narrow
from samebits.core.numerics.settling import CHUNK, SMALLEST, settle, settled, unsettled
from samebits.kernels.cpp import flushing_subnormals, native

F = np.float32
DTYPES = (np.dtype(F), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
BOUNDS = (2.0**-50, 2.0**-43, 2.0**-25, 2.0**-24, 2.0**-126, 2.0**-149, 2.0**-60, 0.0, 1.0, 34.5, 2.0**63)


@st.composite
def faint(draw: st.DrawFn) -> np.float32:
    """A number at a bound of the arithmetic or a step beside it, or of any magnitude up to 2^10; of either sign."""
    if draw(st.booleans()):
        pattern = int(np.array(draw(st.sampled_from(BOUNDS)), F).view(np.int32)) + draw(st.integers(-1, 1))
        magnitude = np.array(max(pattern, 0), np.int32).view(F)
    else:
        magnitude = np.array(2.0 ** draw(st.floats(-149, 10)), F)
    return F(-magnitude if draw(st.booleans()) else magnitude)


rows = st.lists(faint(), min_size=1, max_size=32).map(lambda values: np.array(values, F))


@given(st.integers(0, 2**32 - 1), st.sampled_from(DTYPES))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_unsettled_is_minus_zero_or_tiny(pattern: int, dtype: np.dtype) -> None:
    bits = np.array([pattern % (1 << (8 * dtype.itemsize))], np.uint32 if dtype.itemsize == 4 else np.uint16)
    x = bits.view(dtype)
    with np.errstate(invalid="ignore"):
        value = float(x.astype(F)[0])
    is_minus_zero = value == 0 and bool(np.signbit(x.astype(F))[0])
    assert unsettled(x)[0] == (is_minus_zero or 0 < abs(value) < 2.0**-50)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_settled_changes_what_it_must_and_nothing_else(dtype: np.dtype) -> None:
    x = np.ones(2 * CHUNK + 3, dtype)
    assert settled(x) is x
    x[[0, CHUNK, -1]] = -0.0
    y = settled(x)
    assert np.signbit(x.astype(F)).sum() == 3, "the array given was changed"
    assert not unsettled(y).any()
    assert (y == x).all()
    strided = np.repeat(x, 2)[::2]
    assert not unsettled(settled(strided)).any()
    assert settled(x, in_place=True) is x
    assert not unsettled(x).any()


def test_what_float16_rounds_to_zero_is_plus_zero() -> None:
    x = np.array([-(2.0**-25), -(2.0**-26), -np.nextafter(F(2.0**-25), F(1)), -(2.0**-50)], F)
    assert narrow(x, np.dtype(np.float16)).view(np.uint16).tolist() == [0, 0, 0x8001, 0]


@given(st.tuples(rows, rows, rows, rows))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_products_and_their_differences_are_zero_or_normal(drawn: tuple[np.ndarray, ...]) -> None:
    a, b, c, d = (settle(np.resize(x, 32)) for x in drawn)
    with np.errstate(under="raise", over="ignore", invalid="ignore"):
        results = (a * b, a + b, a - b, a * b - c * d, a * b + c)
    for x in results:
        magnitude = np.abs(x)
        assert (magnitude[magnitude > 0] >= 2.0**-126).all()


FUNCTIONS = (E.exp, E.sigmoid, E.tanh, E.erf, E.erfc, E.softplus)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@given(rows)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_functions_give_the_same_bits_where_subnormals_are_flushed(
    function: Callable[[np.ndarray], np.ndarray], row: np.ndarray
) -> None:
    x = settle(row)
    with np.errstate(under="raise"):
        plain = function(x)
    with flushing_subnormals():
        flushed = function(x)
    assert plain.tobytes() == flushed.tobytes()
    assert (E.exp(x) == 0).sum() == (x < F(-34.5)).sum()
    assert not unsettled(E.exp(x)).any()


def test_flushing_is_what_it_says_and_ends() -> None:
    tiny = np.array([2.0**-126], F)
    assert not native().flushes_subnormals()
    with flushing_subnormals():
        assert (tiny * F(0.5))[0] == 0
    assert (tiny * F(0.5))[0] == F(2.0**-127)
    assert SMALLEST == 2.0**-50
