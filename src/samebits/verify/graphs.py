"""Graphs of several nodes on a backend against their nodes one by one: as a model states them, and after the passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Caps
from samebits.backends.support import choose_kernels
from samebits.core.errors import Unsupported
from samebits.core.tiers import Tier
from samebits.engine.plan import BackendPlan, make_plan, weight_packers
from samebits.graph import Graph
from samebits.graph.uses import state_values
from samebits.verify.graph_blame import blame
from samebits.verify.graph_cases import GraphCase
from samebits.verify.graph_run import GraphRun, Manner, Results, evaluated
from samebits.verify.harness import raw_bytes
from samebits.verify.locate import first_difference, same_bits
from samebits.verify.model import GRAPH, Finding, Result, Task
from samebits.verify.refusals import Comparisons, crash, never_refused
from samebits.verify.scenes import POISON, Tensors
from samebits.verify.teams import drawn_teams
from samebits.verify.tolerance import is_far
from samebits.verify.verdicts import judge


@dataclass(frozen=True)
class Variant:
    """A graph that gives what the case's graph gives, and how it is run."""

    graph: Graph
    manner: Manner


def verify_graph(backend: Backend, caps: Caps, case: GraphCase, tiers: tuple[str, ...], seed: int) -> list[Result]:
    """One result per tier; tiers that the same kernels serve are run once, at the strongest."""
    graph = case.make(seed)
    found = Found(backend.name, "verify", backend, caps)
    by_kernels: dict[tuple[str, ...], list[tuple[Tier, BackendPlan]]] = {}
    results = []
    for tier in (Tier.parse(t) for t in tiers):
        try:
            plan = make_plan(found, graph, tier)
            if plan.placement.reasons:
                raise Unsupported(plan.placement.reasons[0])
            names = tuple(kernel.name for kernel in choose_kernels(backend, plan.graph, tier))
        except Unsupported as error:
            results.append(Result(GRAPH, case.id, tier.label, "unsupported", str(error)))
            continue
        by_kernels.setdefault(names, []).append((tier, plan))
    task = Task(backend.name, GRAPH, case.id, tiers, seed)
    for plans in by_kernels.values():
        plan = max(plans, key=lambda pair: pair[0])[1]

        def find(tier: Tier, compared: Comparisons, plan: BackendPlan = plan) -> Iterator[Finding]:
            return GraphExamination(backend, case, graph, plan, tier, seed, compared).findings()

        results += judge(task, "", [tier for tier, _ in plans], find)
    return results


class GraphExamination:
    """All checks of one case on one backend with one choice of kernels."""

    def __init__(
        self,
        backend: Backend,
        case: GraphCase,
        graph: Graph,
        plan: BackendPlan,
        tier: Tier,
        seed: int,
        compared: Comparisons,
    ) -> None:
        self._backend, self._graph, self._plan, self._tier = backend, graph, plan, tier
        self._case, self._compared = case, compared
        self._tensors = Tensors(graph, seed, case.script)
        self._teams = drawn_teams(case.id, seed)

    def findings(self) -> Iterator[Finding]:
        """The first thing that is wrong with each variant."""
        wanted = [[values[v.name] for v in self._graph.outputs] for values in evaluated(self._graph, self._tensors)]
        for place, make in (("node for node", self._as_it_is), ("after the passes", self._as_an_engine_runs_it)):
            try:
                for finding in self._examine(make(place), wanted):
                    yield Finding(finding.check, f"{place}, {finding.where}")
            except Unsupported as error:
                self._compared.refuse(f"graph, {place}", error)
            except Exception as error:  # any exception of a backend under test is its failure, with its text
                yield crash(error, f"{place}: ")
            else:
                self._compared.made("graph")

    def _as_it_is(self, place: str) -> Variant:
        """The case's graph in memory that is watched."""
        return Variant(self._graph, Manner(place, is_watched=True))

    def _as_an_engine_runs_it(self, place: str) -> Variant:
        """The graph after the passes, with its weights packed."""
        with never_refused():  # the plan has a kernel for every node, so its weights can be laid out
            packers = weight_packers(self._backend, self._plan.graph, self._plan.placement, self._tier)
        return Variant(self._plan.graph, Manner(place, is_fed=self._case.is_fed, packers=packers))

    def _examine(self, variant: Variant, wanted: list[Results]) -> Iterator[Finding]:
        """Run all steps, each on another team of threads, until one is wrong."""
        run = GraphRun(self._backend, variant.graph, self._tensors, self._tier, variant.manner)
        if run.refusal:
            self._compared.refused.append(f"graph, one executable for all sizes: {run.refusal}")
        for number, (arrays, dims) in enumerate(zip(self._tensors.steps, self._tensors.dims, strict=True)):
            before = run.caches() if self._tier == Tier.INVARIANT else {}
            team = next(self._teams)
            self._backend.set_threads(team)
            text = f"{team} threads, step {number + 1} of {len(wanted)} ({dims['T']} tokens): "
            try:
                results, strays = run.step(arrays, dims)
            except Unsupported:
                raise
            except Exception as error:  # any exception of a backend under test is its failure, with its text
                yield crash(error, text)
                return
            yield from (Finding(stray.check, text + stray.where) for stray in strays)
            wrong = self._first_wrong(results, wanted[number])
            if wrong is None and self._tier == Tier.INVARIANT:
                fresh = GraphRun(self._backend, variant.graph, self._tensors, self._tier, variant.manner, before)
                wrong = _other_bits(results, fresh.step(arrays, dims)[0])
            if wrong is not None:
                at = blame(self._backend, variant.graph, self._tensors, self._tier, variant.manner, number)
                yield Finding(wrong.check, text + wrong.where + at)
            if wrong is not None or strays:
                return

    def _first_wrong(self, results: Results, wanted: Results) -> Finding | None:
        """ "graph" for an output that is far from the definition's; "bits" for other bits where they are promised."""
        other_bits, state = None, state_values(self._graph)
        for value, got, want in zip(self._graph.outputs, results, wanted, strict=True):
            poisoned = (raw_bytes(want) == POISON).all(axis=-1) if value.name in state else None
            where = first_difference(got, want, ["axis"] * want.ndim, untouched=poisoned)
            if where is None:
                continue
            if is_far(got, want):
                return Finding("graph", f"%{value.name}: {where}")
            other_bits = other_bits or Finding("bits", f"%{value.name}: {where}")
        return other_bits if self._tier >= Tier.PORTABLE else None


def _other_bits(results: Results, fresh: Results) -> Finding | None:
    for i, (got, want) in enumerate(zip(results, fresh, strict=True)):
        if not same_bits(got, want):
            return Finding("run-to-run", f"output {i}: other bits than a fresh executable's")
    return None
