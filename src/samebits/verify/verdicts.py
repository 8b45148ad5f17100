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

FAST_CHECKS = frozenset({"error", "guard", "input", "unwritten", "nan", "values", "reruns", "soak", "graph"})
CHECKS_OF = {
    Tier.FAST: FAST_CHECKS,
    Tier.INVARIANT: frozenset(CHECKS) - {"bits", "fusion", "flush"},
    Tier.PORTABLE: frozenset(CHECKS),
}
Find = Callable[[Tier, list[str]], Iterator[Finding]]  # (tier, where to note what was not compared)


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
        started, not_compared = time.perf_counter(), list[str]()
        findings = list(find(max(tiers), not_compared))
        seconds = (time.perf_counter() - started) / len(tiers)
        results += [verdict(task, tier, kernel.name, findings, seconds, tuple(not_compared)) for tier in tiers]
    return results


def verdict(
    task: Task, tier: Tier, kernel: str, findings: list[Finding], seconds: float, not_compared: tuple[str, ...]
) -> Result:
    """What findings mean at a tier; the first check that failed, in the order of CHECKS, is the reason."""
    order = list(CHECKS)
    relevant = sorted((f for f in findings if f.check in CHECKS_OF[tier]), key=lambda f: order.index(f.check))
    common = {"kernel": kernel, "seconds": seconds, "not_compared": not_compared}
    if not relevant:
        return Result(task.op, task.case, tier.label, "pass", **common)  # type: ignore[arg-type]
    reason = f"{relevant[0].check}: {relevant[0].where}"
    blame = {"findings": tuple(relevant), "replay": task.replay}
    return Result(task.op, task.case, tier.label, "fail", reason, **blame, **common)  # type: ignore[arg-type]
