"""Times on the device's own clock: many launches in one captured graph; and what the device itself reaches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import torch

from samebits.backends.gpu.buffers import GpuBuffer
from samebits.backends.interface import Buffer, Stopwatch
from samebits.core.shapes import TensorSpec
from samebits.kernels.triton.lib.tensors import DTYPES

REPEATS = 12
MIN_RUNS = 20  # in one graph: less would time its launch
CEILING_BYTES = 2 << 30
GEMM_SIZE = 8192


class GpuStopwatch(Stopwatch):
    """See the interface."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)

    def random(self, spec: TensorSpec, seed: int) -> Buffer:
        generator = torch.Generator(self._device).manual_seed(seed)
        shape, dtype = spec.upper_shape, DTYPES[spec.format]
        tensor = torch.empty(shape, dtype=dtype, device=self._device)
        for rows in tensor.view(-1, shape[-1]).split(max(1, (1 << 26) // shape[-1])):  # no float32 copy of all of it
            rows.copy_(torch.randn(rows.shape, device=self._device, generator=generator))
        return GpuBuffer(spec, tensor)

    def samples(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        turns = list(islice(cycle(runs), max(MIN_RUNS, len(runs))))
        for run in turns[:2]:
            run()
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for run in turns:
                run()
        graph.replay()
        samples = []
        for _ in range(REPEATS):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            samples.append(start.elapsed_time(stop) * 1e-3 / len(turns))
        return samples

    def ceilings(self) -> dict[str, float]:
        words = torch.empty(CEILING_BYTES // 4, dtype=torch.float32, device=self._device).normal_()
        other = torch.empty_like(words)
        a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, device=self._device).bfloat16() for _ in range(2))
        return {
            "read bytes/s": CEILING_BYTES / self._median(words.amax),
            "copy bytes/s": 2 * CEILING_BYTES / self._median(lambda: other.copy_(words)),
            "bf16 operations/s": 2 * GEMM_SIZE**3 / self._median(lambda: a @ b),
        }

    def _median(self, run: Callable[[], object]) -> float:
        return statistics.median(self.samples([run]))
