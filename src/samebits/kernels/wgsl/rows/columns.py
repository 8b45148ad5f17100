"""Moving columns where they cannot stay where they are: split_heads, merge_heads, slice_columns, concat_columns."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.launch import Call, Dispatch
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.rows.elements import as_matrix, elementwise, from_column


@implements("split_heads", when=only_f32("x"))
def split_heads(call: Call) -> list[Dispatch]:
    return elementwise("copy", as_matrix(call.tensor("x")), None, as_matrix(call.outputs[0]))


@implements("merge_heads", when=only_f32("x"))
def merge_heads(call: Call) -> list[Dispatch]:
    return elementwise("copy", as_matrix(call.tensor("x")), None, as_matrix(call.outputs[0]))


@implements("slice_columns", when=only_f32("x"))
def slice_columns(call: Call) -> list[Dispatch]:
    return elementwise("copy", from_column(call.tensor("x"), call.attrs["start"]), None, call.outputs[0])


@implements("concat_columns", when=only_f32("a", "b"))
def concat_columns(call: Call) -> list[Dispatch]:
    a, b, y = call.tensor("a"), call.tensor("b"), call.outputs[0]
    left, right = a.shape[-1], b.shape[-1]
    return [
        *elementwise("copy", a, None, y, width=left),
        *elementwise("copy", b, None, from_column(y, left), width=right),
    ]
