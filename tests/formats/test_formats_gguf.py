"""The GGML formats against gguf-py, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import GGML_FORMATS, assert_same_bits, name_of, random_bytes, special_scale_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samebits.formats import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0

gguf = pytest.importorskip("gguf")
quants = pytest.importorskip("gguf.quants")

ENCODED_AS_GGUF = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0]


def gguf_type(fmt):
    return getattr(gguf.GGMLQuantizationType, fmt.name.upper())


def gguf_decode(data: np.ndarray, fmt) -> np.ndarray:
    with np.errstate(all="ignore"):
        return quants.dequantize(data, gguf_type(fmt))


def gguf_encode(x: np.ndarray, fmt) -> np.ndarray:
    with np.errstate(all="ignore"):
        return quants.quantize(x, gguf_type(fmt))


@pytest.mark.parametrize("fmt", GGML_FORMATS, ids=name_of)
def test_block_sizes_are_gguf_sizes(fmt):
    assert gguf.GGML_QUANT_SIZES[gguf_type(fmt)] == (fmt.block_len, fmt.block_bytes)


@pytest.mark.parametrize("fmt", GGML_FORMATS, ids=name_of)
@pytest.mark.parametrize("seed", range(4))
def test_decode_of_random_bytes(fmt, seed):
    data = random_bytes(fmt, 40, 17, seed)
    assert_same_bits(fmt.decode(data, np.float32(1)), gguf_decode(data, fmt))


@pytest.mark.parametrize("fmt", GGML_FORMATS, ids=name_of)
def test_decode_of_special_scales(fmt):
    data = special_scale_bytes(fmt, seed=5)
    assert_same_bits(fmt.decode(data, np.float32(1)), gguf_decode(data, fmt))


@pytest.mark.parametrize("fmt", ENCODED_AS_GGUF, ids=name_of)
@pytest.mark.parametrize("magnitude", [1e-37, 1e-20, 1e-8, 1e-6, 1e-3, 1.0, 100.0, 1e4])
def test_encode_of_normal_values(fmt, magnitude):
    rng = np.random.default_rng(11)
    x = (rng.standard_normal((64, 32 * 33)) * magnitude).astype(np.float32)
    np.testing.assert_array_equal(fmt.encode(x)[0], gguf_encode(x, fmt))


@pytest.mark.parametrize("fmt", ENCODED_AS_GGUF, ids=name_of)
def test_encode_of_ties(fmt):
    """Small multiples of a quarter step, with equal extremes of both signs: most codes are ties."""
    rng = np.random.default_rng(12)
    x = rng.integers(-128, 129, (200, 32 * 8)).astype(np.float32) * np.float32(0.125)
    x[:, ::32], x[:, 1::32] = 16, -16
    np.testing.assert_array_equal(fmt.encode(x)[0], gguf_encode(x, fmt))


@pytest.mark.parametrize("fmt", ENCODED_AS_GGUF, ids=name_of)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 65504.0, 1e-30])
def test_encode_of_constant_blocks(fmt, value):
    x = np.full((2, 64), value, np.float32)
    np.testing.assert_array_equal(fmt.encode(x)[0], gguf_encode(x, fmt))


@pytest.mark.parametrize("fmt", ENCODED_AS_GGUF, ids=name_of)
def test_encode_where_the_reciprocal_overflows(fmt):
    """gguf-py casts Inf and NaN to codes there; the bytes may differ, the values are zeros in both."""
    x = (np.random.default_rng(13).standard_normal((8, 256)) * 1e-39).astype(np.float32)
    got, want = fmt.decode(*fmt.encode(x)), gguf_decode(gguf_encode(x, fmt), fmt)
    np.testing.assert_array_equal(got, want)
    assert not got.any()


# gguf-py casts an Inf to an integer where 1 / d overflows, so blocks keep |extreme| and range above 2^-120;
# a -0 is left out because gguf-py's minimum may take either zero.
elements = st.floats(-60000, 60000, width=32).map(lambda v: 0.0 if abs(v) < 2.0**-60 else v)


@pytest.mark.parametrize("fmt", ENCODED_AS_GGUF, ids=name_of)
@settings(max_examples=25, deadline=None)
@given(x=hnp.arrays(np.float32, (2, 64), elements=elements))
def test_encode_of_any_values(fmt, x):
    np.testing.assert_array_equal(fmt.encode(x)[0], gguf_encode(x, fmt))
