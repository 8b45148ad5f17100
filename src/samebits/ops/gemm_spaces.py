"""Spaces of the matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samebits.core.format import BLOCK
from samebits.core.numerics.counter import Stream
from samebits.ops.record import BLOCK_WEIGHTS, FLOATS
from samebits.ops.space import Row, Space, choice, setting, size
from samebits.ops.spaces import (
    ABSENT,
    MAKING,
    MOST_ROWS,
    WEIGHT_KINDS,
    at_least_one,
    block_multiple,
    formats_of,
    number,
    weight_factors,
)

ACTIVATIONS = (
    *("normal", "mixed", "halfway", "tiny", "large", "zeros", "zero-stretches", "spikes", "code-ties", "wide"),
    *("bounds", "faint", "beyond"),
)
TOKENS = size("T", 5000, least=0, usual=3, far=MOST_ROWS)
OUTPUTS = size("N", 262_144, usual=40)
INNER = size("K", 4096, least=0, step=BLOCK, usual=512)  # 131,072 elements: more than 16 bits count
RAGGED = choice("tail", "0", "1", "8", "16", "17", "31")  # columns beyond whole blocks
MORE_THAN_A_GRID = "T=65537,N=1,K=32"  # 65,535 is the limit of a grid's second and third axes
DENSE_CORNERS = tuple(f"K={k},tail=16,weight={f},weights=normal" for k in (32, 64, 96) for f in ("f16", "bf16"))
# Kernels differ by the number of tokens and the format, and each has an epilogue of its own.
BIASED_CORNERS = tuple(f"T={t},N=24,K=512,weight={f},bias=f32" for t in (6, 20) for f in BLOCK_WEIGHTS)
SEVERAL_TILES = "T=80,K=2048"  # of tokens and of columns
GATED_CORNERS = (
    f"{SEVERAL_TILES},H=32,weight=q8_0",
    "T=65537,H=32,K=32,weight=q8_0",
)
BIAS = setting("bias", ABSENT, *FLOATS)
VALUES = choice("values", *ACTIVATIONS)


def _product_cost(tokens: str, outputs: str, inner: str) -> Callable[[Row], int]:
    """A product's operations, and of making its inputs: the weight is there without a token too."""

    def cost(row: Row) -> int:
        t, n, k = (at_least_one(row, name) for name in (tokens, outputs, inner))
        return t * n * k + 4 * n * k + MAKING * k * (t + min(n, 257)) + t * n

    return cost


def contents_of(row: Row) -> dict[str, Any]:
    """What activations and weights hold."""
    return {"values": row["values"], "weights": row["weights"]}


def _gemm_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("x", "weight", "bias"))
    dims = {"T": number(row, "T"), "N": number(row, "N"), "K": number(row, "K") + int(row["tail"])}
    return {"dims": dims, "formats": formats, "given": given, "extra": contents_of(row)}


def has_operands(row: Row) -> bool:
    """Whether activations are within the range of the weight's format, to which they are rounded."""
    return row.get("values") != "beyond" or row.get("weight") != "f16"


def product_fits(row: Row) -> bool:
    """Whole blocks, and activations that the product takes."""
    return has_operands(row) and block_multiple(row)


# A product of gate and up is quantized again, so that it must stay below 2^80.
GATED_KINDS = tuple(kind for kind in WEIGHT_KINDS if kind != "beyond")


def gated_fits(row: Row) -> bool:
    """Whole blocks, and ordinary weights beside large activations."""
    return (row.get("values") != "beyond" or row.get("weights", "normal") == "normal") and block_multiple(row)


def dense_tail(row: Row) -> bool:
    """Only dense weights have a tail; block formats need whole blocks, some of 256."""
    if not has_operands(row) or (row.get("values") == "tiny" and row.get("bias", "f32") not in ("f32", "bf16")):
        return False  # a tiny bias shows beside tiny products alone
    if row.get("tail", "0") != "0" and row.get("weight", "f32") not in FLOATS:
        return False
    return block_multiple(row)


GEMM_SPACE = Space(
    (TOKENS, OUTPUTS, INNER, RAGGED, setting("x", *FLOATS), *weight_factors(), BIAS, VALUES),
    _gemm_case,
    _product_cost("T", "N", "K"),
    dense_tail,
    (("weight", "weights"),),
    (*DENSE_CORNERS, MORE_THAN_A_GRID, *BIASED_CORNERS, f"{SEVERAL_TILES},N=24"),
)


