"""codes() says the same values as decode(), and honours the shapes and exactness that matmul relies on."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import BLOCK_FORMATS, GGML_FORMATS, name_of, random_bytes, special_scale_bytes

from samebits.core.errors import BadInput
from samebits.formats import NVFP4, Packed

RANGES = {
    "q4_0": (-8, 7),
    "q4_1": (0, 15),
    "q5_0": (-16, 15),
    "q5_1": (0, 31),
    "q8_0": (-128, 127),
    "q4_k": (0, 15),
    "q5_k": (0, 31),
    "q6_k": (-32, 31),
    "nvfp4": (-12, 12),
    "mxfp4": (-12, 12),
    "q2_k": (0, 3),
    "q3_k": (-4, 3),
    "iq4_nl": (-127, 113),
    "iq4_xs": (-127, 113),
}
NUM_SUB_SCALES = {"q4_k": 1, "q5_k": 1, "q6_k": 2, "nvfp4": 2, "q2_k": 2, "q3_k": 2, "iq4_xs": 1}
WITH_OFFSET = {"q4_1", "q5_1", "q4_k", "q5_k", "q2_k"}
WITH_SUB_OFFSET = WITH_OFFSET & NUM_SUB_SCALES.keys()


def exact_values(c) -> np.ndarray:
    """float64 of the formula in Codes: no operation of it rounds."""

    def of_elements(sub):
        sub = np.ones((*c.d.shape, 1)) if sub is None else sub.astype(np.float64)
        return np.repeat(sub, 32 // sub.shape[-1], axis=-1)

    v = c.d.astype(np.float64)[..., None] * of_elements(c.sub) * c.q
    if c.m is not None:
        v = v + c.m.astype(np.float64)[..., None] * of_elements(c.msub)
    return v.reshape(*v.shape[:-2], -1)


def assert_codes_are_values(fmt, data: np.ndarray, scale: np.float32) -> None:
    """decode is the exact value rounded once."""
    with np.errstate(all="ignore"):
        want = exact_values(fmt.codes(data, scale)).astype(np.float32)
    np.testing.assert_array_equal(fmt.decode(data, scale), want)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@pytest.mark.parametrize("seed", range(3))
def test_random_bytes(fmt, seed):
    scale = np.float32(0.37) if fmt is NVFP4 else np.float32(1)
    assert_codes_are_values(fmt, random_bytes(fmt, 20, 12, seed), scale)


@pytest.mark.parametrize("fmt", GGML_FORMATS, ids=name_of)
def test_special_scales(fmt):
    assert_codes_are_values(fmt, special_scale_bytes(fmt, seed=7), np.float32(1))


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_shapes_types_and_ranges(fmt):
    data = random_bytes(fmt, 6, 32, 3).reshape(2, 3, -1)
    c = Packed(fmt, data, np.float32(1)).codes()
    num_blocks = 32 * fmt.block_len // 32
    assert c.q.shape == (2, 3, num_blocks, 32)
    assert c.q.dtype == np.int8
    assert (c.q.min(), c.q.max()) == RANGES[fmt.name]
    assert c.d.shape == (2, 3, num_blocks)
    if fmt.name in NUM_SUB_SCALES:
        assert c.sub.shape == (2, 3, num_blocks, NUM_SUB_SCALES[fmt.name])
    else:
        assert c.sub is None
    assert (c.m is not None) == (fmt.name in WITH_OFFSET)
    assert (c.msub is not None) == (fmt.name in WITH_SUB_OFFSET)
    assert all(a is None or a.dtype == np.float32 for a in (c.d, c.sub, c.m, c.msub))
    assert c.m is None or c.m.shape == c.d.shape
    assert c.msub is None or c.msub.shape == c.sub.shape


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_sub_scales_times_integer_sums_are_exact(fmt):
    """The largest integer sum, with activations of 127, times the largest sub-scale stays below 2^24."""
    largest_sub = {"q4_k": 63, "q5_k": 63, "q6_k": 128, "q2_k": 15, "q3_k": 32, "iq4_xs": 32}.get(fmt.name, 1)
    largest_q = max(-RANGES[fmt.name][0], RANGES[fmt.name][1])
    assert largest_q * 127 * 32 * largest_sub < 2**24


def test_nvfp4_sub_scales_have_four_bits():
    data = np.zeros((256, 18), np.uint8)
    data[:, 0] = data[:, 9] = np.arange(256)
    sub = NVFP4.codes(data, np.float32(1)).sub
    finite = sub[np.isfinite(sub)]
    largest_sum = np.float32(16 * 12 * 127)
    assert (finite.astype(np.float64) * largest_sum == (finite * largest_sum).astype(np.float64)).all()


def test_nvfp4_needs_an_even_number_of_blocks():
    data = np.zeros((2, 27), np.uint8)
    assert NVFP4.decode(data, np.float32(1)).shape == (2, 48)
    with pytest.raises(BadInput, match=r"^nvfp4.codes: row length is 48, but must be a multiple of 32$"):
        NVFP4.codes(data, np.float32(1))


def test_nvfp4_codes_carry_half_the_tensor_scale():
    data = bytes([0x38, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x40, 0xF7, 0, 0, 0, 0, 0, 0, 0])
    c = NVFP4.codes(np.frombuffer(data, np.uint8), np.float32(3))
    assert c.d.tolist() == [1.5]
    assert c.sub.tolist() == [[1.0, 2.0]]
    assert c.q[0, [0, 1, 16, 17]].tolist() == [0, 1, 12, -12]
