"""Blocks written out by hand: bytes to values, and values to bytes where ties and saturation decide."""

from __future__ import annotations

import numpy as np
import pytest
from format_samples import assert_same_bits

from samebits.formats import FORMATS

TINY = 2.0**-24  # float16 0x0001
# d = 1, dmin = 0.5, scales 1 2 0 63 17 0 63 32, mins 0 3 1 63 33 63 0 16
K_HEADER = "003c 0038 4102c0bf 80c3017f 11f00f00"
K_NIBBLES = "f0" + "21" * 31 + "f3" * 32 + "54" * 32 + "1f" * 32

DECODE = {
    "q4_0": ("q4_0", "0038 80f1" + "88" * 14, [-4.0, -3.5] + [0.0] * 15 + [3.5] + [0.0] * 14),
    "q4_0 denormal scale": ("q4_0", "0100" + "f0" * 16, [-8 * TINY] * 16 + [7 * TINY] * 16),
    "q4_0 negative zero scale": ("q4_0", "0080" + "90" * 16, [0.0] * 16 + [-0.0] * 16),
    "q4_1": ("q4_1", "0034 00bc 50f4" + "00" * 14, [-1.0, 0.0] + [-1.0] * 14 + [0.25, 2.75] + [-1.0] * 14),
    "q4_1 denormals": ("q4_1", "0100 0180" + "21" * 16, [0.0] * 16 + [TINY] * 16),
    "q5_0": (
        "q5_0",
        "00c0 fffffeff 0f10" + "00" * 14,
        [-30.0] + [-0.0] * 15 + [32.0, -2.0] + [-0.0] * 14,
    ),
    "q5_0 denormal scale": ("q5_0", "ff03 00000000" + "00" * 16, [-16 * 1023 * TINY] * 32),
    "q5_1": (
        "q5_1",
        "0038 003c 01000080 2f" + "00" * 14 + "10",
        [16.5] + [1.0] * 15 + [2.0] + [1.0] * 14 + [9.5],
    ),
    "q8_0": ("q8_0", "0038 80ff00017f" + "00" * 27, [-64.0, -0.5, 0.0, 0.5, 63.5] + [0.0] * 27),
    "q8_0 denormal scale": ("q8_0", "0180 01ff" + "00" * 30, [-TINY, TINY] + [-0.0] * 30),
    "q8_0 largest scale": ("q8_0", "ff7b 80" + "00" * 31, [-8384512.0] + [0.0] * 31),
    "q4_k": (
        "q4_k",
        K_HEADER + K_NIBBLES,
        [0.0] + [1.0] * 31 + [28.5] + [2.5] * 31 + [-0.5] * 32 + [913.5] * 32
        + [51.5] * 32 + [-31.5] * 32 + [945.0] * 32 + [24.0] * 32,
    ),
    "q5_k": (
        "q5_k",
        K_HEADER + "ff" + "01" * 31 + K_NIBBLES,
        [16.0] + [17.0] * 31 + [60.5] + [2.5] * 31 + [-0.5] * 32 + [1921.5] + [913.5] * 31
        + [323.5] + [51.5] * 31 + [-31.5] * 32 + [1953.0] + [945.0] * 31 + [536.0] + [24.0] * 31,
    ),
    "q6_k": (
        "q6_k",
        "5f" + "00" * 63 + "01" + "00" * 63 + "93" + "aa" * 63 + "01018001020101017f01010101010101" + "0038",
        [15.5] + [0.0] * 31 + [2048.0] + [-0.0] * 15 + [0.0] * 16
        + [-11.0] + [0.0] * 63 + [63.5] + [0.0] * 127,
    ),
    "q6_k denormal scale": (
        "q6_k",
        "00" * 128 + "00" * 64 + "01" * 15 + "ff" + "0100",
        [-32 * TINY] * 240 + [32 * TINY] * 16,
    ),
    "nvfp4 every code": (
        "nvfp4",
        "38 1032547698badcfe",
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
    ),
    "nvfp4 denormal scale": ("nvfp4", "01 72" + "00" * 7, [2.0**-9, 6 * 2.0**-9] + [0.0] * 14),
    "nvfp4 largest scale": ("nvfp4", "7e f7" + "00" * 7, [2688.0, -2688.0] + [0.0] * 14),
    "mxfp4 every code": (
        "mxfp4",
        "80 8091a2b3c4d5e6f7 0000000000000000",
        [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0] + [0.0] * 8
        + [0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0] + [0.0] * 8,
    ),
    "mxfp4 smallest scale": ("mxfp4", "4e 1f" + "00" * 15, [-12 * 2.0**-50] + [0.0] * 15 + [2.0**-50] + [0.0] * 15),
    "mxfp4 below the smallest scale": ("mxfp4", "4d 77" + "00" * 15, [0.0] * 32),
    "mxfp4 scale of no bits": ("mxfp4", "00 77" + "00" * 15, [0.0] * 32),
    "mxfp4 largest scale": ("mxfp4", "a7 70" + "00" * 15, [0.0] * 16 + [6 * 2.0**40] + [0.0] * 15),
    "mxfp4 NaN": ("mxfp4", "ff" + "11" * 16, [np.nan] * 32),
    "q2_k": (
        "q2_k",
        "210f01100210011010101010101010f3" + "e4" + "03" * 31 + "00" * 31 + "80" + "003c 0038",
        [-1.0] + [2.0] * 15 + [45.0] * 16 + [1.0] + [0.0] * 15 + [-0.5] * 16 + [4.0] + [0.0] * 15 + [-0.5] * 16
        + [3.0] + [0.0] * 15 + [-0.5] * 128 + [-7.5] * 15 + [-1.5],
    ),
    "q2_k denormal scales": ("q2_k", "11" * 16 + "ff" * 64 + "0100 0180", [4 * TINY] * 256),
    "q3_k": (
        "q3_k",
        "81" + "00" * 31 + "e4" + "00" * 31 + "c0" + "00" * 31 + "010000000000f000 aaaaa8aa 0038",
        [0.0] + [-2.0] * 15 + [-0.0] * 16 + [48.0] + [64.0] * 15 + [-0.0] * 176 + [22.5] + [-30.0] * 15 + [-0.0] * 16,
    ),
    "q3_k denormal scale": (
        "q3_k",
        "00" * 96 + "1" * 16 + "55aaffaa" + "0100",
        ([60 * TINY] * 16 + [-4 * TINY] * 16 + [-68 * TINY] * 16 + [-4 * TINY] * 16) * 4,
    ),
    "iq4_nl every level": (
        "iq4_nl",
        "0038 f0e1d2c3b4a59687 8888888888888888",
        [-63.5, -52.0, -41.5, -32.5, -24.5, -17.5, -11.0, -5.0] + [0.5] * 8
        + [56.5, 44.5, 34.5, 26.5, 19.0, 12.5, 6.5, 0.5] + [0.5] * 8,
    ),
    "iq4_nl denormal scale": ("iq4_nl", "0180" + "80" * 16, [127 * TINY] * 16 + [-TINY] * 16),
    "iq4_xs": (
        "iq4_xs",
        "003c a3aa 0f000000" + "f0" * 16 + "08" * 16 + "88" * 96,
        [-3937.0] * 16 + [3503.0] * 16 + [-32.0] * 16 + [4064.0] * 16 + [0.0] * 192,
    ),
}  # fmt: skip

