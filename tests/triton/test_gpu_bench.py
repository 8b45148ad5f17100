"""`samebits bench ops` on a GPU: what it would time is served, and a small case goes all the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from samebits.backends.gpu.backend import CudaBackend
from samebits.backends.gpu.buffers import GpuBuffer
from samebits.backends.interface import Buffer, Stopwatch
from samebits.bench.gpu_ops import GpuCase, compiled, gpu_cases, product, time_gpu_case
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
    timing = time_gpu_case(Clocked(stopwatch), stopwatch, case, Tier.PORTABLE, CEILINGS, lambda *_: None)
    assert timing is not None
    assert stopwatch.num_runs == 4 * stopwatch.cache_bytes // case.num_bytes + 1  # an input set each
    assert timing.bytes_per_second == case.num_bytes
    assert timing.share == case.num_bytes / 1e12


def test_a_time_over_refused_values_is_no_time() -> None:
    backend = Clocked(spoiling := Spoiling())
    with pytest.raises(BadInput, match="gemm: x: got NaN"):
        time_gpu_case(backend, spoiling, product("bf16", 2, (16, 32)), Tier.PORTABLE, CEILINGS, lambda *_: None)
    backend.sync()
