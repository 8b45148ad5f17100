"""How far decode(encode(x)) may lie from x. The bounds follow from the encoding rules, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import BLOCK_FORMATS, name_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samebits.core.numerics.settling import settle

F16_RELATIVE = 2.0**-11  # of rounding to float16, for a normal value
F16_ABSOLUTE = 2.0**-25  # for a denormal one
F32_SLOP = 2.0**-20  # of a few float32 operations, relative to the block's largest magnitude


def f16_error(v):
    return np.abs(v) * F16_RELATIVE + F16_ABSOLUTE


def blocks(x, length):
    return x.astype(np.float64).reshape(-1, length)


def signed_bound(x, half):
    """Half a step, a whole one where the far side saturates, and d's rounding times the code."""
    b = blocks(x, 32)
    step = np.abs(b).max(-1, keepdims=True) / half
    near_the_end = np.abs(b) > step * (half - 0.5)
    return np.where(near_the_end, step, step / 2) + half * f16_error(step)


def offset_bound(x, top):
    b = blocks(x, 32)
    low = b.min(-1, keepdims=True)
    step = (b.max(-1, keepdims=True) - low) / top
    return step / 2 + top * f16_error(step) + f16_error(low)


def eight_bit_bound(x):
    b = blocks(x, 32)
    step = np.abs(b).max(-1, keepdims=True) / 127
    return step / 2 + 127 * f16_error(step)


def superblock_bound(x, top, num_sub_blocks=8, top_scale=63):
    """Half a step; at the ends also what the integer scale (half of d) and min (half of dmin) miss."""
    b = blocks(x, 256).reshape(-1, num_sub_blocks, 256 // num_sub_blocks)
    offset = np.maximum(-b.min(-1), 0)
    step = (b.max(-1) + offset) / top

    def missed(largest):
        return largest / top_scale / 2 + (top_scale + 1) * f16_error(largest / top_scale)

    missed_step, missed_min = missed(step.max(-1, keepdims=True)), missed(offset.max(-1, keepdims=True))
    return ((step + missed_step) / 2 + top * missed_step + missed_min)[..., None]


def signed_scale_bound(x, half, half_scale):
    """A whole step at the saturated end, and `half` times what the integer scale misses: at most one d."""
    b = blocks(x, 256).reshape(-1, 16, 16)
    step = np.abs(b).max(-1) / half
    d = step.max(-1, keepdims=True) / half_scale
    missed_step = d + (half_scale + 1) * f16_error(d)
    return (step + (half + 1) * missed_step)[..., None]


def levels_bound(x):
    """14 steps, from the last level to its opposite; half the widest gap is 12."""
    step = np.abs(blocks(x, 32)).max(-1, keepdims=True) / 127
    return 14 * step + 128 * f16_error(step)


def scaled_levels_bound(x):
    """The same, and what the 6-bit scale misses: at most one d."""
    step = np.abs(blocks(x, 256).reshape(-1, 8, 32)).max(-1) / 127
    d = step.max(-1, keepdims=True) / 32
    missed_step = d + 33 * f16_error(d)
    return (14 * step + 141 * missed_step)[..., None]


def nvfp4_bound(x):
    """Half the widest E2M1 gap (1) in units of the block scale, or what a scale rounded down saturates."""
    b = blocks(x, 16)
    unit = np.abs(b).max() / 2688
    s = np.abs(b).max(-1, keepdims=True) / 6
    missed_s = np.maximum(s / 16, unit * 2.0**-10)
    return np.maximum(s + missed_s, 6 * missed_s)


def mxfp4_bound(x):
    """Half the widest E2M1 gap (1) in units of the scale, beyond 6 what saturates; all of a block stored as zeros.

    The scale is 2^-49 or more, and a quarter of the power of two that the largest magnitude reaches.
    """
    b = blocks(x, 32)
    largest = np.abs(b).max(-1, keepdims=True)
    scale = 2.0 ** (np.frexp(largest)[1] - 3)
    return np.where(scale < 2.0**-49, largest, np.maximum(scale, np.abs(b) - 6 * scale))


BOUNDS = {
    "q4_0": lambda x: signed_bound(x, 8),
    "q4_1": lambda x: offset_bound(x, 15),
    "q5_0": lambda x: signed_bound(x, 16),
    "q5_1": lambda x: offset_bound(x, 31),
    "q8_0": eight_bit_bound,
    "q4_k": lambda x: superblock_bound(x, 15),
    "q5_k": lambda x: superblock_bound(x, 31),
    "q6_k": lambda x: signed_scale_bound(x, 32, 128),
    "nvfp4": nvfp4_bound,
    "mxfp4": mxfp4_bound,
    "q2_k": lambda x: superblock_bound(x, 3, 16, 15),
    "q3_k": lambda x: signed_scale_bound(x, 4, 32),
    "iq4_nl": levels_bound,
    "iq4_xs": scaled_levels_bound,
}


def assert_within_bound(fmt, x):
    error = np.abs(fmt.pack(x).unpack().astype(np.float64) - x)
    bound = BOUNDS[fmt.name](x)
    slop = F32_SLOP * np.abs(x).max()
    excess = error.reshape(*bound.shape[:-1], -1) - bound
    assert (excess <= slop).all(), f"error beyond its bound by {excess.max()}"


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@pytest.mark.parametrize("magnitude", [1e-7, 1e-5, 1e-2, 1.0, 1e4])
def test_normal_values(fmt, magnitude):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((32, 512)) * magnitude * 10.0 ** rng.uniform(-3, 0, (32, 16)).repeat(32, axis=1)
    assert_within_bound(fmt, x.astype(np.float32))


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
@settings(max_examples=25, deadline=None)
@given(
    x=hnp.arrays(np.float32, (2, 256), elements=st.floats(-1e4, 1e4, width=32)),
    exponent=st.integers(-20, 0),
    shift=st.sampled_from([0, 0, 2e4, -2e4]),
)
def test_any_values(fmt, x, exponent, shift):
    """Settled ones, as all that is packed: nvfp4's scale of a tensor near 2^-126 would be a subnormal."""
    assert_within_bound(fmt, settle(((x + np.float32(shift)) * np.float32(2.0**exponent)).astype(np.float32)))


# Root mean square error of unit normal values, a little above what is measured.
TYPICAL_ERROR = {
    "q4_0": 0.090,
    "q4_1": 0.080,
    "q5_0": 0.045,
    "q5_1": 0.039,
    "q8_0": 0.0057,
    "q4_k": 0.080,
    "q5_k": 0.039,
    "q6_k": 0.020,
    "nvfp4": 0.097,
    "mxfp4": 0.125,
    "q2_k": 0.34,
    "q3_k": 0.16,
    "iq4_nl": 0.082,
    "iq4_xs": 0.082,
}


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=name_of)
def test_typical_error(fmt):
    x = np.random.default_rng(6).standard_normal((64, 1024)).astype(np.float32)
    error = fmt.pack(x).unpack() - x
    assert np.sqrt(np.mean(error.astype(np.float64) ** 2)) < TYPICAL_ERROR[fmt.name]
