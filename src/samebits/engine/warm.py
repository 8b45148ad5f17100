"""All kernels of a model compiled ahead, without its weights and without memory on the device."""

from __future__ import annotations

from samebits.backends.discovery import Found
from samebits.backends.interface import Compilation, CompileProgress
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.engine.copier import copy_graph, page_graphs
from samebits.engine.plan import compile_plan, make_plan
from samebits.engine.sampler import Sampler
from samebits.models.checkpoint import Checkpoint, build_step
from samebits.models.parts import Limits
from samebits.models.parts.state import tensor_groups


def warm(
    checkpoint: Checkpoint,
    found: Found,
    limits: Limits,
    numerics: str | None = None,
    progress: CompileProgress | None = None,
) -> tuple[Tier, Compilation]:
    """(the tier, what was compiled) for steps of all sizes, sampling and copies of pages and slots.

    BadInput for a backend that compiles nothing at run time.
    """
    backend = found.backend
    if backend is None:
        raise Unavailable(found.reason)
    if not backend.compiles_kernels:
        raise BadInput("warm", "backend", found.name, "one that compiles kernels at run time, such as cuda")
    step = build_step(checkpoint, limits)
    plan = make_plan(found, step.graph, Tier.parse(numerics) if numerics else None)
    compile_plan(backend, plan).compile_ahead()
    Sampler(found, plan.tier, checkpoint.config.vocab_size, limits.max_tokens, limits.max_sequences)  # starts its own
    caches = {v.name: v.spec for v in plan.graph.inputs if plan.graph.kinds.get(v.name) == "cache"}
    copies = list(page_graphs(caches, tensor_groups(step.states, step.windows)).values())
    for tensors in (step.slot_tensors, step.resumable_tensors):
        if tensors:
            copies.append(copy_graph(caches, [(name,) for name in tensors], "copy_slots"))
    for graph in copies:
        backend.compile(graph, plan.tier).compile_ahead(is_needed_first=False)
    return plan.tier, backend.await_compiled(progress, everything=True)
