"""One task on one backend: a case, an executable that runs many times, or a graph."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.backends.interface import Backend, Caps
from samebits.core.tiers import Tier
from samebits.ops import OPS, Op, make_inputs
from samebits.ops.record import Case
from samebits.verify.checks import verify_case
from samebits.verify.far import FarExamination
from samebits.verify.graph_cases import GRAPH_CASES
from samebits.verify.graphs import verify_graph
from samebits.verify.input_sets import calls_of, many_rows
from samebits.verify.model import FAR, GRAPH, RERUNS, SOAK, Finding, Result, Task
from samebits.verify.other_attrs import other_attrs, other_attrs_findings
from samebits.verify.refusals import Comparisons
from samebits.verify.reruns import rerun_findings, shared_buffer_findings
from samebits.verify.select import case_of
from samebits.verify.soak import FULL_RUNS, QUICK_RUNS, soak_findings
from samebits.verify.verdicts import verdicts


def examine(backend: Backend, caps: Caps, task: Task) -> list[Result]:
    """One result per tier asked for."""
    if task.op == GRAPH:
        case = next(c for c in GRAPH_CASES if c.id == task.case)
        return verify_graph(backend, caps, case, task.tiers, task.seed)
    op = OPS[task.op]
    if not any(table[op.name] for table in backend.kernels()):  # inputs would be made for nothing
        reason = f"{backend.name} has no kernel for {op.name}"
        return [Result(op.name, task.case, tier, "unsupported", reason) for tier in task.tiers]
    chosen = case_of(task)
    if task.case.startswith(RERUNS):
        return _reruns(backend, caps, op, chosen, task)
    if task.case.startswith(SOAK):
        return _soak(backend, caps, op, chosen, task)
    if task.case.startswith(FAR):
        return _far(backend, caps, op, chosen, task)
    return verify_case(backend, caps, op, chosen, task)


def _reruns(backend: Backend, caps: Caps, op: Op, case: Case, task: Task) -> list[Result]:
    calls = calls_of(op, case, task.seed)

    def find(tier: Tier, compared: Comparisons) -> Iterator[Finding]:
        yield from rerun_findings(backend, op, calls, tier, compared)
        yield from shared_buffer_findings(backend, op, calls["first"], tier, compared)
        yield from other_attrs_findings(backend, op, calls["first"], other_attrs(op, case.id), tier, compared)

    return verdicts(backend, caps, op, calls["first"], task, find)


def _far(backend: Backend, caps: Caps, op: Op, case: Case, task: Task) -> list[Result]:
    inputs = make_inputs(op, case, task.seed)

    def find(tier: Tier, compared: Comparisons) -> Iterator[Finding]:
        return FarExamination(backend, op, inputs, tier, compared).findings()

    return verdicts(backend, caps, op, inputs, task, find)


def _soak(backend: Backend, caps: Caps, op: Op, case: Case, task: Task) -> list[Result]:
    inputs, num_runs = make_inputs(op, case, task.seed), FULL_RUNS if task.is_long else QUICK_RUNS
    inputs = many_rows(op, inputs) or inputs  # more than one tile, where the case allows it

    def find(tier: Tier, compared: Comparisons) -> Iterator[Finding]:
        return soak_findings(backend, op, inputs, tier, num_runs, compared)

    return verdicts(backend, caps, op, inputs, task, find)
