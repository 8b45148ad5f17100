"""Rotary position embedding from a table of cosines and sines, and the tables themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.angles import MAX_ANGLE, natural_log, rotary_frequencies, sin_cos
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_index_range
from samebits.ops.record import FLOATS, INDEX, Attr, Case, Input, Op, Result, define_op
from samebits.ops.sizes import MODELS
from samebits.ops.space import Row, Space, choice, setting, size
from samebits.ops.spaces import MAKING, MOST_ROWS, at_least_one, number

TABLE_ROWS = 512  # of a rotary table at a time: the float64 values between then stay in a processor's cache


def llama31_frequencies(
    frequencies: np.ndarray, *, factor: float, low: float, high: float, old_context_len: int
) -> np.ndarray:
    """Llama-3.1's scaling: slow frequencies divided by `factor`, fast ones kept, a ramp between; float64."""
    ramp = frequencies * old_context_len / (2 * math.pi * (high - low)) - 1 / (high / low - 1)
    smooth = np.minimum(np.maximum(ramp, 0.0), 1.0)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def yarn_frequencies(
    frequencies: np.ndarray, *, theta: float, factor: float, old_context_len: int, betas: tuple[float, float],
    is_truncated: bool,
) -> np.ndarray:  # fmt: skip
    """YaRN's scaling: those that turn fewer than betas[1] times in the old context are divided by `factor`, those that
    turn more than betas[0] times kept, a ramp over the dimensions between; float64."""
    size = 2 * len(frequencies)

    def dimension(num_turns: float) -> float:
        return size * natural_log(old_context_len / (num_turns * 2 * math.pi)) / (2 * natural_log(theta))

    first, last = (dimension(beta) for beta in betas)
    if is_truncated:
        first, last = float(math.floor(first)), float(math.ceil(last))
    first, last = max(first, 0.0), min(last, size - 1.0)
    last = last + 0.001 if first == last else last  # a ramp of no width would divide by zero
    ramp = np.minimum(np.maximum((np.arange(size // 2) - first) / (last - first), 0.0), 1.0)
    return ramp * frequencies / factor + (1 - ramp) * frequencies


def rope_table(
    num_positions: int,
    rotary_dim: int,
    *,
    theta: float = 10000.0,
    scaling: str = "plain",
    factor: float = 1.0,
    low: float = 1.0,
    high: float = 4.0,
    old_context_len: int = 8192,
    betas: tuple[float, float] = (32.0, 1.0),
    is_truncated: bool = True,
    divisors: np.ndarray | None = None,
    magnitude: float = 1.0,
) -> np.ndarray:
    """float32 [num_positions, rotary_dim/2, 2] of (cos, sin). scaling: 'plain', 'linear', 'llama31' or 'yarn'.

    `divisors` [rotary_dim/2], where a checkpoint ships them, divide the frequencies instead. `magnitude` multiplies
    the whole table.

    Made once on the host in float64, the angle position * frequency rounded once; devices only read it.
    """
    if rotary_dim <= 0 or rotary_dim % 2:
        raise BadInput("rope_table", "rotary_dim", rotary_dim, "an even number above 0")
    if not 0 <= num_positions <= MAX_ANGLE:
        raise BadInput("rope_table", "num_positions", num_positions, f"0 .. {int(MAX_ANGLE)}")
    if not theta > 1 or not factor >= 1 or not 0 < low < high or old_context_len <= 0:
        given = f"theta={theta} factor={factor} low={low} high={high} old_context_len={old_context_len}"
        raise BadInput("rope_table", "parameters", given, "theta > 1, factor >= 1, 0 < low < high, old_context_len > 0")
    frequencies = rotary_frequencies(theta, rotary_dim)
    if divisors is not None:
        if divisors.shape != frequencies.shape or not (divisors >= 1e-3).all() or not (divisors <= 1e6).all():
            raise BadInput(
                "rope_table", "divisors", f"shape {list(divisors.shape)}", f"{len(frequencies)} from 1e-3 to 1e6"
            )
        frequencies = frequencies / divisors.astype(np.float64)
    if scaling == "linear":
        frequencies = frequencies / factor
    elif scaling == "llama31":
        frequencies = llama31_frequencies(
            frequencies, factor=factor, low=low, high=high, old_context_len=old_context_len
        )
    elif scaling == "yarn":
        frequencies = yarn_frequencies(
            frequencies,
            theta=theta,
            factor=factor,
            old_context_len=old_context_len,
            betas=betas,
            is_truncated=is_truncated,
        )
    elif scaling != "plain":
        raise BadInput("rope_table", "scaling", repr(scaling), "'plain', 'linear', 'llama31' or 'yarn'")
    table = np.empty((num_positions, len(frequencies), 2), np.float32)
    for start in range(0, num_positions, TABLE_ROWS):
        angles = np.arange(start, min(start + TABLE_ROWS, num_positions), dtype=np.float64)[:, None] * frequencies
        table[start : start + TABLE_ROWS, :, 1], table[start : start + TABLE_ROWS, :, 0] = sin_cos(angles)
    return settle(table if magnitude == 1 else table * np.float32(magnitude))


def _check(x: np.ndarray, pos_ids: np.ndarray, table: np.ndarray, interleave: bool) -> None:
    check_index_range("rope", "pos_ids", pos_ids, table.shape[0])
    if 2 * table.shape[1] > x.shape[-1]:
        raise BadInput("rope", "table", f"rotary size {2 * table.shape[1]}", f"at most the head size {x.shape[-1]}")


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    inputs = default_inputs(op, case, stream)
    num_positions = case.dims["P"]
    inputs["table"] = rope_table(num_positions, 2 * case.dims["R"], **case.extra.get("table", {}))
    kind, num_tokens = case.extra.get("positions", "random"), case.dims["T"]
    drawn = stream.child("pos_ids").integers(0, num_positions, (num_tokens,))
    inputs["pos_ids"] = np.sort(drawn)[::-1].copy() if kind == "falling" else drawn
    if kind in ("first", "last"):
        inputs["pos_ids"] = np.full(num_tokens, 0 if kind == "first" else num_positions - 1, np.int32)
    return inputs


ROTARY = {"all": 1, "half": 2, "quarter": 4}
SCALINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {"scaling": "linear", "factor": 4.0},
    "llama31": {"scaling": "llama31", "theta": 5e5, "factor": 8.0},
    "magnified": {"magnitude": 2.0**20},
    "reduced": {"magnitude": 2.0**-30},
}
VALUES = (
    *("normal", "special", "mixed", "halfway", "large", "zeros", "zero-stretches", "bounds", "faint"),
    *("beyond", "vast", "extreme"),
)


def _fits(row: Row) -> bool:
    """Return whether there is a pair to turn, and no result is infinity minus infinity."""
    has_pair = row.get("rotary") != "quarter" or number({"D": 8, **row}, "D") >= 8
    return has_pair and (row.get("values") != "extreme" or row.get("scaling") != "magnified")


SPACE = Space(
    (
        size("T", 5000, least=0, usual=5, far=MOST_ROWS),
        size("H", 130, usual=3),
        size("D", 144, step=4, usual=16),
        size("P", 140_000, usual=512),
        setting("rotary", *ROTARY),
        choice("positions", "random", "falling", "last", "first"),
        choice("scaling", *SCALINGS),
        setting("interleave", "no", "yes"),
        setting("x", *FLOATS),
        choice("values", *VALUES),
    ),
    lambda row: {
        "dims": {
            **{n: number(row, n) for n in ("T", "H", "D", "P")},
            "R": number(row, "D") // 2 // ROTARY[str(row["rotary"])],
        },
        "attrs": {"interleave": row["interleave"] == "yes"},
        "formats": {"x": str(row["x"])},
        "extra": {"values": row["values"], "table": SCALINGS[str(row["scaling"])], "positions": row["positions"]},
    },
    lambda row: MAKING * number(row, "D") * (at_least_one(row, "T") * number(row, "H") + number(row, "P")),
    _fits,
    # an odd number of pairs, which are neighbours
    corners=("T=65537,H=1,D=4", "D=12,rotary=half,interleave=yes,positions=last"),
)


def _case(case_id: str, heads: int, head: int, rotary: int, attrs: dict[str, Any] | None = None, **kw: Any) -> Case:
    dims = {"T": kw.pop("tokens", 5), "H": heads, "D": head, "P": kw.pop("positions", 512), "R": rotary // 2}
    return Case(case_id, dims, attrs or {}, kw.pop("formats", {}), extra={"table": kw.pop("table", {})}, **kw)


@define_op(
    aliases=("apply_rope_pos_ids",),
    inputs=[
        Input("x", "T H D", FLOATS, "query or key heads"),
        Input("pos_ids", "T", INDEX, "position of each token, a row of the table"),
        Input("table", "P R 2", ("f32",), "rope_table(): cos and sin; the rotary size is 2R"),
    ],
    attrs=[Attr("interleave", bool, False, "pairs (2i, 2i+1) instead of (i, i+R)")],
    results=[Result("y", "T H D", "=x")],
    freedom="float32 operations, fused or not",
    cases=lambda: [
        *(_case(f"small-{f}", 3, 16, 16, formats={"x": f}) for f in FLOATS),
        _case("interleave", 3, 16, 16, {"interleave": True}),
        _case("partial", 2, 32, 8),
        _case("partial-interleave", 2, 32, 8, {"interleave": True}),
        _case("linear", 2, 64, 64, table={"scaling": "linear", "factor": 4.0}),
        _case("llama31", 8, 128, 128, table=SCALINGS["llama31"], positions=4096),
        _case("no-tokens", 2, 16, 16, tokens=0),
        *(_case(name, m[2], m[4], m[4], tokens=16) for name, m in MODELS.items()),
        _case("far-positions", 4, 128, 128, table=SCALINGS["llama31"], positions=131072, full=True),
    ],
    invariant_axes=("T", "H"),
    check=_check,
    make_inputs=_inputs,
    space=lambda: SPACE,
    smallest=-123,
)
def rope(x: np.ndarray, pos_ids: np.ndarray, table: np.ndarray, *, interleave: bool = False) -> np.ndarray:
    """(a * cos - b * sin, b * cos + a * sin) for each pair (a, b) of the first 2R elements of a head."""
    num_pairs = table.shape[1]
    cos, sin = (table[pos_ids, None, :, i] for i in (0, 1))
    first = slice(0, 2 * num_pairs, 2) if interleave else slice(0, num_pairs)
    second = slice(1, 2 * num_pairs, 2) if interleave else slice(num_pairs, 2 * num_pairs)
    a, b = x[..., first], x[..., second]
    y = x.copy()
    y[..., first] = settle(a * cos - b * sin)
    y[..., second] = settle(b * cos + a * sin)
    return y
