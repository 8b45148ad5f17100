"""Every packing helper is undone by its inverse, over all values of its fields."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.formats import bits


def random_codes(num_bits: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(num_bits).integers(0, 1 << num_bits, shape, dtype=np.uint8)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_fields(width):
    fields = random_codes(width, (5, 3, 8 // width, 32))
    np.testing.assert_array_equal(bits.split_fields(bits.pack_fields(fields, width), width), fields)


def test_fields_are_lowest_first():
    assert bits.split_fields(np.array([0b11100100], np.uint8), 2)[:, 0].tolist() == [0, 1, 2, 3]


def test_nibbles():
    q = random_codes(4, (5, 3, 32))
    np.testing.assert_array_equal(bits.split_nibbles(bits.pack_nibbles(q)), q)


def test_five_bits():
    q = random_codes(5, (5, 3, 32))
    np.testing.assert_array_equal(bits.split_five_bits(bits.pack_five_bits(q)), q)


def test_six_bit_pairs():
    pairs = random_codes(6, (2, 500, 8))
    scales, mins = bits.split_six_bit_pairs(bits.pack_six_bit_pairs(*pairs))
    np.testing.assert_array_equal(scales, pairs[0])
    np.testing.assert_array_equal(mins, pairs[1])


def test_every_f16_pattern_is_read():
    patterns = np.arange(1 << 16, dtype="<u2")
    data = np.zeros((1 << 16, 5), np.uint8)
    data[:, 3:] = patterns.view(np.uint8).reshape(-1, 2)
    with np.errstate(invalid="ignore"):
        want = patterns.view("<f2").astype(np.float32)
    np.testing.assert_array_equal(bits.read_f16(data, 3), want)


def test_f16_bytes_round_to_even():
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, 3 * 2.0**-25], np.float32)
    assert bits.f16_bytes(x).view("<u2")[:, 0].tolist() == [0x3C00, 0x3C02, 0x0000, 0x0002]


def test_merge_and_split_are_inverse():
    a = np.zeros((2, 3, 4, 5))
    assert bits.merge(a, -2).shape == (2, 3, 20)
    assert bits.merge(a, -3).shape == (2, 12, 5)
    assert bits.split_last(bits.merge(a, -2), 4, 5).shape == a.shape
