"""NVFP4: the two small float types, the ties, the scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from samebits.api import functional as F
from samebits.core.errors import BadInput
from samebits.formats import NVFP4
from samebits.formats.nvfp4 import E2M1_VALUES, E4M3_VALUES, TWICE_E2M1, global_scale, nearest_e2m1

TIES = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0}
UNIT = 2688.0  # a tensor whose largest magnitude is 448 * 6 has a global scale of 1


def with_unit_scale(block: list[float]) -> np.ndarray:
    """A row of two blocks: one that sets the tensor scale to 1, then `block` padded with zeros."""
    return np.array([UNIT] + [0.0] * 15 + block + [0.0] * (16 - len(block)), np.float32)


def test_e2m1_values_are_ml_dtypes():
    want = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert E2M1_VALUES.tobytes() == want.tobytes()
    np.testing.assert_array_equal(TWICE_E2M1, 2 * E2M1_VALUES)


def test_e4m3_values():
    byte = np.arange(256)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(float) - 10))
    want = np.where(byte & 127 == 127, np.nan, np.where(byte < 128, magnitude, -magnitude))
    np.testing.assert_array_equal(E4M3_VALUES, want.astype(np.float32))
    assert np.signbit(E4M3_VALUES[128])


def test_nearest_e2m1_is_ml_dtypes_rounding():
    grid = np.arange(-7 * 64, 7 * 64 + 1, dtype=np.float32) / 64
    near_ties = np.nextafter(np.float32(list(TIES)), np.float32([[0], [9]])).ravel()
    noise = np.random.default_rng(0).uniform(-6.5, 6.5, 20000).astype(np.float32)
    x = np.concatenate([grid, near_ties, -near_ties, noise])
    saturated = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(nearest_e2m1(x), saturated.view(np.uint8))


@pytest.mark.parametrize(("x", "want"), TIES.items())
def test_ties_go_to_even(x, want):
    packed = NVFP4.pack(with_unit_scale([6.0, x, -x]))
    assert packed.scale == 1
    assert packed.unpack()[16:19].tolist() == [6.0, want, -want]


def test_bytes_of_a_row():
    """Even elements in the low nibbles; sign kept on zero."""
    block = [6, 0.75, 1.75, 3.5, 0.25, 1.25, 2.5, 5, -0.75, -5, -0.25, 0.2500001, 5.1, -6, 0, -0.0]
    packed = NVFP4.pack(with_unit_scale(block))
    assert packed.data.tobytes().hex() == "7e0700000000000000" + "38276420" + "64ea18f780"


def test_block_scale_rounds_to_even_and_elements_saturate():
    """6.375 / 6 = 1.0625 is a tie of e4m3 between 1 and 1.125."""
    packed = NVFP4.pack(with_unit_scale([6.375, -6.375]))
    assert packed.data[9:11].tobytes().hex() == "38f7"
    assert packed.unpack()[16:18].tolist() == [6.0, -6.0]


def test_zero_tensor_and_zero_blocks():
    zeros = NVFP4.pack(np.zeros((3, 32), np.float32))
    assert zeros.scale == 1
    assert not zeros.data.any()
    assert not NVFP4.pack(with_unit_scale([])).data[9:].any()


def test_a_block_far_below_the_tensor_becomes_zero():
    """s = 2^-10 is a tie of e4m3 between 0 and its least value: even is 0."""
    packed = NVFP4.pack(with_unit_scale([6 * 2.0**-10]))
    assert not packed.data[9:].any()


def test_tensor_scale_is_the_reciprocal_of_gs():
    packed = NVFP4.pack(np.full((1, 16), 3.0, np.float32))
    assert global_scale(np.full(1, 3.0, np.float32)) == np.float32(896)
    assert packed.scale == np.float32(1) / np.float32(896)
    assert packed.scale.dtype == np.float32


@pytest.mark.parametrize("magnitude", [1e-45, 1e-38, 1e-6, 1e-4, 1e30, 2.0**127])
def test_extreme_magnitudes_stay_finite(magnitude):
    x = np.full((1, 32), magnitude, np.float32)
    packed = NVFP4.pack(x)
    assert np.isfinite(packed.unpack()).all()
    assert packed.scale >= np.float32(2.0**-30)
    if magnitude >= 1e-4:
        np.testing.assert_allclose(packed.unpack(), x, rtol=1e-6)


def test_a_magnitude_whose_value_would_overflow_is_refused():
    with pytest.raises(
        BadInput, match=r"^nvfp4.encode: x has magnitude 2e\+38, but must have finite values up to 2\^127$"
    ):
        NVFP4.pack(np.full((1, 16), 2e38, np.float32))


@pytest.mark.parametrize("scale", [0x7F, 0xFF])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_op_refuses_a_scale_that_is_nan(backend, scale):
    x, packed = np.ones((1, 64), np.float32), NVFP4.pack(np.ones((3, 64), np.float32))
    packed.data[2, 9] = scale - 1
    assert np.isfinite(F.gemm(x, packed, backend=backend)).all()
    packed.data[2, 9] = scale
    with pytest.raises(BadInput, match=r"^gemm: weight has a block scale of NaN, but must have numbers$"):
        F.gemm(x, packed, backend=backend)
    with pytest.raises(BadInput, match=r"^embedding: table has a block scale of NaN, but must have numbers$"):
        F.embedding(packed, np.zeros(1, np.int32), backend=backend)


def test_value_is_rounded_after_the_exact_product():
    """(6 * 1.125) * scale and 6 * (1.125 * scale) differ for this scale."""
    data = np.frombuffer(bytes.fromhex("39 07" + "00" * 7), np.uint8)
    scales = np.random.default_rng(1).uniform(1, 2, 200).astype(np.float32)
    got = np.array([NVFP4.decode(data, s)[0] for s in scales])
    np.testing.assert_array_equal(got, np.float32(6.75) * scales)
    assert (got != np.float32(6) * (np.float32(1.125) * scales)).any()
