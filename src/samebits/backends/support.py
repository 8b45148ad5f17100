"""The one table that dispatch, `samebits support` and `samebits explain` read: call -> kernel or reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits.backends.interface import Backend, Caps
from samebits.core.errors import Unsupported
from samebits.core.shapes import Dim, Sym, TensorSpec, match_shape, upper
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import Kernel, OpCall
from samebits.ops.record import OPS, Op


def hide_batch(op: Op, specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """The specs with every size along an invariant axis made a symbol, so that no kernel can see a batch size."""
    hidden: dict[str, TensorSpec] = {}
    for tensor in op.inputs:
        spec = specs.get(tensor.name)
        if spec is None:
            continue
        dims = next(d for d in tensor.dims_choices if match_shape(d, spec.shape, {}))
        hidden[tensor.name] = TensorSpec(_hide(dims, spec.shape, op.invariant_axes), spec.format)
    return hidden


def _hide(dims: str, shape: tuple[Dim, ...], axes: tuple[str, ...]) -> tuple[Dim, ...]:
    texts = dims.split()
    if texts and texts[0] == "...":
        texts = ["..."] * (len(shape) - len(texts) + 1) + texts[1:]
    return tuple(
        Sym(text, upper(size)) if text.split("+")[0] in axes and not isinstance(size, Sym) else size
        for text, size in zip(texts, shape, strict=True)
    )


def candidates(backend: Backend, call: OpCall) -> tuple[Kernel | None, list[str]]:
    """(the first kernel that serves the call, the reasons of all before it)."""
    reasons: list[str] = []
    for table in backend.kernels():
        for kernel in table[call.op.name]:
            reason = kernel.refusal(call)
            if reason is None:
                return kernel, reasons
            reasons.append(reason)
    return None, reasons or [f"{backend.name} has no kernel for {call.op.name}"]


def choose_kernel(
    backend: Backend, op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any], tier: Tier
) -> Kernel:
    """The kernel for a call; Unsupported with every refusal when there is none."""
    call = OpCall(op, hide_batch(op, specs), attrs, tier)
    kernel, reasons = candidates(backend, call)
    if kernel is None:
        given = ", ".join(f"{name}: {spec.format}" for name, spec in specs.items())
        raise Unsupported(f"{backend.name}: {op.name}({given}) at {tier.label}: {'; '.join(reasons)}")
    return kernel


def choose_kernels(backend: Backend, graph: Graph, tier: Tier) -> list[Kernel]:
    """The kernel of every node, in order; Unsupported as above. Layers repeat, so a call is looked up once."""
    chosen: dict[object, Kernel] = {}
    kernels = []
    for node in graph.nodes:
        specs = {name: value.spec for name, value in node.inputs.items()}
        key = (node.op.name, tuple(specs.items()), tuple(node.attrs.items()))
        if key not in chosen:
            chosen[key] = choose_kernel(backend, OPS[node.op.name], specs, node.attrs, tier)
        kernels.append(chosen[key])
    return kernels


def strongest_tier(
    backend: Backend, caps: Caps, op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any]
) -> Tier | None:
    """The strongest tier a kernel claims and the device's probe does not refute; None when no kernel serves."""
    for tier in sorted(Tier, reverse=True):
        if tier in caps.refuted:
            continue
        kernel, _ = candidates(backend, OpCall(op, hide_batch(op, specs), attrs, tier))
        if kernel is not None:
            return tier
    return None


def check_tier(backend: Backend, caps: Caps, tier: Tier) -> None:
    """Refuses a tier that the start-up probe refuted."""
    if tier in caps.refuted:
        raise Unsupported(f"{backend.name} cannot keep {tier.label}: {caps.refuted[tier]}")