def _q8_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("weight", "bias"))
    dims = {"T": number(row, "T"), "N": number(row, "N"), "NB": number(row, "K") // BLOCK}
    return {"dims": dims, "formats": formats, "given": given, "extra": contents_of(row)}


GEMM_Q8_SPACE = Space(
    (TOKENS, OUTPUTS, INNER, *weight_factors(BLOCK_WEIGHTS), BIAS, VALUES),
    _q8_case,
    _product_cost("T", "N", "K"),
    block_multiple,
    (("weight", "weights"),),
    (
        *(f"{MORE_THAN_A_GRID},weight=q8_0", "T=3,N=40,K=96,weight=q4_0,weights=normal,bias=f32,values=beyond"),
        *(*BIASED_CORNERS, f"{SEVERAL_TILES},N=24,weight=q8_0"),
    ),
)


def _silu_case(row: Row) -> dict[str, Any]:
    dims = {"T": number(row, "T"), "HB": number(row, "H") // BLOCK, "NB": number(row, "K") // BLOCK}
    return {"dims": dims, "formats": {"weight": str(row["weight"])}, "extra": contents_of(row)}


GEMM_SILU_SPACE = Space(
    (TOKENS, size("H", 896, step=BLOCK, corners=1792), INNER, *weight_factors(BLOCK_WEIGHTS, GATED_KINDS), VALUES),
    _silu_case,
    lambda row: 2 * _product_cost("T", "H", "K")(row),
    gated_fits,
    (("weight", "weights"),),
    (*GATED_CORNERS, "T=2,H=57344,K=32,weight=q8_0"),
)


def segment_lengths(kind: str, num_segments: int, num_rows: int, stream: Stream) -> tuple[int, ...]:
    """Rows of every segment: even, scattered (many empty), or all in one."""
    if kind == "even":
        return tuple((num_rows * (s + 1)) // num_segments - (num_rows * s) // num_segments for s in range(num_segments))
    if kind == "one":
        chosen = int(stream.integers(0, num_segments, (1,))[0])
        return tuple(num_rows if s == chosen else 0 for s in range(num_segments))
    owners = stream.integers(0, num_segments, (num_rows,)).tolist()
    return tuple(owners.count(s) for s in range(num_segments))


def _grouped_case(row: Row) -> dict[str, Any]:
    num_experts, num_rows = number(row, "E"), number(row, "T")
    has_indices = row["indices"] == "given"
    num_segments = number(row, "S") if has_indices else num_experts
    stream = Stream(f"segments/{num_segments}/{num_rows}")
    lengths = segment_lengths(str(row["segments"]), num_segments, num_rows, stream)
    dims = {"T": num_rows, "E": num_experts, "N": number(row, "N"), "K": number(row, "K"), "S": num_segments}
    formats, given = formats_of(row, ("x", "weight"))
    given += ("weight_indices",) if has_indices else ()
    return {"dims": dims, "formats": formats, "given": given, "extra": {"lengths": lengths, **contents_of(row)}}


GROUPED_SPACE = Space(
    (
        TOKENS,
        size("E", 300, usual=3),
        size("S", 300, usual=3),
        size("N", 20_000, usual=16),
        size("K", 512, least=0, step=BLOCK, usual=256),
        choice("segments", "scattered", "even", "one"),
        setting("indices", "given", ABSENT),
        setting("x", *FLOATS),
        *weight_factors(),
        VALUES,
    ),
    _grouped_case,
    lambda row: _product_cost("E", "N", "K")(row) + _product_cost("T", "N", "K")(row) + 50_000 * number(row, "S"),
    product_fits,
    (("weight", "weights"),),
    (f"{MORE_THAN_A_GRID},E=1,S=1", f"{MORE_THAN_A_GRID},E=2,S=2,weight=q8_0"),
)


def _head_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("x", "weight"))
    dims = {"T": number(row, "T"), "H": number(row, "H"), "N": number(row, "N"), "K": number(row, "K")}
    return {
        "dims": {**dims, "K": dims["K"] + int(row["tail"])},
        "formats": formats,
        "given": given,
        "extra": contents_of(row),
    }


def _head_cost(row: Row) -> int:
    return (_product_cost("T", "N", "K")(row) + 50_000) * number(row, "H")


HEAD_SPACE = Space(
    (
        TOKENS,
        size("H", 130, usual=3),
        size("N", 2000, usual=16),
        size("K", 64, least=0, step=BLOCK, usual=128),
        RAGGED,
        setting("x", *FLOATS),
        *weight_factors(),
        VALUES,
    ),
    _head_case,
    _head_cost,
    dense_tail,
    (("weight", "weights"),),
    (*DENSE_CORNERS, f"{MORE_THAN_A_GRID},H=1"),
)
