"""Rows of a table by id."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.counter import Stream
from samebits.core.numerics.rounding import widen
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_index_range
from samebits.ops.record import EXACT, INDEX, WEIGHTS, Attr, Case, Op, Result, Tensor, define_op, float_format


def _check(table: HostTensor, ids: np.ndarray, format: str) -> None:
    check_index_range("embedding", "ids", ids, table.shape[0])


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    inputs = default_inputs(op, case, stream)
    inputs["ids"] = stream.child("ids").integers(0, case.dims["V"], (case.dims["T"],))
    return inputs


def _sizes(v: int, k: int, t: int) -> dict[str, Any]:
    return {"V": v, "K": k, "T": t}


@define_op(
    aliases=("embedding_lookup",),
    inputs=[
        Tensor("table", "V K", WEIGHTS, "one row per id", raw=True),
        Tensor("ids", "T", INDEX, "0 .. V-1; anything else is an error, never a read"),
    ],
    attrs=[Attr("format", str, "f32", "of the result", float_format)],
    results=[Result("y", "T K", "@format")],
    tolerance=EXACT,
    cases=[
        *(Case(f"small-{f}", _sizes(50, 256, 7), {}, {"table": f}) for f in WEIGHTS),
        Case("to-bf16", _sizes(20, 64, 5), {"format": "bf16"}, {"table": "bf16"}),
        Case("no-tokens", _sizes(20, 64, 0)),
        Case("smollm2-135m", _sizes(49152, 576, 16), {}, {"table": "q8_0"}, full=True),
    ],
    invariant_axes=("T",),
    check=_check,
    make_inputs=_inputs,
)
def embedding(table: HostTensor, ids: np.ndarray, *, format: str = "f32") -> np.ndarray:
    """y[i] = table[ids[i]], unpacked."""
    rows = table[ids]
    return rows.unpack() if isinstance(rows, Packed) else widen(rows)