ENCODE = {
    "q4_0 ties take the larger code, the far side saturates": (
        "q4_0",
        [-8.0, 0.5, -0.5, 1.5, -1.5, 8.0, 7.4] + [0.0] * 25,
        "003c 8089888a878f8f" + "88" * 9,
    ),
    "q4_0 zeros": ("q4_0", [0.0] * 32, "0080" + "88" * 16),
    "q4_0 1 / d overflows": ("q4_0", [1e-40] * 32, "0080" + "88" * 16),
    "q4_1 ties take the larger code": (
        "q4_1",
        [0.0, 15.0, 0.5, 1.5, 2.5, 14.5, 3.4] + [0.0] * 25,
        "003c 0000 000f0102030f03" + "00" * 9,
    ),
    "q4_1 either zero is stored as +0": ("q4_1", [0.0, -0.0] * 16, "0000 0000" + "00" * 16),
    "q4_1 constant": ("q4_1", [-3.0] * 32, "0000 00c2" + "00" * 16),
    "q5_0 ties take the larger code, the far side saturates": (
        "q5_0",
        [-16.0, 0.5, -0.5, 16.0] + [0.0] * 28,
        "003c feffffff 0001000f" + "00" * 12,
    ),
    "q5_1 ties take the larger code": (
        "q5_1",
        [-1.0, 30.0, -0.5, 0.5, 29.5] + [-1.0] * 27,
        "003c 00bc 12000000 000f01020f" + "00" * 11,
    ),
    "q8_0 ties go away from zero": (
        "q8_0",
        [127.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -127.0] + [0.0] * 23,
        "003c 7f01ff02fe03fd0081" + "00" * 23,
    ),
    "q8_0 zeros": ("q8_0", [0.0] * 32, "00" * 34),
    "q8_0 denormal scale": ("q8_0", [127 * TINY, -TINY] + [0.0] * 30, "0100 7fff" + "00" * 30),
    "q8_0 1 / d overflows": ("q8_0", [1e-40] * 32, "00" * 34),
    "q4_k ties to even": (
        "q4_k",
        ([945.0, 31.5, 94.5, 157.5] + [0.0] * 28) * 8,
        "003c 0000 ffffffff 00000000 0f0f0f0f" + ("ff002222" + "00" * 28) * 4,
    ),
    "q4_k negative constant": (
        "q4_k",
        [-63.0] * 256,
        "0000 003c 00000000 ffffffff f0f0f0f0" + "00" * 128,
    ),
    "q4_k zeros": ("q4_k", [0.0] * 256, "00" * 144),
    "q5_k ties to even": (
        "q5_k",
        ([1953.0, 31.5, 94.5, 1071.0] + [0.0] * 28) * 8,
        "003c 0000 ffffffff 00000000 0f0f0f0f ff0000ff" + "00" * 28 + ("ff002211" + "00" * 28) * 4,
    ),
    "q6_k ties to even, the far side saturates": (
        "q6_k",
        [4096.0, 64.0, 192.0, -4096.0] + [0.0] * 252,
        "00000e0f" + "00" * 124 + "a8aaa9ab" + "aa" * 60 + "80" + "00" * 15 + "003c",
    ),
    "q6_k zeros": ("q6_k", [0.0] * 256, "00" * 128 + "aa" * 64 + "00" * 18),
    "mxfp4 ties take the smaller magnitude, beyond 6 saturates": (
        "mxfp4",
        [4.0, 0.25, -0.25, 0.75, -1.25, 1.75, 2.5, -3.5, 5.0, 6.5, -7.9] + [0.0] * 5 + [0.26, -0.26] + [0.0] * 14,
        "7f 169000010a03040d06070f" + "00" * 5,
    ),
    "mxfp4 zeros": ("mxfp4", [0.0, -0.0] * 16, "00" * 17),
    "mxfp4 smallest scale": ("mxfp4", [2.0**-47, -(2.0**-50)] + [0.0] * 30, "4e 0609" + "00" * 14),
    "mxfp4 below the smallest scale": ("mxfp4", [2.0**-47 - 2.0**-70] + [0.0] * 31, "00" * 17),
    "mxfp4 largest scale": ("mxfp4", [-(2.0**43 - 2.0**20)] + [0.0] * 31, "a7 0f" + "00" * 15),
    "q2_k ties to even": (
        "q2_k",
        ([45.0, 7.5, 22.5, 37.5] + [0.0] * 12) * 16,
        "0f" * 16 + ("ff00aaaa" + "00" * 12) * 4 + "003c 0000",
    ),
    "q2_k negative constant": ("q2_k", [-15.0] * 256, "f0" * 16 + "00" * 64 + "0000 003c"),
    "q3_k ties to even, the far side saturates": (
        "q3_k",
        [128.0, 16.0, 48.0, -128.0] + [0.0] * 252,
        "fefffe" + "ff" * 29 + "00000203" + "00" * 60 + "00" * 8 + "a8aaaaaa 003c",
    ),
    "iq4_nl ties take the lower level, the far side saturates": (
        "iq4_nl",
        [-127.0, 1.0, 7.0, 101.0, 127.0] + [0.0] * 27,
        "003c 8088888e8f" + "88" * 11,
    ),
    "iq4_nl zeros": ("iq4_nl", [0.0] * 32, "0080" + "88" * 16),
    "iq4_xs ties take the lower level, the far side saturates": (
        "iq4_xs",
        [4064.0, -3232.0, -224.0, -4064.0] + [0.0] * 252,
        "003c a8aa 00000000 808e888f" + "88" * 124,
    ),
}


def block_of(hex_bytes: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(hex_bytes), np.uint8)


@pytest.mark.parametrize("case", DECODE)
def test_bytes_to_values(case):
    name, hex_bytes, want = DECODE[case]
    fmt = FORMATS[name]
    data = block_of(hex_bytes)
    assert (len(data), len(want)) == (fmt.block_bytes, fmt.block_len)
    assert_same_bits(fmt.decode(data, np.float32(1)), np.array(want, np.float32))


@pytest.mark.parametrize("case", ENCODE)
def test_values_to_bytes(case):
    name, values, want = ENCODE[case]
    packed = FORMATS[name].pack(np.array(values, np.float32))
    assert packed.data.tobytes().hex() == block_of(want).tobytes().hex()
    assert packed.scale == 1
