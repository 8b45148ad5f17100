"""From findings to one verdict per tier. A kernel that serves several tiers runs once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from samebits.backends.interface import Backend, Caps
from samebits.backends.support import check_tier, choose_kernel
from samebits.core.errors import Unsupported
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel
from samebits.ops import Op, bind
from samebits.verify.model import CHECKS, Finding, Result, Task
from samebits.verify.refusals import Comparisons

CRASHES = frozenset({"crash", "error", "refused"})  # failures at every tier
FAST_CHECKS = CRASHES | {"guard", "input", "unwritten", "nan", "values", "reruns", "soak", "graph"}
CHECKS_OF = {
    Tier.FAST: FAST_CHECKS,
    Tier.INVARIANT: frozenset(CHECKS) - {"bits", "fusion", "flush"},
    Tier.PORTABLE: frozenset(CHECKS),
}
Find = Callable[[Tier, Comparisons], Iterator[Finding]]  # (tier, where to note what was compared and what was not)


@np.errstate(over="ignore", invalid="ignore")  # some contents overflow; a backend may well be written in numpy
def verdicts(backend: Backend, caps: Caps, op: Op, inputs: dict[str, Any], task: Task, find: Find) -> list[Result]:
    """One result per tier asked for; tiers with one kernel share what is found at the strongest of them."""
    by_kernel: dict[str, tuple[Kernel, list[Tier]]] = {}
    results = []
    for tier in (Tier.parse(t) for t in task.tiers):
        try:
            check_tier(backend, caps, tier)
            bound = bind(op, **inputs)
            kernel = choose_kernel(backend, op, bound.specs, bound.attrs, tier)
        except Unsupported as error:
            results.append(Result(op.name, task.case, tier.label, "unsupported", str(error)))
            continue
        by_kernel.setdefault(kernel.name, (kernel, []))[1].append(tier)
    for kernel, tiers in by_kernel.values():
        results += judge(task, kernel.name, tiers, find)
    return results


def judge(task: Task, kernel: str, tiers: list[Tier], find: Find) -> list[Result]:
    """Return one result per tier from the findings at the strongest; "unsupported" if nothing could be compared."""
    started, compared = time.perf_counter(), Comparisons()
    try:
        findings = list(find(max(tiers), compared))
        if not findings and not compared.checks:
            raise Unsupported("; ".join(compared.refused) or "nothing was compared")
    except Unsupported as error:
        return [Result(task.op, task.case, tier.label, "unsupported", str(error), kernel=kernel) for tier in tiers]
    seconds = (time.perf_counter() - started) / len(tiers)
    return [verdict(task, tier, kernel, findings, seconds, compared) for tier in tiers]


def verdict(
    task: Task, tier: Tier, kernel: str, findings: list[Finding], seconds: float, compared: Comparisons
) -> Result:
    """What findings mean at a tier; the first check that failed, in the order of CHECKS, is the reason."""
    order = list(CHECKS)
    relevant = sorted((f for f in findings if f.check in CHECKS_OF[tier]), key=lambda f: order.index(f.check))
    checks = tuple(check for check in order if check in compared.checks and check in CHECKS_OF[tier])
    common = {"kernel": kernel, "seconds": seconds, "checks": checks, "not_compared": tuple(compared.refused)}
    if not relevant:
        return Result(task.op, task.case, tier.label, "pass", **common)  # type: ignore[arg-type]
    reason = f"{relevant[0].check}: {relevant[0].where}"
    blame = {"findings": tuple(relevant), "replay": task.replay}
    return Result(task.op, task.case, tier.label, "fail", reason, **blame, **common)  # type: ignore[arg-type]
