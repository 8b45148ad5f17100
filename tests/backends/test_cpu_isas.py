"""Every instruction set that this CPU has gives the reference's bits, forced one by one."""

from __future__ import annotations

import pytest

from samebits.backends.cpu import ISA_VARIABLE, CpuBackend
from samebits.core.errors import BadInput, Unavailable
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS
from samebits.verify.checks import verify_case
from samebits.verify.model import Task

try:
    ISAS = native().isas()
except Unavailable:
    ISAS = []
pytestmark = pytest.mark.skipif(not ISAS, reason="native kernels are not built")
CASES_AN_OP = 4  # the first ones, which differ most in format; `samebits verify` runs them all


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op_name", [op.name for op in OPS])
def test_first_cases_of_every_op(isa: str, op_name: str) -> None:
    backend, op = CpuBackend(isa), OPS[op_name]
    caps = backend.probe()
    for case in [case for case in op.cases if not case.full][:CASES_AN_OP]:
        task = Task("cpu", op_name, case.id, tiers=(Tier.PORTABLE.label,))
        (result,) = verify_case(backend, caps, op, case, task)
        assert result.status == "pass", f"{case.id}: {result.reason}"


def test_the_scalar_path_is_always_there_and_comes_last() -> None:
    assert ISAS[-1] == "scalar"


def test_a_set_this_cpu_lacks_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "abacus")
    with pytest.raises(BadInput, match=r"cpu: SAMEBITS_CPU_ISA: got abacus; needs one of .*scalar"):
        CpuBackend().probe()
