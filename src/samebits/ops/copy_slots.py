"""copy_slots: whole slots of a state onto others, for a sequence that goes on where another one was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.ops.cases import default_inputs
from samebits.ops.ragged import check_index_range
from samebits.ops.record import INDEX, STATES, Case, Input, Op, Result, define_op
from samebits.ops.space import Row, Space, choice, size
from samebits.ops.spaces import MAKING, number

OP = "copy_slots"
DIMS = ("N A B", "N A", "N A B C")
OUTER = {"3": (3,), "2": (), "4": (2, 3)}  # axes between slots and rows, by how many axes there are


def _check(state: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> None:
    for name, slots in (("sources", sources), ("targets", targets)):
        check_index_range(OP, name, slots, len(state))
    taken, counts = np.unique(targets, return_counts=True)
    if (counts > 1).any():
        raise BadInput(OP, "targets", f"slot {taken[counts > 1][0]} twice", "every target once")
    if len(both := np.intersect1d(sources, targets)):
        raise BadInput(OP, "targets", f"slot {both[0]}, a source too", "slots that nothing is copied from")


def _inputs(op: Op, case: Case, stream: Stream) -> dict[str, HostTensor]:
    state = default_inputs(op, case, stream)["state"]
    slots, count = stream.child("copies").permutation(case.dims["N"]), case.dims["M"]
    sources = np.full(count, slots[0]) if case.extra["sources"] == "one" else slots[:count]
    return {
        "state": state,
        "sources": sources.astype(np.int32),
        "targets": slots[len(slots) - count :].astype(np.int32),
    }


def _dims(num_slots: int, num_copies: int, axes: str, width: int) -> dict[str, Any]:
    return {"N": num_slots, "M": num_copies, **dict(zip("ABC", (*OUTER[axes], width), strict=False))}


def _extra(axes: str, sources: str = "distinct") -> dict[str, Any]:
    return {"state_dims": list(OUTER).index(axes), "sources": sources}


def _fits(row: Row) -> bool:
    """Targets are no sources."""
    return not {"copies", "slots"} <= row.keys() or 2 * number(row, "copies") <= number(row, "slots")


SPACE = Space(
    (
        size("slots", 2048, usual=9),
        choice("axes", *OUTER, least="2"),
        size("width", 1 << 20, usual=64),
        size("copies", 600, least=0, usual=3),
        choice("sources", "distinct", "one"),
    ),
    lambda row: {
        "dims": _dims(number(row, "slots"), number(row, "copies"), str(row["axes"]), number(row, "width")),
        "extra": _extra(str(row["axes"]), str(row["sources"])),
    },
    lambda row: MAKING * number(row, "slots") * math.prod(OUTER[str(row["axes"])]) * number(row, "width"),
    _fits,
    corners=("slots=3,width=524288,copies=1,axes=2",),
)


@define_op(
    inputs=[
        Input("state", DIMS, STATES, "what every slot holds", raw=True),
        Input("sources", "M", INDEX, "slots to read; one may be copied several times"),
        Input("targets", "M", INDEX, "slots to write, each once, none of them a source"),
    ],
    results=[Result("state", "", "=state", alias_of="state")],
    cases=lambda: [
        Case("ring", _dims(9, 3, "3", 40), extra=_extra("3")),
        Case("rows", _dims(7, 3, "2", 33), extra=_extra("2")),
        Case("state", _dims(8, 4, "4", 16), extra=_extra("4")),
        Case("one-source", _dims(8, 4, "4", 5), extra=_extra("4", "one")),
        Case("no-copies", _dims(4, 0, "3", 8), extra=_extra("3")),
    ],
    invariant_axes=("M",),
    check=_check,
    make_inputs=_inputs,
    space=lambda: SPACE,
)
def copy_slots(state: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """state[targets] = state[sources], in place."""
    state[targets] = state[sources]
    return state
