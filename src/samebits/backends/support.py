"""The one table that dispatch, `samebits support` and `samebits explain` read: call -> kernel or reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samebits.backends.interface import Backend, Caps
from samebits.core.errors import Unsupported
from samebits.core.shapes import Sym, TensorSpec, upper
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node
from samebits.kernels.record import Kernel, OpCall
from samebits.ops.record import OPS, Op


def hide_batch(op: Op, specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """The specs with every size along an invariant axis made a symbol, so that no kernel can see a batch size."""
    hidden: dict[str, TensorSpec] = {}
    for tensor in op.inputs:
        spec = specs.get(tensor.name)
        if spec is None:
            continue
        shape = tuple(
            Sym(name, upper(size)) if name.split("+")[0] in op.invariant_axes and not isinstance(size, Sym) else size
            for name, size in zip(tensor.axes(spec.shape), spec.shape, strict=True)
        )
        hidden[tensor.name] = TensorSpec(shape, spec.format)
    return hidden


def op_call(op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any], tier: Tier) -> OpCall:
    """What kernels are asked when one is chosen for a call."""
    return OpCall(op, hide_batch(op, specs), attrs, tier)


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
    kernel, reasons = candidates(backend, op_call(op, specs, attrs, tier))
    if kernel is None:
        given = ", ".join(f"{name}: {spec.format}" for name, spec in specs.items())
        raise Unsupported(f"{backend.name}: {op.name}({given}) at {tier.label}: {'; '.join(reasons)}")
    return kernel


def choose_kernels(backend: Backend, graph: Graph, tier: Tier) -> list[Kernel]:
    """The kernel of every node, in order; Unsupported as above. Layers repeat, so a call is looked up once."""
    chosen: dict[object, Kernel] = {}
    kernels = []
    for node in graph.nodes:
        key = _call_key(node)
        if key not in chosen:
            chosen[key] = choose_kernel(backend, OPS[node.op.name], node.specs, node.attrs, tier)
        kernels.append(chosen[key])
    return kernels


def supports(backend: Backend, tier: Tier) -> Callable[[Node], str | None]:
    """What passes ask: nothing where a kernel serves the node, else every refusal. Layers repeat: asked once each."""
    answers: dict[object, str | None] = {}

    def ask(node: Node) -> str | None:
        key = _call_key(node)
        if key not in answers:
            kernel, reasons = candidates(backend, op_call(OPS[node.op.name], node.specs, node.attrs, tier))
            answers[key] = None if kernel else "; ".join(reasons)
        return answers[key]

    return ask


def _call_key(node: Node) -> object:
    """Equal for nodes that kernels cannot tell apart."""
    return node.op.name, tuple(node.specs.items()), tuple(node.attrs.items())


def strongest_tier(
    backend: Backend, caps: Caps, op: Op, specs: Mapping[str, TensorSpec], attrs: Mapping[str, Any]
) -> Tier | None:
    """The strongest tier a kernel claims and the device's probe does not refute; None when no kernel serves."""
    for tier in sorted(Tier, reverse=True):
        if tier in caps.refuted:
            continue
        kernel, _ = candidates(backend, op_call(op, specs, attrs, tier))
        if kernel is not None:
            return tier
    return None


def check_tier(backend: Backend, caps: Caps, tier: Tier) -> None:
    """Refuses a tier that the start-up probe refuted."""
    if tier in caps.refuted:
        raise Unsupported(f"{backend.name} cannot keep {tier.label}: {caps.refuted[tier]}")
