"""Products of block weights on a GPU that kernels/cuda serves: `python benchmarks/gpu_products.py [--format q4_0 ...]`.

Microseconds of the product alone, its activations laid out, as a tier serves it: launches one after another in a graph,
on copies of the weight that together exceed the last cache. Beside the fast tier's stands the share of the roof: what
reading the weight once at 4.4 TB/s takes, or its multiplications at 777 TFLOP/s, whichever is longer.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import samebits.formats  # noqa: F401  registers them
from samebits.core.format import FORMATS
from samebits.kernels.cuda.products import launch
from samebits.kernels.cuda.products.shapes import WideShape
from samebits.kernels.triton.lib.tensors import Tiled
from samebits.kernels.triton.lib.weights import plane_views, tiled_bytes, with_power
from samebits.kernels.triton.products.blocks.few.launch import gemv_q8
from samebits.kernels.triton.products.blocks.many.activations import arranged
from samebits.kernels.triton.products.fast.activations import fragments

OF_A_LAYER = ((28672, 4096), (4096, 14336), (6144, 4096), (4096, 4096))  # of the 7.4B llama of gpu_bars.py
SIZE = (14336, 4096)
NAMES = ("q4_0", "q8_0", "q6_k", "q4_1", "q4_k", "nvfp4")
TOKENS = (1, 8, 16, 32, 64, 128)
COLD_BYTES = 260 << 20  # of all copies of a weight
BYTES_PER_US, OPS_PER_US = 4.4e6, 777e6
REPLAYS = 7
Launch = Callable[[Tiled], object]


def random_weight(name: str, num_rows: int, k: int) -> Tiled:
    """Random codes, with scales that keep every value small."""
    shape, device = (num_rows, k), torch.device("cuda")
    data = torch.randint(0, 256, (tiled_bytes(FORMATS[name], shape),), dtype=torch.uint8, device=device)
    weight = Tiled(FORMATS[name], shape, data, 1.0)
    for plane, view in plane_views(weight).items():
        if plane in ("d", "m"):
            halves = torch.rand(view.shape[0], view.shape[1] // 2, device=device) * 0.01 + 0.001
            view.copy_(halves.half().view(torch.uint8))
        elif plane in ("sub", "msub") and name != "q6_k":
            view.random_(0x20, 0x40)  # six bits; e4m3 from 2^-3 on
    return with_power(weight)


def served(num_tokens: int, weight: Tiled, tier: str) -> Launch:
    """The launch of a product with random activations."""
    k, device = weight.shape[1], weight.data.device
    codes = torch.randint(-127, 128, (num_tokens, k), dtype=torch.int8, device=device)
    scales = torch.rand(num_tokens, k // 32, device=device) * 0.01 + 0.001
    if num_tokens == 1:
        return lambda w: gemv_q8(codes, scales, w)
    y = torch.empty(num_tokens, weight.shape[0], device=device)
    if tier == "portable" or launch.takes_fused(num_tokens, weight):
        exact = launch.exact_shape_of(num_tokens, weight, device, tier == "fast")
        laid = arranged(codes, scales, weight.format.name, exact.nt, "gemm_q8")
        return lambda w: launch.multiply_exact(*laid, w, None, y, exact)
    shape = launch.fast_shape_of(num_tokens, weight, device)
    x, row_scale = fragments(codes, scales, "gemm_q8", shape.nt, isinstance(shape, WideShape))
    return lambda w: launch.multiply_fast(x, row_scale, w, None, y, shape)


def microseconds(run: Launch, copies: list[Tiled]) -> float:
    run(copies[0])  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in copies:
            run(weight)
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(copies))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--format",
        action="append",
        choices=NAMES,
        help="a format of weights to take; all if absent",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    asked = parser.parse_args()
    if not (torch.cuda.is_available() and launch.is_served(torch.device("cuda"))):
        raise SystemExit(
            "there is no GPU here that kernels/cuda serves: an NVIDIA Hopper, such as an H200, and NVRTC are needed"
        )
    console, results = Console(), []
    for tier in ("fast", "portable"):
        table = Table(title=f"{tier}: microseconds" + (", share of the roof" if tier == "fast" else ""))
        for column in ("weight", "1 token", *(f"{tokens} tokens" for tokens in TOKENS[1:])):
            table.add_column(column)
        for name in asked.format or NAMES:
            for num_rows, k in (*(OF_A_LAYER if name == "q4_0" else ()), SIZE):
                weight = random_weight(name, num_rows, k)
                size = weight.data.numel()
                copies = [weight] + [
                    Tiled(weight.format, weight.shape, weight.data.clone(), 1.0) for _ in range(COLD_BYTES // size)
                ]
                cells = []
                for tokens in TOKENS:
                    taken = microseconds(served(tokens, weight, tier), copies)
                    roof = max(size / BYTES_PER_US, 2 * num_rows * k * tokens / OPS_PER_US)
                    cells.append(f"{taken:.1f} ({roof / taken:.0%})" if tier == "fast" else f"{taken:.1f}")
                    of = {"tier": tier, "format": name, "rows": num_rows, "k": k, "tokens": tokens}
                    results.append({**of, "microseconds": taken})
                table.add_row(f"{name} {num_rows} x {k}", *cells)
                if asked.json:
                    asked.json.write_text(json.dumps(results, indent=1))
        console.print(table)


if __name__ == "__main__":
    main()
