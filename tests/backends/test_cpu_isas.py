"""Every instruction set that this CPU has gives the reference's bits, forced one by one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from samebits.backends.cpu import ISA_VARIABLE, CpuBackend
from samebits.core.errors import BadInput, Unavailable, Unsupported
from samebits.core.format import FORMATS
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.record import Case
from samebits.verify.checks import verify_case
from samebits.verify.harness import execute, same_bytes
from samebits.verify.model import Task

try:
    ISAS = native().isas()
except Unavailable:
    ISAS = []
pytestmark = pytest.mark.skipif(not ISAS, reason="native kernels are not built")
CASES_AN_OP = 2  # the first ones, for every check; tests/native compares the bits of all small cases on every set
KERNEL_A_FORMAT = ("gemm", "gemm_q8")  # of weights: all their small cases


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op_name", native().ops(ISAS[0]) if ISAS else [])
def test_first_cases_of_every_op(isa: str, op_name: str) -> None:
    backend, op = CpuBackend(isa), OPS[op_name]
    caps = backend.probe()
    quick = [case for case in op.cases if not case.full]
    small = [case for case in quick if case.id.startswith("small-")] if op_name in KERNEL_A_FORMAT else []
    for case in small or quick[:CASES_AN_OP]:
        task = Task("cpu", op_name, case.id, tiers=(Tier.PORTABLE.label,))
        (result,) = verify_case(backend, caps, op, case, task)
        assert result.status == "pass", f"{case.id}: {result.reason}"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", ["q4_0", "q6_k", "q8_0", "f16"])
def test_tokens_beyond_whole_tiles(isa: str, fmt: str) -> None:
    backend, op = CpuBackend(isa), OPS["gemm"]
    for num_tokens in (1, 2, 4, 5, 7, 8, 11, 16, 19, 33, 47):  # tiles are of 8, 4, 2, 1; those of AMX of 16
        inputs = make_inputs(op, Case("tokens", {"T": num_tokens, "N": 24, "K": 256}, {}, {"weight": fmt}))
        got = execute(backend, op, inputs, Tier.PORTABLE).results
        assert same_bytes(got[0], evaluate(bind(op, **inputs))[0]), f"{num_tokens} tokens"


@pytest.mark.parametrize("isa", ISAS)
def test_the_variable_chooses_a_set(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, isa)
    assert CpuBackend().probe().device.startswith(f"{isa}, ")
    assert native().ops(isa) == native().ops("scalar")


def test_the_scalar_path_is_always_there_and_comes_last() -> None:
    assert ISAS[-1] == "scalar"


def test_a_set_this_cpu_lacks_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "abacus")
    with pytest.raises(BadInput, match=r"cpu: SAMEBITS_CPU_ISA is abacus, but must be one of .*scalar"):
        CpuBackend().probe()


def test_the_command_line_says_no_more_than_that_line() -> None:
    command = [sys.executable, "-m", "samebits.cli.main", "verify", "--backend", "cpu", "--op", "add"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, ISA_VARIABLE: "abacus"})
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert f"cpu: {ISA_VARIABLE} is abacus, but must be one of {', '.join(ISAS)}" in done.stderr


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_soft_cap_does_not_hide_what_is_no_number(isa: str, dtype: type) -> None:
    x = np.array([[np.nan, 1.0, -np.nan, np.inf, -np.inf] * 5], dtype)
    (got,) = execute(CpuBackend(isa), OPS["soft_cap"], {"x": x, "cap": 30.0}, Tier.PORTABLE).results
    assert np.array_equal(np.isnan(got), np.isnan(x))
    assert (np.abs(got[np.isinf(x)]) == 30).all()


def test_a_table_of_half_blocks_is_refused_and_not_misread() -> None:
    table = FORMATS["nvfp4"].pack(np.ones((3, 48), np.float32))
    with pytest.raises(Unsupported, match="a multiple of 32, not 48"):
        execute(CpuBackend(), OPS["embedding"], {"table": table, "ids": np.zeros(2, np.int32)}, Tier.PORTABLE)
