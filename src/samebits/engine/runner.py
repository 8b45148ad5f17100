"""A model on a backend: its compiled step, its weights and its caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend
from samebits.backends.support import candidates, check_tier, hide_batch
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.protocols import Checkpoint
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.engine.weights import Progress, upload, weight_spec
from samebits.graph import Graph, Node
from samebits.kernels.record import Request
from samebits.models import build_model
from samebits.models.parts import Limits
from samebits.ops import OPS


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
    logits: np.ndarray  # float32 [R, vocab]
    hidden: np.ndarray  # float32 [R, hidden], after the last norm


def supports(backend: Backend, tier: Tier) -> Callable[[Node], str | None]:
    """What passes ask: nothing where a kernel serves the node, else every refusal."""

    def ask(node: Node) -> str | None:
        op = OPS[node.op.name]
        specs = hide_batch(op, {name: value.spec for name, value in node.inputs.items()})
        kernel, reasons = candidates(backend, Request(op, specs, node.attrs, tier))
        return None if kernel else "; ".join(reasons)

    return ask


def resolve_tier(found: Found, graph: Graph, asked: Tier | None) -> Tier:
    """The tier asked for, or the strongest of portable and invariant that every op has here.

    Unsupported names the op that stands in the way; a tier is never weakened silently.
    """
    if found.backend is None or found.caps is None:
        raise Unavailable(found.reason)
    wanted = [asked] if asked is not None else [Tier.PORTABLE, Tier.INVARIANT]
    if asked is None and found.name == "null":
        return Tier.NONE
    problem = ""
    for tier in wanted:
        try:
            check_tier(found.backend, found.caps, tier)
        except Unsupported as error:
            problem = problem or str(error)
            continue
        ask = supports(found.backend, tier)
        refused = next(((n.op.name, why) for n in graph.nodes if (why := ask(n))), None)
        if refused is None:
            return tier
        problem = problem or f"{found.name} cannot give {tier.label}: {refused[0]}: {refused[1]}"
    raise Unsupported(problem)


class Runner:
    """Executes steps. Caches stay on the device between them; pages are the caller's to assign."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        found: Found,
        limits: Limits,
        numerics: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        hp = checkpoint.hyperparameters
        graph = build_model(checkpoint.architecture, hp, weight_spec(checkpoint), limits)
        self.tier = resolve_tier(found, graph, Tier.parse(numerics) if numerics else None)
        if found.backend is None:
            raise Unavailable(found.reason)
        self.backend, self.limits, self.graph = found.backend, limits, graph
        self._executable = found.backend.compile(self.graph, self.tier)
        self._steps = {v.name: v.spec for v in self.graph.inputs if v.name in {f.name for f in fields(StepBatch)}}
        caches = {v.name: v.spec for v in self.graph.inputs if v.name.endswith("_cache")}
        weights = {v.name: v.spec for v in self.graph.inputs if v.name not in self._steps and v.name not in caches}
        for name, buffer in upload(found.backend, checkpoint, weights, {}, progress).items():
            self._executable.bind(name, buffer)
        for name, spec in caches.items():
            self._executable.bind(name, found.backend.alloc(spec))

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
            buffer = self.backend.alloc(TensorSpec((len(array),), "i32"))
            self.backend.copy_in(buffer, np.ascontiguousarray(array, np.int32))
            self._executable.bind(name, buffer)
        self._executable.prepare(dims)
        self._executable.run()
        self.backend.sync()
        logits, hidden = (self.backend.copy_out(self._executable.output(i)) for i in (0, 1))
        return StepResult(np.asarray(logits), np.asarray(hidden))
