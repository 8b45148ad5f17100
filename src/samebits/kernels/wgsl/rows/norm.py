"""Norms over rows: rms_norm, fused_add_rms_norm, layer_norm, l2_norm, gated_rms_norm."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, View, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32

CUT = 256  # elements
LANES_OF_CUT = 4
STEPS_OF_CUT = 16
MAX_LANES = 256  # of a row: 64 cuts at once
MIN_GROUP = 16  # invocations; rows of less share a workgroup
WIDEST = 1 << 19  # elements of a row whose cuts lie in a workgroup's memory


def sum_consts(width: int) -> dict[str, int]:
    """What snippets/row_sum.wgsl needs for rows of a width."""
    cuts = ceil_div(width, CUT)
    lanes = min(cuts * LANES_OF_CUT, MAX_LANES)
    return {"LANES": lanes, "ROWS": max(1, MIN_GROUP // lanes), "CUTS": cuts}


def narrow_enough(*names: str) -> Callable[[OpCall], str | None]:
    """only_f32, of rows that are at most WIDEST wide."""
    is_f32 = only_f32(*names)

    def refusal(call: OpCall) -> str | None:
        width = call.inputs[names[0]].shape[-1]
        if isinstance(width, int) and width > WIDEST:
            return f"wgsl sums rows of at most {WIDEST} elements, not {width}"
        return is_f32(call)

    return refusal


def _norm(
    call: Call, residual: Operand | None = None, is_centred: bool = False, is_mean: bool = True
) -> list[Dispatch]:
    """y from x, or from a residual that takes x first."""
    x, y, gate = call.tensor("x"), call.outputs[0], call.optional("gate")
    parts = call.attrs.get("groups", 1)
    width, num_rows = x.shape[-1] // parts, x.num_rows * parts
    if not width:
        return []
    view: View = "singles" if width % 4 else "fours"
    gate_first = bool(call.attrs.get("gate_first"))
    sums = sum_consts(width)
    bindings = (
        Binding("x", x, view=view),
        Binding("residual", residual, "write", view),
        Binding("gate", gate, view=view),
        Binding("weight", call.optional("weight"), view=view),
        Binding("bias", call.optional("bias"), view=view),
        Binding("y", y, "write", view),
    )
    return [
        Dispatch(
            "rows/norm",
            bindings,
            linear(ceil_div(num_rows, sums["ROWS"])),
            consts={
                **sums,
                "STEPS": min(STEPS_OF_CUT, ceil_div(width, CUT // STEPS_OF_CUT)),
                "HELD": sums["CUTS"] * LANES_OF_CUT <= sums["LANES"],
                "K": width,
                "INNER": prod(x.shape[1:-1]) * parts,
                "PARTS": parts,
                "CENTRED": is_centred,
                "GATE_FIRST": gate_first,
                "GATE_LAST": gate is not None and not gate_first,
            },
            params={
                "num_rows": num_rows,
                "eps": float(call.attrs["eps"]),
                "inv_k": 1.0 / width if is_mean else 1.0,
            },
        )
    ]


@implements("rms_norm", when=narrow_enough("x"))
def rms_norm(call: Call) -> list[Dispatch]:
    return _norm(call)


@implements("fused_add_rms_norm", when=narrow_enough("x", "residual"))
def fused_add_rms_norm(call: Call) -> list[Dispatch]:
    return _norm(call, residual=call.tensor("residual"))


@implements("layer_norm", when=narrow_enough("x"))
def layer_norm(call: Call) -> list[Dispatch]:
    return _norm(call, is_centred=True)


@implements("l2_norm", when=narrow_enough("x"))
def l2_norm(call: Call) -> list[Dispatch]:
    return _norm(call, is_mean=False)


@implements("gated_rms_norm", when=narrow_enough("x", "gate"))
def gated_rms_norm(call: Call) -> list[Dispatch]:
    return _norm(call)
