"""Rows of a table by id."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import BLOCK, FORMATS, HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import widen
from samebits.core.numerics.settling import settle
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_index_range
from samebits.ops.record import FLOATS, INDEX, WEIGHTS, Attr, Case, Input, Op, Result, define_op, float_format
from samebits.ops.space import Row, Space, choice, setting, size
from samebits.ops.spaces import MAKING, WEIGHT_KINDS, number


def _check(table: HostTensor, ids: np.ndarray, format: str) -> None:
    check_index_range("embedding", "ids", ids, table.shape[0])


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    inputs = default_inputs(op, case, stream)
    num_rows, num_tokens = case.dims["V"], case.dims["T"]
    ids = stream.child("ids").integers(0, num_rows, (num_tokens,))
    kind = case.extra.get("ids", "random")
    if kind == "ends":  # of the table, in turn
        ids = np.where(np.arange(num_tokens) % 2 == 0, num_rows - 1, ids % min(num_rows, 3)).astype(np.int32)
    inputs["ids"] = np.full(num_tokens, num_rows - 1, np.int32) if kind == "one" else ids
    return inputs


def _width(row: Row) -> int:
    return number(row, "K") + int(row["tail"])


SPACE = Space(
    (
        size("V", 262_144, usual=50),
        size("K", 512, step=BLOCK, usual=256),
        choice("tail", "0", "1", "16", "17"),
        size("T", 70_000, least=0, usual=7),
        setting("weight", *WEIGHTS),
        setting("format", *FLOATS),
        choice("ids", "random", "ends", "one"),
        choice("values", *WEIGHT_KINDS),
    ),
    lambda row: {
        "dims": {"V": number(row, "V"), "K": _width(row), "T": number(row, "T")},
        "attrs": {"format": row["format"]},
        "formats": {"table": str(row["weight"])},
        "extra": {"values": row["values"], "ids": row["ids"]},
    },
    lambda row: (4 * number(row, "V") + MAKING * (number(row, "T") + min(number(row, "V"), 257))) * number(row, "K"),
    lambda row: not {"weight", "K", "tail"} <= row.keys() or _width(row) % FORMATS[str(row["weight"])].block_len == 0,
    (("weight", "values"),),
)


def _sizes(v: int, k: int, t: int) -> dict[str, Any]:
    return {"V": v, "K": k, "T": t}


@define_op(
    aliases=("embedding_lookup",),
    inputs=[
        Input("table", "V K", WEIGHTS, "one row per id", raw=True),
        Input("ids", "T", INDEX, "0 .. V-1; anything else is an error, never a read"),
    ],
    attrs=[Attr("format", str, "f32", "the format of the result", float_format)],
    results=[Result("y", "T K", "@format")],
    cases=lambda: [
        *(Case(f"small-{f}", _sizes(50, 256, 7), {}, {"table": f}) for f in WEIGHTS),
        Case("to-bf16", _sizes(20, 64, 5), {"format": "bf16"}, {"table": "bf16"}),
        Case("no-tokens", _sizes(20, 64, 0)),
        Case("smollm2-135m", _sizes(49152, 576, 16), {}, {"table": "q8_0"}, full=True),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=_inputs,
    space=lambda: SPACE,
    smallest=-50,
)
def embedding(table: HostTensor, ids: np.ndarray, *, format: str = "f32") -> np.ndarray:
    """y[i] = table[ids[i]], unpacked and settled: a block of a negative scale holds -0."""
    rows = table[ids]
    return settle(rows.unpack() if isinstance(rows, Packed) else widen(rows))
