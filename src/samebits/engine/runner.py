"""A model on a backend: its compiled step, its weights and its caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Buffer, Executable
from samebits.backends.reference import ReferenceBackend
from samebits.backends.support import candidates, check_tier, choose_kernels, hide_batch
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.protocols import Checkpoint
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.engine.placed import PlacedExecutable
from samebits.engine.weights import Packer, Progress, upload, weight_spec
from samebits.graph import Graph, Node
from samebits.kernels.record import Request
from samebits.models import build_model
from samebits.models.parts import Limits
from samebits.ops import OPS
from samebits.passes.pipeline import run_pipeline
from samebits.passes.place import Placement, place

FALLBACK = ReferenceBackend()


@dataclass(frozen=True)
class StepBatch:
    """One step's work, all int32. Names and shapes are those of the graph's inputs."""

    token_ids: np.ndarray  # [T]
    positions: np.ndarray  # [T]
    batch_indices: np.ndarray  # [T]
    qo_indptr: np.ndarray  # [B+1]
    kv_indptr: np.ndarray  # [B+1]
    kv_indices: np.ndarray  # [pages]
    kv_last_page_len: np.ndarray  # [B]
    out_rows: np.ndarray  # [R], rows whose logits are wanted


@dataclass(frozen=True)
class StepResult:
    """What a step computed; the arrays hold it until the next step."""

    logits: np.ndarray  # float32 [R, vocab]
    hidden: np.ndarray  # float32 [R, hidden], after the last norm


def supports(backend: Backend, tier: Tier) -> Callable[[Node], str | None]:
    """What passes ask: nothing where a kernel serves the node, else every refusal. Layers repeat: asked once each."""
    answers: dict[object, str | None] = {}

    def ask(node: Node) -> str | None:
        given = tuple((name, value.spec) for name, value in node.inputs.items())
        key = (node.op.name, given, tuple(node.attrs.items()))
        if key not in answers:
            op = OPS[node.op.name]
            kernel, reasons = candidates(backend, Request(op, hide_batch(op, dict(given)), node.attrs, tier))
            answers[key] = None if kernel else "; ".join(reasons)
        return answers[key]

    return ask


@dataclass(frozen=True)
class Plan:
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


def make_plan(found: Found, graph: Graph, asked: Tier | None) -> Plan:
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
            plans.append(Plan(tier, rewritten, place(rewritten, has, supports(FALLBACK, tier))))
            if not plans[-1].placement.reasons:
                return plans[-1]
        except Unsupported as error:
            problems.append(f"{found.name} cannot give {tier.label}: {error}")
    if not plans:
        raise Unsupported("; ".join(problems))
    return plans[0]


def weight_packers(backend: Backend, graph: Graph, placement: Placement, tier: Tier) -> dict[str, Packer]:
    """How the chosen kernels want each weight on the device; Unsupported where two of them disagree."""
    asked: dict[str, dict[Packer | None, str]] = {}
    nodes = [n for n, where in zip(graph.nodes, placement.places, strict=True) if where == "device"]
    kernels = choose_kernels(backend, Graph(graph.inputs, tuple(nodes), ()), tier)
    for node, kernel in zip(nodes, kernels, strict=True):
        for name, value in node.inputs.items():
            if graph.kinds.get(value.name) == "weight":
                asked.setdefault(value.name, {})[kernel.prepack.get(name)] = kernel.name
    packers: dict[str, Packer] = {}
    for weight, wishes in asked.items():
        if len(wishes) > 1:
            raise Unsupported(f"{backend.name}: {' and '.join(wishes.values())} want {weight} packed differently")
        ((packer, _),) = wishes.items()
        if packer is not None:
            packers[weight] = packer
    return packers


class Runner:
    """Executes steps. Caches stay on the device between them; pages are the caller's to assign."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        found: Found,
        limits: Limits,
        numerics: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        hp = checkpoint.hyperparameters
        if found.backend is None:
            raise Unavailable(found.reason)
        graph = build_model(checkpoint.architecture, hp, weight_spec(checkpoint), limits)
        plan = make_plan(found, graph, Tier.parse(numerics) if numerics else None)
        self.backend, self.limits = found.backend, limits
        if threads is not None:
            self.backend.set_threads(threads)
        self.tier, self.graph, self.fallbacks = plan.tier, plan.graph, plan.placement.reasons
        self._executable: Executable = (
            PlacedExecutable(self.backend, FALLBACK, self.graph, plan.placement, self.tier)
            if self.fallbacks
            else self.backend.compile(self.graph, self.tier)
        )
        specs: dict[str, dict[str, TensorSpec]] = {"step": {}, "weight": {}, "cache": {}}
        for value in self.graph.inputs:
            specs[self.graph.kinds.get(value.name, "step")][value.name] = value.spec
        self._steps = specs["step"]
        self._step_buffers: dict[str, Buffer] = {}  # as long as the last step's; most steps are like the one before
        packers = weight_packers(self.backend, self.graph, plan.placement, self.tier)
        weights = upload(self.backend, checkpoint, specs["weight"], self.graph.joined, packers, progress)
        for name, buffer in weights.items():
            self._executable.bind(name, buffer)
        for name, spec in specs["cache"].items():
            self._executable.bind(name, self.backend.alloc(spec, self._executable.layout(name)))

    def run(self, batch: StepBatch) -> StepResult:
        """Runs one step; BadInput when it is larger than the graph was built for."""
        dims = {}
        for name, spec in self._steps.items():
            array = getattr(batch, name)
            dim = spec.shape[0]
            if isinstance(dim, Sym):
                if len(array) > dim.upper:
                    raise BadInput("step", name, f"{len(array)} entries", f"at most {dim.upper}")
                dims[dim.name] = (len(array) - dim.plus) // dim.factor
            buffer = self._step_buffers.get(name)
            if buffer is None or buffer.spec.shape != array.shape:
                buffer = self._step_buffers[name] = self.backend.alloc(TensorSpec(array.shape, "i32"))
                self._executable.bind(name, buffer)
            self.backend.copy_in(buffer, np.ascontiguousarray(array, np.int32))
        self._executable.prepare(dims)
        self._executable.run()
        self.backend.sync()
        logits, hidden = (self.backend.peek(self._executable.output(i)) for i in (0, 1))
        return StepResult(np.asarray(logits), np.asarray(hidden))
