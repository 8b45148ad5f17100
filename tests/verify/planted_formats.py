"""Bits of a format: defects in how weights are unpacked and in where a value is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from planted import F
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import blocks, call, floats, ints, product

from samebits.core.format import Packed


def format_name(x: Any) -> str:
    return x.format.name if isinstance(x, Packed) else ""


def edited(weight: Packed, edit: Callable[[np.ndarray], None]) -> Packed:
    """The weight after edit(its bytes uint8 [..., blocks, block bytes])."""
    copied = weight.data.reshape(*weight.data.shape[:-1], -1, weight.format.block_bytes).copy()
    edit(copied)
    return Packed(weight.format, copied.reshape(weight.data.shape), weight.scale)


class InFormat(Defect):
    """A weight, or a table, of one format with some bytes misread."""

    fmt: str
    argument = "weight"

    def change(self, a: Arguments) -> Arguments:
        weight = a[self.argument]
        return (
            {self.argument: edited(weight, self.edit)} if format_name(weight) == self.fmt and weight.data.size else {}
        )

    def edit(self, blocks: np.ndarray) -> None:
        raise NotImplementedError


def by_hand(fmt: str, **bytes_at: int) -> Scene:
    """gemm with some bytes of the weight's second row put there by hand: b0=128 sets byte 0 of its first block."""
    weight = floats(2, 256, seed=1, fmt=fmt)
    for place, value in bytes_at.items():
        weight.data[1, int(place[1:])] = value
    return call("gemm", x=floats(2, 256), weight=weight)


def embedded(fmt: str, width: int = 512, size: float = 1.0) -> Scene:
    return call("embedding", table=floats(3, width, fmt=fmt, size=size), ids=ints(0, 2))


def scaled_alike(scale: int) -> Scene:
    """embedding from an mxfp4 table whose blocks all have this byte for their scale."""
    table = floats(3, 64, fmt="mxfp4")
    table.data[:, ::17] = scale
    return call("embedding", table=table, ids=ints(0, 2))


class OddLastBlock(InFormat):
    """Reads q4_0 blocks in pairs and ignores the last of an odd number."""

    ops, fmt = ("gemm", "gemm_q8"), "q4_0"
    witness = shown_by(product, 2, 4, 96, "q4_0")
    twin = shown_by(product, 2, 4, 64, "q4_0")

    def edit(self, blocks: np.ndarray) -> None:
        if blocks.shape[-2] % 2:
            blocks[..., -1, :2] = 0


class MinimumOfFirstChunk(InFormat):
    """Takes a q4_1 block's number modulo 8 when it reads the block's minimum."""

    ops, fmt = ("gemm", "gemm_q8", "gemm_silu_q8"), "q4_1"
    witness = shown_by(product, 2, 4, 288, "q4_1")
    twin = shown_by(product, 2, 4, 256, "q4_1")

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 2:4] = blocks[..., np.arange(blocks.shape[-2]) % 8, 2:4]


class HighBitsOfTailRows(InFormat):
    """Ignores the fifth bit of q5_0 codes in rows after the last whole tile of 16."""

    ops, fmt = ("gemm", "gemm_q8"), "q5_0"
    witness = shown_by(product, 2, 17, 64, "q5_0")
    twin = shown_by(product, 2, 16, 64, "q5_0")

    def edit(self, blocks: np.ndarray) -> None:
        blocks[len(blocks) // 16 * 16 :, :, 2:6] = 0


class NibblesOfTailRows(InFormat):
    """Swaps the nibbles of q5_1 in a single row that remains after tiles of 8."""

    ops, fmt = ("gemm", "gemm_q8"), "q5_1"
    witness = shown_by(product, 2, 9, 64, "q5_1")
    twin = shown_by(product, 2, 10, 64, "q5_1")

    def edit(self, blocks: np.ndarray) -> None:
        if len(blocks) % 8 == 1:
            blocks[-1, :, 8:] = (blocks[-1, :, 8:] >> 4) | (blocks[-1, :, 8:] << 4)


class CodeMinus128(InFormat):
    """Splits q8_0 codes into a sign and 7 bits of magnitude, where -128 becomes -127."""

    ops, fmt = ("gemm", "gemm_q8"), "q8_0"
    witness = shown_by(by_hand, "q8_0", b2=128)
    twin = shown_by(by_hand, "q8_0", b2=129)

    def edit(self, blocks: np.ndarray) -> None:
        codes = blocks[..., 2:]
        codes[codes == 128] = 129


class NegativeScaleLost(InFormat):
    """Uses the magnitude of a q8_0 scale, which other encoders may make negative."""

    ops, fmt = ("gemm", "gemm_q8"), "q8_0"
    witness = shown_by(by_hand, "q8_0", b1=0xA4)
    twin = shown_by(by_hand, "q8_0", b1=0x24)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 1] &= 0x7F


