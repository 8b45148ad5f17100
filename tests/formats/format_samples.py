"""Inputs and comparisons that the format tests share."""

from __future__ import annotations

import numpy as np

from samebits.formats import IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0

GGML_FORMATS = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, IQ4_XS]
BLOCK_FORMATS = [*GGML_FORMATS, NVFP4, MXFP4]

# Where each format keeps its float16 fields.
F16_FIELDS = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "iq4_nl": (0,),
    "iq4_xs": (0,),
}

# +-0, +-least and largest denormal, least normal, 1, -1.5, +-65504, +-Inf, quiet and signaling NaN
SPECIAL_F16 = np.array(
    [
        *(0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBE00, 0x7BFF, 0xFBFF),
        *(0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFD55),
    ],
    dtype="<u2",
)


def name_of(fmt: object) -> str:
    return fmt.name  # type: ignore[attr-defined]


def random_bytes(fmt, num_rows: int, num_blocks: int, seed: int) -> np.ndarray:
    """Rows of random blocks: every field, float16 scales included, takes any bit pattern."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (num_rows, num_blocks * fmt.block_bytes), dtype=np.uint8)


def special_scale_bytes(fmt, seed: int) -> np.ndarray:
    """A row per pair of special float16 patterns, put into every float16 field of three random blocks."""
    pairs = np.stack(np.meshgrid(SPECIAL_F16, SPECIAL_F16), axis=-1).reshape(-1, 2)
    blocks = random_bytes(fmt, len(pairs), 3, seed).reshape(len(pairs), 3, fmt.block_bytes)
    for field, at in enumerate(F16_FIELDS[fmt.name]):
        blocks[:, :, at : at + 2] = pairs[:, field].copy().view(np.uint8).reshape(-1, 1, 2)
    return blocks.reshape(len(pairs), -1)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal float32 bits; any NaN equals any NaN."""
    assert got.dtype == want.dtype == np.float32
    assert got.shape == want.shape
    both_nan = np.isnan(got) & np.isnan(want)
    differ = (got.view(np.uint32) != want.view(np.uint32)) & ~both_nan
    assert not differ.any(), f"{differ.sum()} values differ, first {got[differ][0]} != {want[differ][0]}"
