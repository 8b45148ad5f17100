"""What every block format promises whatever its layout: sizes, shapes, views, errors."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import BLOCK_FORMATS, assert_same_bits, name_of, random_bytes

from samebits.core.errors import BadInput
from samebits.formats import FORMATS, NVFP4, Packed, format_of

SIZES = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "nvfp4": (16, 9),
    "mxfp4": (32, 17),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
}
SCALE = np.float32(1)


@pytest.mark.parametrize("name", SIZES)
def test_block_sizes(name):
    fmt = FORMATS[name]
    assert fmt.is_block
    assert (fmt.block_len, fmt.block_bytes) == SIZES[name]
    assert fmt.row_bytes(512) == 512 // SIZES[name][0] * SIZES[name][1]


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_format_of_a_packed_tensor(fmt):
    assert format_of(fmt.pack(np.zeros((1, 256), np.float32))) is fmt


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@pytest.mark.parametrize("shape", [(0,), (0, 512), (5, 0), (2, 0, 256), (0, 0)])
def test_empty_tensors(fmt, shape):
    packed = fmt.pack(np.zeros(shape, np.float32))
    assert packed.data.dtype == np.uint8
    assert packed.shape == packed.unpack().shape == shape
    assert packed.codes().q.shape == (*shape[:-1], shape[-1] // 32, 32)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@pytest.mark.parametrize("shape", [(256,), (3, 512), (2, 3, 256)])
def test_shapes_of_any_rank(fmt, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    packed = fmt.pack(x)
    assert packed.data.shape == (*shape[:-1], fmt.row_bytes(shape[-1]))
    assert packed.shape == packed.unpack().shape == shape
    assert packed.unpack().dtype == np.float32
    assert isinstance(packed.scale, np.float32)
    assert packed.scale == 1 or fmt is NVFP4


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_strided_views_decode_as_their_copies(fmt):
    data = random_bytes(fmt, 8, 6, 1)
    every_byte_twice = np.repeat(data, 2, axis=-1)
    blocks = slice(2 * fmt.block_bytes, 4 * fmt.block_bytes)
    for view in (data[::2], data[::-1], data[:, blocks], data.T.copy().T, every_byte_twice[:, ::2]):
        assert_same_bits(fmt.decode(view, SCALE), fmt.decode(view.copy(), SCALE))
        np.testing.assert_array_equal(fmt.codes(view, SCALE).q, fmt.codes(view.copy(), SCALE).q)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_inputs_are_only_read(fmt):
    x = np.random.default_rng(2).standard_normal((3, 512)).astype(np.float32)
    x.flags.writeable = False
    data, scale = fmt.encode(x)
    data.flags.writeable = False
    fmt.codes(data, scale)
    out = fmt.decode(data, scale)
    out[...] = 0  # freshly allocated
    assert not np.shares_memory(out, data)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_rows_encode_alone_as_together(fmt):
    """No row's bytes depend on another's, except through NVFP4's tensor scale, kept equal here."""
    x = np.random.default_rng(3).standard_normal((7, 512)).astype(np.float32)
    x[:, 5] = 9
    together, _ = fmt.encode(x)
    for row, data in zip(x, together, strict=True):
        np.testing.assert_array_equal(fmt.encode(row)[0], data)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_a_ragged_row_is_refused(fmt):
    x = np.zeros((2, fmt.block_len + 1), np.float32)
    for call in (fmt.pack, fmt.encode):
        with pytest.raises(BadInput, match=rf"^{fmt.name}: row length is {fmt.block_len + 1}, but must be .*$"):
            call(x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(fmt, bad):
    x = np.ones((2, 512), np.float32)
    x[1, 300] = bad
    for call in (fmt.pack, fmt.encode):
        with pytest.raises(BadInput, match=r"^[^\n]*: x has [^\n]*, but must have [^\n]*$"):
            call(x)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_values_beyond_the_scale_are_refused(fmt):
    """A float16 scale of Inf would decode as NaN."""
    x = np.zeros((1, 256), np.float32)
    x[0, 0], x[0, 1] = 3e38, -3e38
    with pytest.raises(BadInput, match=r"^[^\n]*: x has [^\n]*, but must have [^\n]*$"):
        fmt.pack(x)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_a_wrong_byte_count_is_refused(fmt):
    data = np.zeros((2, fmt.block_bytes + 1), np.uint8)
    for call in (lambda d: Packed(fmt, d), lambda d: fmt.decode(d, SCALE), lambda d: fmt.codes(d, SCALE)):
        with pytest.raises(BadInput, match=rf"^[^\n]*rows of {fmt.block_bytes + 1} bytes, but must have [^\n]*$"):
            call(data)
