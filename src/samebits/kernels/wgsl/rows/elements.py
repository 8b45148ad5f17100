"""What element-by-element kernels share: one shader, rows/elementwise, whose function a snippet gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from samebits.kernels.wgsl.lib.launch import Binding, Dispatch, Operand, View, ceil_div, linear

GROUP = 64  # invocations


def as_matrix(x: Operand) -> Operand:
    """A tensor as rows of its first axis, all else side by side; a vector is one row."""
    if len(x.shape) < 2:
        return replace(x, shape=(1, prod(x.shape)), row_stride=prod(x.shape))
    return replace(x, shape=(x.shape[0], prod(x.shape[1:])))


def from_column(x: Operand, start: int) -> Operand:
    """A tensor whose rows begin at a column; its shape still says how far they lie apart."""
    return replace(x, offset=x.offset + start)


def elementwise(
    kind: str,
    x: Operand,
    y: Operand | None,
    z: Operand,
    params: Mapping[str, int | float] | None = None,
    width: int | None = None,
) -> list[Dispatch]:
    """z = combined(x, y) of snippets/pairs/`kind`. A y with one axis beside a z with more is one row for all.

    width  the columns that are computed, from the first of each tensor on; all of z's if absent
    """
    width = z.shape[-1] if width is None else width
    if not width:
        return []
    is_row = y is not None and len(y.shape) < len(z.shape)
    if y is not None and is_row:
        y = replace(y, row_stride=0)
    fours = ceil_div(width, 4)
    view: View = "singles" if width % 4 else "fours"
    widths = {"X_WIDTH": x.shape[-1], "Y_WIDTH": 0 if y is None or is_row else y.shape[-1], "Z_WIDTH": z.shape[-1]}
    return [
        Dispatch(
            "rows/elementwise",
            (Binding("x", x, view=view), Binding("y", y, view=view), Binding("z", z, "write", view)),
            linear(ceil_div(z.num_rows * fours, GROUP)),
            consts={"GROUP": GROUP, "WIDTH": width, "FOURS": fours, "INNER": prod(z.shape[1:-1]), **widths},
            params={"count": z.num_rows * fours, **(params or {})},
            snippets=(f"pairs/{kind}",),
        )
    ]
