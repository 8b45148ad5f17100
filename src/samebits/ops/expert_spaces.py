"""Spaces of the ops on experts: tokens, ranks, experts, how they are chosen, and what their products branch on."""

from __future__ import annotations

from typing import Any

from samebits.core.format import BLOCK
from samebits.ops.expert_cases import CHOSEN, expert_dims
from samebits.ops.gemm_spaces import (
    BIAS,
    DENSE_CORNERS,
    GATED_CORNERS,
    GATED_KINDS,
    INNER,
    MORE_THAN_A_GRID,
    RAGGED,
    TOKENS,
    VALUES,
    contents_of,
    dense_tail,
    gated_fits,
)
from samebits.ops.record import BLOCK_WEIGHTS, FLOATS
from samebits.ops.space import Factor, Row, Space, choice, setting, size
from samebits.ops.spaces import (
    ABSENT,
    FINITE,
    MAKING,
    MOST_ROWS,
    at_least_one,
    beyond_fits,
    block_multiple,
    formats_of,
    number,
    weight_factors,
)

RANKS = size("R", 64, usual=2)
EXPERTS = size("E", 512, usual=4)
WAYS = choice("chosen", *CHOSEN)
ROWS = choice("rows", "token", "pair")
EXPERT_OPERATIONS = 50_000  # what an expert costs the reference, however few rows it has


def _enough(row: Row) -> bool:
    """No token chooses an expert twice."""
    return number({"R": 1, **row}, "R") <= number({"E": 1 << 20, **row}, "E")


LAYOUT_SPACE = Space(
    (size("T", MOST_ROWS, least=0, usual=3), RANKS, size("E", 1024, usual=8), WAYS),
    lambda row: {
        "dims": {"T": number(row, "T"), "R": number(row, "R")},
        "attrs": {"num_experts": number(row, "E")},
        "extra": {"chosen": row["chosen"]},
    },
    lambda row: MAKING * (at_least_one(row, "T") * (number(row, "R") + number(row, "E"))),
    _enough,
    (("chosen", "R"),),
)


def _cost(outputs: str) -> Any:
    """Of the products, of making activations and stacked weights, and of the experts one by one."""

    def cost(row: Row) -> int:
        tokens, ranks, experts = at_least_one(row, "T"), number(row, "R"), number(row, "E")
        n, k, pairs = number(row, outputs), at_least_one(row, "K"), tokens * ranks
        making = MAKING * k * (pairs + min(experts * n, 257)) + 4 * experts * n * k + MAKING * tokens * experts
        return pairs * n * k + making + EXPERT_OPERATIONS * min(experts, pairs)

    return cost


def _dims(row: Row) -> dict[str, int]:
    return expert_dims(number(row, "T"), number(row, "R"), number(row, "E"), str(row["rows"]))


def _extra(row: Row) -> dict[str, Any]:
    return {"chosen": row["chosen"], **contents_of(row)}


def _gemm_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("x", "weight", "bias"))
    dims = {**_dims(row), "N": number(row, "N"), "K": number(row, "K") + int(row["tail"])}
    return {"dims": dims, "formats": formats, "given": given, "extra": _extra(row)}


# A bias beside every block format, where an expert has few pairs and where it has several tiles of them.
BIASED_EXPERTS = tuple(f"T={t},R=2,E=2,K=512,weight={f},bias=f32" for t in (3, 40) for f in BLOCK_WEIGHTS)
COMMON: tuple[Factor, ...] = (TOKENS, RANKS, EXPERTS, WAYS, ROWS)
OUTPUTS = size("N", 20_000, usual=40)
CROSSED = (("weight", "weights"), ("weight", "rows"))
EXPERT_GEMM_SPACE = Space(
    (*COMMON, OUTPUTS, INNER, RAGGED, setting("x", *FLOATS), *weight_factors(), BIAS, VALUES),
    _gemm_case,
    _cost("N"),
    lambda row: _enough(row) and dense_tail(row),
    CROSSED,
    (*DENSE_CORNERS, f"{MORE_THAN_A_GRID},R=1,E=2", *(f"{row},N=24" for row in BIASED_EXPERTS)),
)


def _q8_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("weight", "bias"))
    dims = {**_dims(row), "N": number(row, "N"), "NB": number(row, "K") // BLOCK}
    return {"dims": dims, "formats": formats, "given": given, "extra": _extra(row)}


EXPERT_Q8_SPACE = Space(
    (*COMMON, OUTPUTS, INNER, *weight_factors(BLOCK_WEIGHTS), BIAS, VALUES),
    _q8_case,
    _cost("N"),
    lambda row: _enough(row) and block_multiple(row),
    CROSSED,
    (f"{MORE_THAN_A_GRID},R=1,E=2,weight=q8_0", *(f"{row},N=24" for row in BIASED_EXPERTS)),
)

ACTIVATIONS = ("silu", "gelu_tanh", "clamped")


def _is_used(row: Row) -> bool:
    """Only the clamped activation looks at alpha and limit: others would show nothing of them."""
    as_usual = all(row.get(name, values[0]) == values[0] for name, values in LIMITS.items())
    return as_usual or row.get("activation", "clamped") == "clamped"


def _gate_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("weight", "bias"))
    dims = {**_dims(row), "HB": number(row, "H") // BLOCK, "NB": number(row, "K") // BLOCK}
    attrs = {name: float(row[name]) for name in LIMITS}
    return {
        "dims": dims,
        "attrs": {"activation": row["activation"], **attrs},
        "formats": formats,
        "given": given,
        "extra": _extra(row),
    }


LIMITS: dict[str, tuple[str, ...]] = {"alpha": ("1.702", "1.0", "30.0"), "limit": ("7.0", "0.3", "16777216.0")}
EXPERT_GATE_SPACE = Space(
    (
        *COMMON,
        size("H", 896, step=BLOCK),
        INNER,
        setting("activation", *ACTIVATIONS),
        *(setting(name, *values) for name, values in LIMITS.items()),
        *weight_factors(BLOCK_WEIGHTS, GATED_KINDS),
        BIAS,
        VALUES,
    ),
    _gate_case,
    lambda row: int(2 * _cost("H")(row)),
    lambda row: _enough(row) and gated_fits(row) and beyond_fits(row, ("bias",)) and _is_used(row),
    (*CROSSED, ("activation", "bias"), ("activation", "alpha"), ("activation", "limit")),
    (*(f"{row},R=1,E=2" for row in GATED_CORNERS), *(f"{row},H=32" for row in BIASED_EXPERTS)),
)


def _combine_case(row: Row) -> dict[str, Any]:
    formats, given = formats_of(row, ("y", "shared", "shared_gate"))
    dims = {**expert_dims(number(row, "T"), number(row, "R"), 1, "token"), "N": number(row, "N")}
    return {"dims": dims, "formats": formats, "given": given, "extra": {"values": row["values"]}}


COMBINE_SPACE = Space(
    (
        size("T", MOST_ROWS, least=0, usual=3),
        RANKS,
        size("N", 16_384, usual=48),
        setting("y", *FLOATS),
        setting("shared", ABSENT, *FLOATS),
        setting("shared_gate", ABSENT, *FLOATS),
        choice("values", *FINITE, "contrast"),
    ),
    _combine_case,
    lambda row: MAKING * at_least_one(row, "T") * (number(row, "R") + 2) * number(row, "N"),
    lambda row: (
        beyond_fits(row, ("y", "shared")) and (row.get("shared") != ABSENT or row.get("shared_gate", ABSENT) == ABSENT)
    ),
    (("shared", "shared_gate"), ("y", "values")),
)
