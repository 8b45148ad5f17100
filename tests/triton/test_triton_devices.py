"""What is served where: kernels that are invariant on some GPUs alone refuse the tier on the others."""

from __future__ import annotations

from typing import Any

import pytest
from triton.backends.compiler import GPUTarget

from samebits.backends.gpu.backend import DescribedCuda
from samebits.backends.support import candidates, choose_kernel, op_call, strongest_tier
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.devices import DeviceFacts, parsed_facts
from samebits.kernels.triton.table import triton_kernels
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.record import Case

COMPARED = ["sm_80/108", "sm_89/128", "sm_90/132"]
NOT_COMPARED = ["sm_100/148", "sm_120/170", "gfx942/304", "gfx1100/48"]
INVARIANT = {kernel.op.name for kernel in triton_kernels() if kernel.tier is Tier.INVARIANT}


def a_gpu(text: str) -> DescribedCuda:
    arch, _, count = text.partition("/")
    if arch.startswith("gfx"):
        return DescribedCuda(DeviceFacts(GPUTarget("hip", arch, 64), int(count)))
    return DescribedCuda(parsed_facts(text))


def call_of(op: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call that the op's invariant kernel serves: 16-bit weights or caches."""
    named = "decode-cuts" if op == "paged_attention" else "small-f16"
    case: Case = next(case for case in OPS[op].cases if case.id == named)
    bound = bind(OPS[op], **make_inputs(OPS[op], case))
    return dict(bound.specs), dict(bound.attrs)


def test_gemm_and_attention_have_kernels_of_the_tier() -> None:
    assert sorted(INVARIANT) == ["gemm", "paged_attention"]


@pytest.mark.parametrize("op", sorted(INVARIANT))
@pytest.mark.parametrize("gpu", COMPARED)
def test_gpus_whose_instructions_give_the_same_bits_serve_the_tier(gpu: str, op: str) -> None:
    assert choose_kernel(a_gpu(gpu), OPS[op], *call_of(op), Tier.INVARIANT).tier is Tier.INVARIANT


@pytest.mark.parametrize("op", sorted(INVARIANT))
@pytest.mark.parametrize("gpu", NOT_COMPARED)
def test_gpus_whose_instructions_were_never_compared_serve_it_by_portable_kernels(gpu: str, op: str) -> None:
    backend, (specs, attrs) = a_gpu(gpu), call_of(op)
    kernel, reasons = candidates(backend, op_call(OPS[op], specs, attrs, Tier.INVARIANT))
    assert kernel is not None
    assert kernel.tier is Tier.PORTABLE
    doubts = [reason for reason in reasons if "were never compared" in reason]
    assert len(doubts) == 1
    assert gpu.partition("/")[0] in doubts[0]
    assert strongest_tier(backend, backend.probe(), OPS[op], specs, attrs) is Tier.PORTABLE


@pytest.mark.parametrize("gpu", [*COMPARED, *NOT_COMPARED])
def test_fast_products_keep_their_tensor_cores_everywhere(gpu: str) -> None:
    assert choose_kernel(a_gpu(gpu), OPS["gemm"], *call_of("gemm"), Tier.FAST).run.__name__ == "gemm_tensor"
