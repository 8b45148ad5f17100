"""A quick part of `samebits verify --backend webgpu`, in this process: every op with a WGSL kernel, on small cases."""

from __future__ import annotations

import pytest
from small_cases import WITH_KERNELS, small_first

from samebits.backends.interface import Backend
from samebits.ops import OPS
from samebits.verify.checks import verify_case
from samebits.verify.model import Task

MOST_CASES = 2  # of an op: `samebits verify` runs them all


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_small_cases_pass_every_check(webgpu: Backend, name: str) -> None:
    """Cases that the kernels refuse are passed over; an op of which nothing is served fails."""
    op, passed = OPS[name], 0
    for case in small_first(name):
        task = Task("webgpu", name, case.id, ("portable",))
        (result,) = verify_case(webgpu, webgpu.probe(), op, case, task)
        assert result.status != "fail", f"{result.reason}; {result.replay}"
        passed += result.status == "pass"
        if passed == MOST_CASES:
            break
    assert passed, "the kernels serve no small case"
