"""A quick part of `samebits verify --backend webgpu`, in this process: every op with a WGSL kernel, on small cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.core.format import Packed
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops import OPS, Op, make_inputs
from samebits.ops.record import Case
from samebits.verify.checks import verify_case
from samebits.verify.model import Task

WITH_KERNELS = sorted({kernel.op.name for kernel in wgsl_kernels()})
MOST_CASES = 2  # of an op: `samebits verify` runs them all
MOST_BYTES = 256 << 10  # of all inputs of a case


def num_bytes(inputs: dict[str, Any]) -> int:
    arrays = [x.data if isinstance(x, Packed) else x for x in inputs.values()]
    return sum(x.nbytes for x in arrays if isinstance(x, np.ndarray))


def small_first(op: Op) -> list[Case]:
    """Quick cases with names, by the bytes of their inputs."""
    sizes = {case.id: num_bytes(make_inputs(op, case)) for case in op.cases if not case.full}
    cases = [case for case in op.cases if sizes.get(case.id, MOST_BYTES) < MOST_BYTES]
    return sorted(cases, key=lambda case: sizes[case.id])


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_small_cases_pass_every_check(webgpu: Backend, name: str) -> None:
    """Cases that the kernels refuse are passed over; an op of which nothing is served fails."""
    op, passed = OPS[name], 0
    for case in small_first(op):
        task = Task("webgpu", name, case.id, ("portable",))
        (result,) = verify_case(webgpu, webgpu.probe(), op, case, task)
        assert result.status != "fail", f"{result.reason}; {result.replay}"
        passed += result.status == "pass"
        if passed == MOST_CASES:
            break
    assert passed, "the kernels serve no small case"
