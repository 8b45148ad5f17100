"""Caches beyond 2^31 elements: a full run plays them, without memory for the pages before those it uses."""

from __future__ import annotations

import resource

import pytest
from hunt import quick_tasks

from samebits.backends import discovery
from samebits.ops import OPS
from samebits.verify.examine import examine
from samebits.verify.model import FAR, Task
from samebits.verify.select import far_ids, prefix_of

TIERS = ("fast", "invariant", "portable")
MOST_KIB = 1 << 20


@pytest.mark.parametrize("name", [op.name for op in OPS if far_ids(op)])
def test_native_kernels_reach_the_end_of_a_large_cache(name: str) -> None:
    found = discovery.get("cpu")
    assert found.backend is not None
    assert found.caps is not None
    (case,) = far_ids(OPS[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [r.status for r in examine(found.backend, found.caps, Task("cpu", name, case, TIERS))] == ["pass"] * 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


def test_quick_runs_have_no_such_cache() -> None:
    op = OPS["copy_kv_pages"]
    assert far_ids(op)
    assert not [task for task in quick_tasks(op.name) if prefix_of(task.case) == FAR]
