"""What is proven, what is hashed, in which order cases run and what is shown of it: without running a backend."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from samebits.backends.discovery import get
from samebits.cli import verify_progress
from samebits.cli.verify_progress import VerifyProgress, in_words
from samebits.ops import OPS
from samebits.verify.model import GRAPH, Result, Status, Task
from samebits.verify.order import breadth_first
from samebits.verify.proof import TIERS, num_missing, prove
from samebits.verify.report import Run, verdicts_sha256
from samebits.verify.select import tasks_for

EVERY_OP = (GRAPH, *(op.name for op in OPS))
SOME_OPS = (GRAPH, "add", "gemm_q8", "softmax", "rope", "argmax", "top_k_mask_logits", "combine", "copy_slots")


def verdicts(
    statuses: Mapping[str, Status], tier: str = "fast", case: str = "small", usual: Status = "pass"
) -> list[Result]:
    """One result of every op, with the usual status unless `statuses` names another."""
    return [Result(op, case, tier, statuses.get(op, usual)) for op in EVERY_OP]


def said(results: list[Result], missing: int = 0, is_whole: bool = True, by_case: bool = False) -> str:
    return str(prove(results, missing=missing, is_whole=is_whole, by_case=by_case))


def test_a_whole_run_without_failures_proves_its_tiers() -> None:
    assert said([r for tier in TIERS for r in verdicts({}, tier)]) == "proven: fast, invariant, portable"


def test_a_failure_leaves_the_other_ops_of_its_tier_and_the_other_tiers() -> None:
    found = prove([*verdicts({}), *verdicts({"add": "fail"}, "portable")], missing=0, is_whole=True, by_case=False)
    assert found.whole_tiers == ["fast"]
    assert found.tiers["portable"].not_proven == ("add",)
    assert set(found.tiers["portable"].proven) == {*EVERY_OP} - {"add"}


@pytest.mark.parametrize("status", ["fail", "unfinished"])
def test_neither_failures_nor_unfinished_cases_are_outweighed_by_passes(status: Status) -> None:
    results = [*verdicts({}), Result("add", "other", "fast", status)]
    assert prove(results, missing=0, is_whole=True, by_case=False).whole_tiers == []


def test_a_pass_among_unsupported_ops_proves_that_op_alone() -> None:
    text = said(verdicts({"add": "pass"}, usual="unsupported"))
    assert text.startswith("proven for add: fast; unsupported: graph, ")
    assert "proven: fast" not in text


def test_a_fused_op_without_a_kernel_leaves_the_tier_proven_and_is_named() -> None:
    assert OPS["fused_add_rms_norm"].decompose is not None
    text = said(verdicts({"fused_add_rms_norm": "unsupported"}))
    assert text == "proven: fast; unsupported: fused_add_rms_norm"
    assert not said(verdicts({GRAPH: "unsupported"})).startswith("proven: fast")
    assert not said(verdicts({"add": "unsupported"})).startswith("proven: fast")


def test_a_run_of_some_ops_or_cases_says_of_what_it_is_a_proof() -> None:
    results = [Result("add", "one-row", tier, "pass") for tier in TIERS]
    assert said(results, is_whole=False) == "proven for add: fast, invariant, portable"
    assert said(results, is_whole=False, by_case=True) == "proven for add/one-row: fast, invariant, portable"


def test_an_interrupted_run_proves_nothing() -> None:
    tasks = [Task("cpu", "add", case, TIERS) for case in ("one-row", "small-f32")]
    results = [Result("add", "one-row", "fast", "pass")]
    assert num_missing(tasks, results) == 1
    assert said(results, missing=1) == "proven: nothing, since 1 cases did not run"
    assert prove(results, missing=1, is_whole=True, by_case=False).as_json() == {}


def run_of(**other: Any) -> Run:
    results = [Result("add", "small", "fast", "pass", checks=("values",))]
    return replace(Run(get("reference"), results, 1.0, "quick", {}, (0, 0)), **other)


CHANGES: dict[str, dict[str, Any]] = {
    "set": {"drawn": "full"},
    "seed": {"seeds": (1, 1)},
    "selection": {"selection": {"op": "add"}},
    "interruption": {"num_missing": 1},
    "status": {"results": [Result("add", "small", "fast", "fail", checks=("values",))]},
    "case": {"results": [Result("add", "other", "fast", "pass", checks=("values",))]},
    "checks": {"results": [Result("add", "small", "fast", "pass", checks=("values", "nan"))]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_hash_of_verdicts_covers(change: str) -> None:
    assert verdicts_sha256(run_of(**CHANGES[change])) != verdicts_sha256(run_of())


def test_the_hash_of_verdicts_does_not_cover_times_and_order() -> None:
    results = [Result("add", case, "fast", "pass", seconds=2.0) for case in ("a", "b")]
    turned = [replace(r, seconds=3.0) for r in reversed(results)]
    assert verdicts_sha256(run_of(results=results)) == verdicts_sha256(run_of(results=turned, seconds=9.0))


@pytest.mark.parametrize(
    ("statuses", "missing", "status"),
    [
        (("pass", "unsupported"), 0, 0),
        (("pass", "fail", "unfinished"), 0, 1),
        (("unsupported",), 0, 1),
        (("pass", "unfinished"), 0, 3),
        (("pass", "fail"), 1, 130),
    ],
)
def test_the_exit_status_says_how_a_run_ended(statuses: tuple[Status, ...], missing: int, status: int) -> None:
    results = [Result("add", str(i), "fast", s) for i, s in enumerate(statuses)]
    assert run_of(results=results, num_missing=missing).exit_status == status


def test_every_op_comes_first_and_then_all_evenly() -> None:
    tasks = [task for op in SOME_OPS for task in tasks_for("cpu", TIERS, op=op, case=None, dims={}, full=False, seed=0)]
    order = breadth_first(tasks)
    assert Counter((t.op, t.case) for t in order) == Counter((t.op, t.case) for t in tasks)
    assert {task.op for task in order[: len(SOME_OPS)]} == set(SOME_OPS)
    assert not any(":" in task.case or "=" in task.case for task in order[: len(SOME_OPS)])
    half = order[: len(order) // 2]
    for op in SOME_OPS:
        share = sum(task.op == op for task in half) / sum(task.op == op for task in tasks)
        assert 0.3 < share < 0.8, op
    soaks = [task.case.startswith("soak:") for task in order]
    assert 0.3 < sum(soaks[: len(soaks) // 2]) / sum(soaks) < 0.7


def test_without_a_terminal_lines_tell_what_is_done_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *(n * 6.0 for n in range(1, 50) for _ in range(2))])
    monkeypatch.setattr(verify_progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    with VerifyProgress(Console(file=out), total=4, jobs=1) as progress:
        for case, status in enumerate(("pass", "fail", "pass", "pass")):
            progress.advance([Result("add", str(case), "fast", status, "y[0] differs")])  # type: ignore[arg-type]
    first, *lines = out.getvalue().splitlines()
    assert first.startswith("4 cases; native CPU kernels take about ")
    assert len(lines) == 3
    assert lines[0] == "FAIL add/1 at fast: y[0] differs"
    assert lines[1].startswith("2 of 4 cases, 1 failed, about ")
    assert lines[1].endswith(" left")


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (75, "75 s"), (200, "3 min"), (9000, "2 h")])
def test_a_time_is_said_as_well_as_it_is_known(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
