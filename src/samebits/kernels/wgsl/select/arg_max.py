"""argmax: the lowest index among equals."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Call, Dispatch
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.select.parts import rows_of, takes
from samebits.kernels.wgsl.select.short import is_short, short_rows

NAN = fault("argmax", "x", "NaN", "no NaN")


@implements("argmax", when=takes("x"))
def argmax(call: Call) -> list[Dispatch]:
    """The first place of every part of a row, then of the row."""
    if is_short(call):
        return short_rows(call, "give_first", ("indices",), NAN)
    rows = rows_of(call, call.tensor("x"))
    return [rows.extent({}), rows.pick(call.outputs[0], NAN)]
