"""Spaces of the ops with states in slots: batches by name, sizes of heads, contents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samebits.ops.slot_cases import BATCHES, GATE_TAILS, num_tokens
from samebits.ops.slots import CHUNK
from samebits.ops.space import Choice, Row, Space, choice, setting, size
from samebits.ops.spaces import MAKING, number

LIBRARY, PROMPTS = "library", "prompts"  # batches that only corners have
VALUES = ("normal", "zeros", "tiny", "zero-stretches", "wide", "bounds", "faint", "equal", "mixed", "beyond")


def _tokens(row: Row) -> int:
    return max(1, num_tokens(BATCHES[str(row["batch"])]))


def _space(
    factors: tuple[Any, ...],
    names: tuple[str, ...],
    cost: Any,
    case: Any,
    fits: Any = lambda row: True,
    corners: tuple[str, ...] = (),
) -> Space:
    batch = choice("batch", *(name for name in BATCHES if name not in (LIBRARY, PROMPTS)), least="first")
    batch = replace(batch, rare=(Choice(LIBRARY), Choice(PROMPTS)))
    values = replace(choice("values", *VALUES), rare=(Choice(GATE_TAILS),))

    def whole(row: Row) -> dict[str, Any]:
        dims = {name: number(row, name) for name in names}
        extra = {"batch": row["batch"], "values": row["values"], "decay": 20.0 if row.get("decay") == "fast" else 1.0}
        return {"dims": dims, "attrs": {}, "formats": {}, "given": (), "extra": extra} | case(row, dims)

    return Space((batch, *factors, values), whole, cost, fits, corners=corners)


def _head_cost(row: Row, k: str, v: str, keys: str) -> int:
    """Operations, and what making the inputs and the memory of all slots costs."""
    heads, width, depth = number(row, keys) * number(row, "share"), number(row, k), number(row, v)
    slots = len(BATCHES[str(row["batch"])]) + 3
    return heads * (_tokens(row) * (width * depth * 4 + CHUNK * (width + depth)) + MAKING * slots * width * depth)


SCALES = {"usual": None, "1": 1.0, "0.3": 0.3, "-2": -2.0, "0": 0.0}  # usual: K^-0.5


def _scale(row: Row) -> float:
    given = SCALES[str(row["scale"])]
    return number(row, "K") ** -0.5 if given is None else given


DECAY = choice("decay", "slow", "fast")
DELTA_SPACE = _space(
    (
        size("Hk", 16, usual=2),
        size("share", 4, usual=2),
        size("K", 256, usual=32),
        size("V", 256, usual=32),
        setting("v_heads", "grouped", "tiled"),
        setting("scale", *SCALES),
        DECAY,
    ),
    ("Hk", "K", "V"),
    lambda row: _head_cost(row, "K", "V", "Hk"),
    lambda row, dims: {
        "dims": {**dims, "H": number(row, "Hk") * number(row, "share")},
        "attrs": {"scale": _scale(row), "v_heads": row["v_heads"]},
    },
    corners=(
        f"batch={LIBRARY},Hk=1,share=1,K=8,V=8",
        f"batch={PROMPTS},K=8,V=8",
        f"batch=mixed,K=8,V=8,values={GATE_TAILS}",
    ),
)
LIMITS = {"dt_min": ("0.0", "0.2", "0.9"), "dt_max": ("1e+30", "0.9", "2.0")}  # within what softplus usually gives
SSM_SPACE = _space(
    (
        size("G", 8, usual=2),
        size("share", 16, usual=2),
        size("S", 256, usual=32),
        size("P", 128, usual=32),
        setting("D", "none", "given"),
        *(setting(name, *values) for name, values in LIMITS.items()),
        DECAY,
    ),
    ("G", "S", "P"),
    lambda row: _head_cost(row, "S", "P", "G"),
    lambda row, dims: {
        "dims": {**dims, "H": number(row, "G") * number(row, "share")},
        "attrs": {name: float(row[name]) for name in LIMITS},
        "given": ("D",) if row["D"] == "given" else (),
    },
    corners=(
        "batch=idle,G=5,share=1,S=2,P=17,D=given,dt_min=0.2,dt_max=0.9,decay=slow,values=beyond",
        f"batch={LIBRARY},G=1,share=1,S=8,P=8",
        f"batch={PROMPTS},S=8,P=8",
        f"batch=mixed,S=8,P=8,values={GATE_TAILS}",
    ),
)
CONV_SPACE = _space(
    (
        size("C", 16_384, usual=64),
        size("taps", 9, least=2, usual=4),
        setting("bias", "none", "given"),
        setting("activation", "none", "silu"),
    ),
    ("C", "taps"),
    lambda row: number(row, "C") * (_tokens(row) * (MAKING + 4 * number(row, "taps")) + MAKING * number(row, "taps")),
    lambda row, dims: {
        "dims": {**dims, "J": number(row, "taps") - 1},
        "attrs": {"activation": row["activation"]},
        "given": ("bias",) if row["bias"] == "given" else (),
    },
    lambda row: row.get("values") != "tiny" or row.get("bias", "given") == "given",  # it shows beside tiny sums alone
    corners=(
        f"batch={LIBRARY},C=8,bias=given",
        f"batch={PROMPTS},C=8",
        f"batch=mixed,C=8,bias=given,activation=silu,values={GATE_TAILS}",
    ),
)