class TinyScalesFlushed(InFormat):
    """Takes subnormal float16 scales for 0."""

    ops, fmt = ("gemm", "gemm_q8", "grouped_gemm"), "q8_0"
    witness = shown_by(by_hand, "q8_0", b0=0x55, b1=0x01)
    twin = shown_by(by_hand, "q8_0", b0=0x55, b1=0x11)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., :2][(blocks[..., 1] & 0x7C) == 0] = 0


class UpperSubScales(InFormat):
    """Ignores the two high bits of sub-scales 4 to 7 of q4_k, which are stored apart."""

    ops, fmt = ("grouped_gemm",), "q4_k"
    witness = shown_by(
        call, "grouped_gemm", x=floats(2, 256), weight=floats(1, 4, 256, fmt="q4_k"), seg_indptr=ints(0, 2)
    )
    twin = shown_by(call, "grouped_gemm", x=floats(2, 256), weight=floats(1, 4, 256, fmt="q5_k"), seg_indptr=ints(0, 2))

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 4:8] &= 0x3F


class SecondSuperBlock(InFormat):
    """Uses the scales of a q5_k row's first super-block for all that follow."""

    ops, fmt, argument = ("embedding",), "q5_k", "table"
    witness = shown_by(embedded, "q5_k", 512)
    twin = shown_by(embedded, "q5_k", 256)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 1:, :4] = blocks[..., :1, :4]


class MinimumOfQ4KIgnoredWhenSmall(InFormat):
    """Ignores the minima of a q4_k super-block whose common factor is subnormal."""

    ops, fmt, argument = ("embedding",), "q4_k", "table"
    witness = shown_by(embedded, "q4_k", 256, 1e-3)
    twin = shown_by(embedded, "q4_k", 256)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 2:4][(blocks[..., 3] & 0x7C) == 0] = 0


class SixBitCodesFromMinus31(InFormat):
    """Saturates q6_k codes at -31 in rows of more than two super-blocks."""

    ops, fmt = ("gemm", "gemm_q8", "gemm_silu_q8"), "q6_k"
    witness = shown_by(product, 1, 2, 768, "q6_k")
    twin = shown_by(product, 1, 2, 512, "q6_k")

    def edit(self, blocks: np.ndarray) -> None:
        if blocks.shape[-2] > 2:
            low, high = blocks[..., :32], blocks[..., 128:160]  # elements 0 to 31 of the first half
            low[((low & 15) == 0) & ((high & 3) == 0)] |= 1


class TensorScaleOfNvfp4(Defect):
    """Ignores the tensor scale of nvfp4 weights that experts share."""

    ops = ("grouped_gemm",)
    witness = shown_by(
        call, "grouped_gemm", x=floats(2, 64), weight=floats(1, 4, 64, fmt="nvfp4"), seg_indptr=ints(0, 2)
    )
    twin = shown_by(call, "grouped_gemm", x=floats(2, 64), weight=floats(1, 4, 64, fmt="q8_0"), seg_indptr=ints(0, 2))

    def change(self, a: Arguments) -> Arguments:
        w = a["weight"]
        return {"weight": Packed(w.format, w.data, F(1))} if format_name(w) == "nvfp4" else {}


