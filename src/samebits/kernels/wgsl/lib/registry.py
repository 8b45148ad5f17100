"""The table that kernel files of this folder register in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel, KernelTable, OpCall
from samebits.kernels.wgsl.lib.launch import Call, Dispatch
from samebits.ops.record import OPS

WGSL = KernelTable("wgsl")
Run = Callable[[Call], list[Dispatch]]


def implements(
    op_name: str,
    *,
    tier: Tier = Tier.PORTABLE,
    when: Callable[[OpCall], str | None] | None = None,
    prepack: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Callable[[Run], Run]:
    """Registers the decorated function as a kernel of an op. `when` and `prepack` as in the kernel record."""

    def register(run: Run) -> Run:
        WGSL.add(Kernel(OPS[op_name], WGSL.language, tier, run, when, prepack or {}))
        return run

    return register


def only_f32(*names: str) -> Callable[[OpCall], str | None]:
    """A `when` for kernels whose activations are float32, as those of every model's portable step are."""

    def refusal(call: OpCall) -> str | None:
        given = {n: call.inputs[n].format for n in names if n in call.inputs and call.inputs[n].format != "f32"}
        shown = ", ".join(f"{name} in {fmt}" for name, fmt in given.items())
        return f"wgsl takes float32 activations, not {shown}" if given else None

    return refusal
