"""MXFP4: gguf-py's bytes and values within our range of scales, settled values, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import assert_same_bits, random_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samebits.api import functional as F
from samebits.core.errors import BadInput
from samebits.core.numerics.settling import SMALLEST, unsettled
from samebits.formats import MXFP4, Packed
from samebits.formats.mxfp4 import HALF_SCALES, LARGEST_BYTE, SMALLEST_BYTE

gguf = pytest.importorskip("gguf")
quants = pytest.importorskip("gguf.quants")
GGUF_TYPE = gguf.GGMLQuantizationType.MXFP4
ONE = np.float32(1)


def blocks_of(first: int, last: int) -> np.ndarray:
    """A row of one random block per scale byte from `first` to `last`, with every other byte."""
    data = random_bytes(MXFP4, last - first + 1, 1, 3)
    data[:, 0] = np.arange(first, last + 1)
    return data


def test_sizes_are_gguf_sizes():
    assert gguf.GGML_QUANT_SIZES[GGUF_TYPE] == (MXFP4.block_len, MXFP4.block_bytes)


def test_values_are_ggufs_from_the_smallest_scale_on():
    data = blocks_of(SMALLEST_BYTE, 254)
    with np.errstate(over="ignore"):
        want = quants.dequantize(data, GGUF_TYPE)
    assert_same_bits(MXFP4.decode(data, ONE), want)


def test_values_are_zeros_below():
    """gguf-py has numbers there, none of them as large as 6 times the smallest settled one."""
    data = blocks_of(0, SMALLEST_BYTE - 1)
    assert not MXFP4.decode(data, ONE).any()
    assert np.abs(quants.dequantize(data, GGUF_TYPE)).max() <= 6 * SMALLEST


def test_no_scale_and_no_value_is_smaller_than_a_settled_one():
    data = np.zeros((LARGEST_BYTE + 1, 17), np.uint8)
    data[:, 0] = np.arange(LARGEST_BYTE + 1)
    data[:, 1:] = np.arange(0, 256, 17)  # every code twice
    assert not unsettled(np.abs(MXFP4.decode(data, ONE))).any()
    assert not unsettled(MXFP4.codes(data, ONE).d).any()


def test_a_term_cannot_overflow_and_under_a_larger_scale_it_could():
    """The largest integer sum times the largest scales, of weights and of activations (docs/numerics.md, 4)."""
    largest_sum, activation = np.float32(32 * 127 * 12), np.float32(2.0**80 / 127)
    with np.errstate(over="ignore"):
        terms = largest_sum * (HALF_SCALES[[LARGEST_BYTE, LARGEST_BYTE + 1]] * activation)
    assert np.isfinite(terms).tolist() == [True, False]


@pytest.mark.parametrize("magnitude", [1e-12, 1e-6, 1e-3, 1.0, 100.0, 1e10])
def test_encode_of_normal_values(magnitude):
    x = (np.random.default_rng(11).standard_normal((64, 32 * 33)) * magnitude).astype(np.float32)
    np.testing.assert_array_equal(MXFP4.encode(x)[0], quants.quantize(x, GGUF_TYPE))


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays(np.float32, (2, 64), elements=st.integers(-96, 96).map(lambda v: v * 0.0625)),
    exponent=st.integers(-40, 38),
)
def test_encode_of_ties_under_any_scale(x, exponent):
    x = np.ldexp(x, exponent)
    np.testing.assert_array_equal(MXFP4.encode(x)[0], quants.quantize(x, GGUF_TYPE))


def test_what_is_decoded_is_encoded_alike():
    data = blocks_of(SMALLEST_BYTE, LARGEST_BYTE)
    data[:, 1] = 0x66  # an element of 4 or more, or the scale would be another
    x = MXFP4.decode(data, ONE)
    np.testing.assert_array_equal(MXFP4.decode(*MXFP4.encode(x)), x)


@pytest.mark.parametrize(("scale", "shown"), [(255, "NaN"), (254, r"2\^127"), (168, r"2\^41")])
def test_an_op_refuses_scales_beyond_its_range(scale, shown):
    x, packed = np.ones((1, 64), np.float32), MXFP4.pack(np.ones((3, 64), np.float32))
    packed.data[2, 17] = LARGEST_BYTE
    assert np.isfinite(F.gemm(x, packed)).all()
    packed.data[2, 17] = scale
    with pytest.raises(BadInput, match=rf"^gemm: weight has a block scale of {shown}, but must have up to 2\^40$"):
        F.gemm(x, packed)


def test_no_blocks_have_no_scales_to_refuse():
    MXFP4.check(Packed(MXFP4, np.zeros((0, 17), np.uint8)).data, "gemm", "weight")
