"""Moving columns: split_heads, merge_heads and slice_columns, which backends may make views; concat_columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.shapes import Dim, Env, TensorSpec
from samebits.ops.record import FLOATS, Attr, Case, Input, Result, define_op, positive
from samebits.ops.space import Row, Space, setting, size
from samebits.ops.spaces import MAKING, MOST_ROWS, at_least_one, number, row_space, volume

HEAD_SIZES = (size("T", 5000, least=0, usual=3, far=MOST_ROWS), size("H", 256, usual=4), size("D", 600, usual=24))


def _head_space(case: Callable[[Row], dict[str, Any]]) -> Space:
    return Space((*HEAD_SIZES, setting("x", *FLOATS)), case, volume("T", "H", "D"), corners=("T=65537,H=2,D=2",))


def _not_negative(value: int) -> str | None:
    return None if value >= 0 else "0 or more"


def _static(where: str, width: Dim) -> int:
    if not isinstance(width, int):
        raise BadInput(where, "x", f"a width of {width}", "a width that is known")
    return width


def _head_dims(specs: dict[str, TensorSpec], attrs: dict[str, int]) -> Env:
    width, heads = _static("split_heads", specs["x"].shape[-1]), attrs["heads"]
    if width % heads:
        raise BadInput("split_heads", "x", f"a width of {width}", f"a multiple of {heads} heads")
    return {"D": width // heads}


@define_op(
    inputs=[Input("x", "T K", FLOATS, "heads side by side")],
    attrs=[Attr("heads", int, 1, "the number of heads", positive)],
    results=[Result("y", "T heads D", "=x")],
    cases=lambda: [
        *(Case(f"small-{f}", {"T": 3, "K": 96}, {"heads": 4}, {"x": f}) for f in FLOATS),
        Case("no-tokens", {"T": 0, "K": 64}, {"heads": 2}),
    ],
    invariant_axes=("T",),
    shape_env=_head_dims,
    space=lambda: _head_space(
        lambda row: {
            "dims": {"T": number(row, "T"), "K": number(row, "H") * number(row, "D")},
            "attrs": {"heads": number(row, "H")},
            "formats": {"x": str(row["x"])},
        }
    ),
    view_start=lambda heads: 0,
)
def split_heads(x: np.ndarray, *, heads: int = 1) -> np.ndarray:
    """[T, heads * D] as [T, heads, D]."""
    return x.reshape(len(x), heads, x.shape[1] // heads).copy()


@define_op(
    inputs=[Input("x", "T H D", FLOATS, "heads")],
    results=[Result("y", "T K", "=x")],
    cases=lambda: [
        *(Case(f"small-{f}", {"T": 3, "H": 4, "D": 24}, {}, {"x": f}) for f in FLOATS),
        Case("no-tokens", {"T": 0, "H": 2, "D": 16}),
    ],
    invariant_axes=("T",),
    shape_env=lambda specs, attrs: {
        "K": _static("merge_heads", specs["x"].shape[1]) * _static("merge_heads", specs["x"].shape[2])
    },
    space=lambda: _head_space(
        lambda row: {"dims": {n: number(row, n) for n in ("T", "H", "D")}, "formats": {"x": str(row["x"])}}
    ),
    view_start=lambda: 0,
)
def merge_heads(x: np.ndarray) -> np.ndarray:
    """[T, heads, D] as [T, heads * D]."""
    return x.reshape(len(x), x.shape[1] * x.shape[2]).copy()


def _slice_case(row: Row) -> dict[str, Any]:
    width = number(row, "K")
    ends = {"inside": (width // 3, width - width // 4), "first": (0, width // 2), "last": (width // 2, width)}
    start, stop = {**ends, "all": (0, width), "nothing": (width, width)}[str(row["part"])]
    return {**_rows.case(row), "attrs": {"start": start, "stop": stop}}


_rows = row_space(others=(setting("part", "inside", "first", "last", "all", "nothing"),))
SLICE_SPACE = replace(_rows, case=_slice_case)


def _slice_dims(specs: dict[str, TensorSpec], attrs: dict[str, int]) -> Env:
    width, start, stop = _static("slice_columns", specs["x"].shape[-1]), attrs["start"], attrs["stop"]
    if not start <= stop <= width:
        raise BadInput("slice_columns", "stop", f"{start} .. {stop}", f"start <= stop <= {width}")
    return {"N": stop - start}


@define_op(
    inputs=[Input("x", "... K", FLOATS, "rows")],
    attrs=[
        Attr("start", int, 0, "first column", _not_negative),
        Attr("stop", int, 0, "one past the last column", _not_negative),
    ],
    results=[Result("y", "... N", "=x")],
    cases=lambda: [
        *(Case(f"small-{f}", {"...": (3,), "K": 96}, {"start": 5, "stop": 69}, {"x": f}) for f in FLOATS),
        Case("nothing", {"...": (3,), "K": 8}, {"start": 4, "stop": 4}),
    ],
    invariant_axes=("...",),
    shape_env=_slice_dims,
    space=lambda: SLICE_SPACE,
    view_start=lambda start, stop: start,
)
def slice_columns(x: np.ndarray, *, start: int = 0, stop: int = 0) -> np.ndarray:
    """Columns start .. stop - 1."""
    return x[..., start:stop].copy()


def _concat_case(row: Row) -> dict[str, Any]:
    one = _columns.case(row)
    dims = {**one["dims"], "N": number(row, "N")}
    return {**one, "dims": dims, "formats": {"a": one["formats"]["a"], "b": one["formats"]["a"]}}


_columns = row_space(inputs=("a",), others=(size("N", 32_768, usual=24),))
CONCAT_SPACE = replace(
    _columns,
    case=_concat_case,
    cost=lambda row: MAKING * at_least_one(row, "rows") * (number(row, "K") + number(row, "N")),
)


@define_op(
    inputs=[Input("a", "... K", FLOATS, "left columns"), Input("b", "... N", FLOATS, "right columns, same format")],
    results=[Result("y", "... M", "=a")],
    cases=lambda: [
        *(Case(f"small-{f}", {"...": (3,), "K": 40, "N": 24}, {}, {"a": f, "b": f}) for f in FLOATS),
        Case("no-rows", {"...": (0,), "K": 4, "N": 4}),
    ],
    invariant_axes=("...",),
    shape_env=lambda specs, attrs: {
        "M": _static("concat_columns", specs["a"].shape[-1]) + _static("concat_columns", specs["b"].shape[-1])
    },
    space=lambda: CONCAT_SPACE,
)
def concat_columns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The columns of a, then those of b."""
    return np.concatenate([a, b], axis=-1)
