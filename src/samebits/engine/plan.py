"""Which kernels and which memory a graph gets on a backend: tier, passes, placement, packing."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Executable
from samebits.backends.reference import ReferenceBackend
from samebits.backends.support import check_tier, choose_kernels, supports
from samebits.core.errors import Unavailable, Unsupported
from samebits.core.tiers import Tier
from samebits.engine.weights import Packer
from samebits.engine.with_fallback import FallbackExecutable
from samebits.graph import Graph
from samebits.passes.pipeline import run_pipeline
from samebits.passes.place import Placement, place

FALLBACK = ReferenceBackend()


@dataclass(frozen=True)
class BackendPlan:
    """What will run: the tier kept, the graph after all passes, and where each node goes."""

    tier: Tier
    graph: Graph
    placement: Placement


def tiers_to_try(found: Found, asked: Tier | None) -> tuple[Tier, ...]:
    """The tier asked for, else the strongest first; a backend that computes nothing promises nothing."""
    if asked is not None:
        return (asked,)
    claimed = {kernel.tier for table in found.backend.kernels() for kernel in table} if found.backend else set()
    return (Tier.NONE,) if claimed == {Tier.NONE} else (Tier.PORTABLE, Tier.INVARIANT)


def make_plan(found: Found, graph: Graph, asked: Tier | None) -> BackendPlan:
    """The tier asked for, or the strongest of portable and invariant that the backend has for every op.

    Stateless ops without a kernel fall back to the reference, which keeps every tier; each is reported.
    Unsupported names the op that stands in the way: a tier is never weakened silently.
    """
    if found.backend is None or found.caps is None:
        raise Unavailable(found.reason)
    plans, problems = [], []
    for tier in tiers_to_try(found, asked):
        try:
            check_tier(found.backend, found.caps, tier)
            has = supports(found.backend, tier)
            rewritten = run_pipeline(graph, has)
            plans.append(BackendPlan(tier, rewritten, place(rewritten, has, supports(FALLBACK, tier))))
            if not plans[-1].placement.reasons:
                return plans[-1]
        except Unsupported as error:
            problems.append(f"{found.name} cannot give {tier.label}: {error}")
    if not plans:
        raise Unsupported("; ".join(problems))
    return plans[0]


def weight_packers(backend: Backend, graph: Graph, placement: Placement, tier: Tier) -> dict[str, Packer]:
    """Return how the chosen kernels want each weight on the device. Raise Unsupported if two of them disagree.

    A weight that the fallback reads too stays in its own format: a packed one cannot be copied to the fallback.
    """
    asked: dict[str, dict[Packer | None, str]] = {}
    nodes = [n for n, where in zip(graph.nodes, placement.places, strict=True) if where == "device"]
    copied = {copy.value for copy in placement.copies if copy.is_constant}
    kernels = choose_kernels(backend, Graph(graph.inputs, tuple(nodes), ()), tier)
    for node, kernel in zip(nodes, kernels, strict=True):
        for name, value in node.inputs.items():
            if value.name in graph.weights - copied:
                asked.setdefault(value.name, {})[kernel.prepack.get(name)] = kernel.name
    packers: dict[str, Packer] = {}
    for weight, wishes in asked.items():
        if len(wishes) > 1:
            raise Unsupported(f"{backend.name}: {' and '.join(wishes.values())} want {weight} packed differently")
        ((packer, _),) = wishes.items()
        if packer is not None:
            packers[weight] = packer
    return packers


def compile_plan(backend: Backend, plan: BackendPlan) -> Executable:
    """The plan's graph, on the backend alone or with the fallback for what it lacks."""
    if plan.placement.reasons:
        return FallbackExecutable(backend, FALLBACK, plan.graph, plan.placement, plan.tier)
    return backend.compile(plan.graph, plan.tier)
