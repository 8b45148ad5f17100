"""Caches beyond 2^31 elements: a full run plays them, without memory for the pages before those it uses."""

from __future__ import annotations

import resource

import pytest

from samebits.backends import discovery
from samebits.ops import OPS
from samebits.verify.examine import examine
from samebits.verify.far import FAR_ROWS
from samebits.verify.model import FAR
from samebits.verify.select import op_tasks, prefix_of

TIERS = ("fast", "invariant", "portable")
MOST_KIB = 1 << 20


@pytest.mark.parametrize("name", FAR_ROWS)
def test_native_kernels_reach_the_end_of_a_large_cache(name: str) -> None:
    found = discovery.get("cpu")
    assert found.backend is not None
    assert found.caps is not None
    (task,) = [t for t in op_tasks("cpu", TIERS, OPS[name], True, 0) if prefix_of(t.case) == FAR]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [r.status for r in examine(found.backend, found.caps, task)] == ["pass"] * 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


@pytest.mark.parametrize("name", FAR_ROWS)
def test_a_quick_run_has_no_such_cache(name: str) -> None:
    assert not [t for t in op_tasks("cpu", TIERS, OPS[name], False, 0) if prefix_of(t.case) == FAR]
