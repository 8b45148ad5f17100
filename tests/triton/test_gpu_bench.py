"""`samebits bench ops` on a GPU: what it would time is served, and a small case goes all the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature

import pytest
import torch

from samebits.backends.gpu.backend import CudaBackend
from samebits.backends.gpu.buffers import GpuBuffer
from samebits.backends.interface import Buffer, Stopwatch
from samebits.bench.gpu_cases import GpuCase, attention_cases, gpu_cases, product
from samebits.bench.gpu_ops import Peer, compiled, time_gpu_case
from samebits.bench.peers import gpu_libraries
from samebits.cli.bench_gpu import attention_sizes
from samebits.core.errors import BadInput
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.tensors import DTYPES

CEILINGS = {"read bytes/s": 1e12, "bf16 operations/s": 1e14}


class Counting(Stopwatch):
    """Runs what it is given and says one second, in the middle."""

    cache_bytes = 1024

    def __init__(self) -> None:
        self.num_runs = 0

    def random(self, spec: TensorSpec, seed: int) -> Buffer:
        numbers = torch.randn(spec.shape, generator=torch.Generator().manual_seed(seed))
        return GpuBuffer(spec, (8 * numbers).to(DTYPES[spec.format]))

    def samples(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        for run in runs[:2]:
            run()
        self.num_runs += len(runs)
        return [0.5, 1.0, 3.0]

    def ceilings(self) -> dict[str, float]:
        return CEILINGS


class Clocked(CudaBackend):
    """The backend with a stopwatch of ours."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    def stopwatch(self) -> Stopwatch:  # type: ignore[override]
        return self._stopwatch


class Spoiling(Counting):
    """Makes inputs that hold a NaN."""

    def random(self, spec: TensorSpec, seed: int) -> Buffer:
        buffer = super().random(spec, seed)
        buffer.tensor.view(-1)[0] = torch.nan  # type: ignore[attr-defined]
        return buffer


@pytest.mark.parametrize("tier", list(Tier))
def test_every_case_has_a_kernel(tier: Tier) -> None:
    backend = CudaBackend()
    for case in gpu_cases(50 << 20):
        compiled(backend, case, tier)


@pytest.mark.parametrize("case", [product("q4_0", 3, (32, 64)), product("bf16", 2, (16, 32))], ids=str)
def test_a_case_is_run_and_measured_against_the_ceilings(case: GpuCase) -> None:
    stopwatch = Counting()
    timing = time_gpu_case(Clocked(stopwatch), stopwatch, case, Tier.PORTABLE, CEILINGS, lambda *_: [])
    assert timing is not None
    assert stopwatch.num_runs == 4 * stopwatch.cache_bytes // case.num_bytes + 1  # an input set each
    assert timing.bytes_per_second == case.num_bytes
    assert timing.share == case.num_bytes / 1e12


def test_the_fastest_peer_counts_and_one_that_fails_is_told() -> None:
    case, stopwatch = product("bf16", 2, (16, 32)), Counting()
    num_calls = 0

    def count() -> None:
        nonlocal num_calls
        num_calls += 1

    def fail() -> list[Callable[[], object]]:
        raise OSError("no compiler\nand more")

    peers = [Peer("slow", fail), Peer("other", lambda: [count, count])]
    timing = time_gpu_case(Clocked(stopwatch), stopwatch, case, Tier.PORTABLE, CEILINGS, lambda *_: peers)
    assert timing is not None
    assert (timing.peer_name, timing.peer_seconds, num_calls) == ("other", 1.0, 2)
    assert timing.peer_failures == ("slow: OSError: no compiler",)


def test_sizes_that_are_asked_for() -> None:
    sizes = attention_sizes("3,5", "100")
    assert sizes == [(3, 100), (5, 100)]
    assert [case.name for case in attention_cases(1 << 20, sizes, sizes, [])] == [
        "decode, batch 3, context 100",
        "decode, batch 5, context 100",
        "prefill, 3 x 100",
        "prefill, 5 x 100",
    ]
    assert attention_sizes("", "") == []
    assert (64, 77) in attention_sizes("", "77")
    with pytest.raises(BadInput, match="--batch is '1;2', but must be numbers"):
        attention_sizes("1;2", "")


def test_flashinfer_takes_what_it_is_given() -> None:
    """Its documented parameters, as far as they can be seen without a GPU."""
    flashinfer = pytest.importorskip("flashinfer")
    decode, prefill = flashinfer.BatchDecodeWithPagedKVCacheWrapper, flashinfer.BatchPrefillWithPagedKVCacheWrapper
    signature(decode).bind("workspace", kv_layout="NHD", use_tensor_cores=True)
    signature(prefill).bind("workspace", kv_layout="NHD", backend="fa3")
    (case,) = attention_cases(1 << 10, [(2, 40)], [], [])
    tensors = {name: GpuBuffer(spec, torch.empty(spec.shape)).tensor for name, spec in case.device.items()}
    tensors |= {name: torch.from_numpy(make(0)) for name, make in case.host.items()}
    for wrapper, plan in ((decode, gpu_libraries.plan_decode), (prefill, gpu_libraries.plan_prefill)):
        plan(Signed(wrapper.plan), tensors)
        signature(wrapper.run).bind("self", "q", ("keys", "values"))
    assert callable(flashinfer.norm.rmsnorm)
    assert callable(flashinfer.activation.silu_and_mul)
    assert callable(flashinfer.sampling.top_k_mask_logits)


class Signed:
    """A wrapper whose `plan` only looks at how it is called."""

    def __init__(self, plan: Callable[..., None]) -> None:
        self._signature = signature(plan)

    def plan(self, *arguments: object, **options: object) -> None:
        self._signature.bind(self, *arguments, **options)


def test_a_time_over_refused_values_is_no_time() -> None:
    backend = Clocked(spoiling := Spoiling())
    with pytest.raises(BadInput, match="gemm: x has NaN"):
        time_gpu_case(backend, spoiling, product("bf16", 2, (16, 32)), Tier.PORTABLE, CEILINGS, lambda *_: [])
    backend.sync()