class SmallBlockScalesOfNvfp4(InFormat):
    """Takes subnormal e4m3 scales of nvfp4 for 0."""

    ops, fmt = ("gemm", "gemm_q8"), "nvfp4"
    witness = shown_by(by_hand, "nvfp4", b9=5)
    twin = shown_by(by_hand, "nvfp4", b9=8)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 0][(blocks[..., 0] & 0x7F) < 8] = 0


class ScalesOfMxfp4InFloat16(InFormat):
    """Keeps the powers of two of mxfp4 in float16, which has none below 2^-24."""

    ops, fmt, argument = ("embedding",), "mxfp4", "table"
    witness = shown_by(embedded, "mxfp4", 64, 1e-8)
    twin = shown_by(embedded, "mxfp4", 64)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 0][blocks[..., 0] < 127 - 24] = 0


class SmallestScaleOfMxfp4(InFormat):
    """Raises mxfp4 scales below 2^-49 to that, where the definition gives 0."""

    ops, fmt, argument = ("embedding",), "mxfp4", "table"
    witness = shown_by(scaled_alike, 40)
    twin = shown_by(scaled_alike, 78)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 0][blocks[..., 0] < 78] = 78


class MinimumsOfQ2KInPairs(InFormat):
    """Uses the minimum of q2_k's lower halves for the upper ones too."""

    ops, fmt = ("gemm", "gemm_q8"), "q2_k"
    witness = shown_by(product, 1, 2, 256, "q2_k")
    twin = shown_by(product, 1, 2, 256, "q3_k")

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., 1:16:2] = (blocks[..., 1:16:2] & 15) | (blocks[..., 0:16:2] & 240)


class ThirdBitsOfQ3KsLastBlock(InFormat):
    """Takes the third bits of the last of q3_k's eight blocks for zeros."""

    ops, fmt, argument = ("embedding",), "q3_k", "table"
    witness = shown_by(embedded, "q3_k", 256)
    twin = shown_by(embedded, "q2_k", 256)

    def edit(self, blocks: np.ndarray) -> None:
        blocks[..., :32] &= 127


class LastLevelOfIq4(InFormat):
    """Has one entry too few in the table of iq4_nl: 113 becomes 89."""

    ops, fmt = ("gemm", "gemm_q8"), "iq4_nl"
    witness = shown_by(product, 1, 2, 64, "iq4_nl")
    twin = shown_by(product, 1, 2, 64, "q4_0")

    def edit(self, blocks: np.ndarray) -> None:
        codes = blocks[..., 2:]
        codes[(codes & 15) == 15] &= 254


class ScalesOfIq4XsWithoutHighBits(InFormat):
    """Ignores the high bits of iq4_xs scales in rows of more than one super-block."""

    ops, fmt = ("gemm", "gemm_q8"), "iq4_xs"
    witness = shown_by(product, 1, 2, 512, "iq4_xs")
    twin = shown_by(product, 1, 2, 256, "iq4_xs")

    def edit(self, blocks: np.ndarray) -> None:
        if blocks.shape[-2] > 1:
            blocks[..., 2:4] = 0


class QuietBlocksSkipped(Defect):
    """Skips activation blocks with a scale below 2^-20."""

    ops = ("gemm_q8", "gemm_silu_q8")
    witness = shown_by(call, "gemm_q8", **blocks(2, 32, size=1e-6), weight=floats(3, 32, seed=1, fmt="q8_0"))
    twin = shown_by(call, "gemm_q8", **blocks(2, 32), weight=floats(3, 32, seed=1, fmt="q8_0"))

    def change(self, a: Arguments) -> Arguments:
        return {"scales": np.where(np.abs(a["scales"]) < F(2.0**-20), F(0), a["scales"])}
