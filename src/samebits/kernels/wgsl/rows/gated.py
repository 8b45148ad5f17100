"""Gated activations of rows that hold the gate and the up projection side by side."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.kernels.wgsl.lib.launch import Call, Dispatch
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.rows.elements import elementwise, from_column


def _gated(kind: str, call: Call, params: Mapping[str, float] | None = None) -> list[Dispatch]:
    x, y = call.tensor("x"), call.outputs[0]
    return elementwise(kind, x, from_column(x, y.shape[-1]), y, params)


@implements("silu_and_mul", when=only_f32("x"))
def silu_and_mul(call: Call) -> list[Dispatch]:
    return _gated("silu_and_mul", call)


@implements("gelu_and_mul", when=only_f32("x"))
def gelu_and_mul(call: Call) -> list[Dispatch]:
    return _gated(f"gelu_{call.attrs['form']}_and_mul", call)


@implements("clamped_swiglu", when=only_f32("x"))
def clamped_swiglu(call: Call) -> list[Dispatch]:
    return _gated("clamped_swiglu", call, {name: float(call.attrs[name]) for name in ("alpha", "limit")})
