"""What a refusal means: agreed ones leave comparisons out, others fail the case, and neither is ever a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from planted_refusals import RaisesAt33Rows, SecondRunRefused, SeveralNodesRefused

from samebits.backends.interface import Backend
from samebits.backends.reference import ReferenceBackend, ReferenceExecutable
from samebits.core.errors import Unsupported
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits.verify.examine import examine
from samebits.verify.model import GRAPH, Finding, Result, Task
from samebits.verify.refusals import Comparisons, has_open_sizes
from samebits.verify.verdicts import judge

TIERS = ("fast", "invariant", "portable")


class FixedSizes(ReferenceBackend):
    """Refuses sizes that are known only at run time, as every backend may."""

    def compile(self, graph: Graph, tier: Tier) -> ReferenceExecutable:
        if has_open_sizes(graph):
            raise Unsupported("sizes must be known")
        return super().compile(graph, tier)


class OnlyFast(ReferenceBackend):
    """Has one kernel, which promises no bits and has no room for a second tile of 32 rows."""

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("toy")

        @table.implements("add", tier=Tier.FAST)
        def add(x: Any, y: Any) -> Any:
            if len(x) == 33:
                raise RuntimeError("no room for tile 1")
            return (x + y,)

        return (table,)


def verdicts(backend: Backend, op: str, case: str) -> dict[str, Result]:
    results = examine(backend, backend.probe(), Task(backend.name, op, case, TIERS))
    return {r.tier: r for r in results}


def test_graphs_that_are_refused_although_every_node_has_a_kernel_fail_at_every_tier() -> None:
    for result in verdicts(SeveralNodesRefused(), GRAPH, "rows-0").values():
        assert (result.status, result.reason.partition(":")[0]) == ("fail", "refused")
        assert "one node at a time" in result.reason


def test_an_executable_that_refuses_to_run_again_fails_at_every_tier() -> None:
    for case in ("reruns:small-f32", "soak:small-f32"):
        for result in verdicts(SecondRunRefused(), "add", case).values():
            assert (result.status, result.reason.partition(":")[0]) == ("fail", "refused")


@pytest.mark.parametrize(("op", "case"), [("add", "reruns:small-f32"), (GRAPH, "rows-0")])
def test_open_sizes_may_be_refused_and_the_report_says_so(op: str, case: str) -> None:
    for result in verdicts(FixedSizes(), op, case).values():
        assert result.status == "pass"
        assert any("sizes must be known" in text for text in result.not_compared)
        assert result.checks


def test_a_crash_in_an_equivalent_call_fails_at_every_tier() -> None:
    for result in verdicts(RaisesAt33Rows(), "add", "small-f32").values():
        assert result.status == "fail"
        assert result.reason.startswith("error: batch-size, 33 rows")


def test_a_fast_kernel_is_not_excused_from_crashes() -> None:
    found = verdicts(OnlyFast(), "add", "small-f32")
    assert found["fast"].reason.startswith("error: 33 rows along ... instead of 3: RuntimeError: no room for tile 1")
    assert found["invariant"].status == "unsupported"


@pytest.mark.parametrize("raises", [True, False])
def test_a_case_of_which_nothing_was_compared_is_unsupported_with_the_reasons(raises: bool) -> None:
    def find(tier: Tier, compared: Comparisons) -> Iterator[Finding]:
        if raises:
            raise Unsupported("no kernel for x")
        compared.refuse("graph, node for node", Unsupported("no kernel for x"))
        yield from ()

    (result,) = judge(Task("toy", "add", "small-f32", TIERS), "", [Tier.FAST], find)
    assert result.status == "unsupported"
    assert "no kernel for x" in result.reason
    assert result.checks == ()


def test_a_result_names_the_checks_that_were_made_at_its_tier() -> None:
    found = verdicts(ReferenceBackend(), "add", "small-f32")
    assert {"values", "guard", "nan"} <= set(found["fast"].checks) <= set(found["portable"].checks)
    assert "bits" in found["portable"].checks
    assert "bits" not in found["invariant"].checks
    assert "batch-size" not in found["fast"].checks
