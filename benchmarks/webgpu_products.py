"""Microseconds of a product on the WebGPU device, by shape and tokens: `python benchmarks/webgpu_products.py`.

All dispatches of a product, many times over in one submission. Beside the wall clock the process's own time:
on a software driver it is the work done, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from samebits.backends.webgpu.backend import WebGpuBackend
from samebits.backends.webgpu.schedule import Schedules
from samebits.core.format import FORMATS, BlockFormat
from samebits.kernels.wgsl.lib.launch import Call, Dispatch, Operand
from samebits.kernels.wgsl.products.packing import pack
from samebits.kernels.wgsl.table import wgsl_kernels

SHAPES = {  # of SmolLM2-135M
    "qkv": ("gemm_q8", "q4_1", 960, 576),
    "out": ("gemm_q8", "q4_1", 576, 576),
    "gate and up": ("gemm_silu_q8", "q4_1", 3072, 576),
    "down": ("gemm_q8", "q4_1", 576, 1536),
    "head": ("gemm_q8", "q8_0", 49152, 576),
}
OTHERS = {
    fmt: ("gemm" if fmt in ("f32", "f16", "bf16") else "gemm_q8", fmt, 1024, 1024)
    for fmt in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "f32", "f16", "bf16")
}


def weight_of(fmt: str, n: int, k: int) -> object:
    """A random weight."""
    values = np.random.default_rng(0).standard_normal((n, k), np.float32)
    found = FORMATS[fmt]
    return found.pack(values) if isinstance(found, BlockFormat) else values.astype(found.dtype)


class Product:
    """One product on the device, ready to be sent."""

    def __init__(self, backend: WebGpuBackend, op: str, fmt: str, n: int, k: int, num_tokens: int) -> None:
        self._backend, self._memories = backend, []
        start = time.perf_counter()
        packed = pack(weight_of(fmt, n, k))  # type: ignore[arg-type]
        self.pack_s = time.perf_counter() - start
        inputs = {"weight": backend.adopt_packed(lambda _: packed, weight_of(fmt, n, k)).weight}  # type: ignore[arg-type]
        if op == "gemm":
            inputs["x"] = self._operand("f32", num_tokens, k)
        else:
            inputs |= {"codes": self._operand("i8", num_tokens, k), "scales": self._operand("f32", num_tokens, k // 32)}
        outputs = (self._operand("f32", num_tokens, n),)
        if op == "gemm_silu_q8":
            outputs = (self._operand("i8", num_tokens, n // 2), self._operand("f32", num_tokens, n // 64))
        name = {"gemm": "gemm_dense"}.get(op, op)
        kernel = next(kernel for kernel in wgsl_kernels()[op] if kernel.run.__name__ == name)
        found: list[Dispatch] = kernel.run(Call(inputs, outputs, {}, self._scratch))
        self.num_dispatches = len(found)
        self._schedule = Schedules(backend.gpu, backend.faults).get((num_tokens,), lambda: found)

    def _operand(self, fmt: str, rows: int, width: int) -> Operand:
        memory = self._backend.gpu.buffer(rows * width * FORMATS[fmt].block_bytes)
        return Operand(fmt, (rows, width), memory, 0, width)

    def _scratch(self, num_words: int) -> Operand:
        return Operand("u32", (num_words,), self._backend.gpu.buffer(4 * num_words))

    def seconds(self, repeats: int) -> tuple[float, float]:
        """(wall, processor) of so many runs in one submission."""
        gpu = self._backend.gpu
        encoder = gpu.device.create_command_encoder()
        for _ in range(repeats):
            self._schedule.encode(encoder)
        commands = encoder.finish()
        gpu.read(self._backend.faults, 4)
        wall, cpu = time.perf_counter(), time.process_time()
        gpu.queue.submit([commands])
        gpu.read(self._backend.faults, 4)
        return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="1,8,64", help="numbers of tokens")
    parser.add_argument("--formats", action="store_true", help="all formats on one shape instead of a model's shapes")
    parser.add_argument("--only", help="the row of this name")
    options = parser.parse_args()
    backend = WebGpuBackend()
    rows = OTHERS if options.formats else SHAPES
    print(backend.gpu.name)
    print(f"{'row':12} {'tokens':>6} {'dispatches':>10} {'us':>9} {'cpu us':>9} {'GMAC/s of a core':>17}")
    for name, (op, fmt, n, k) in rows.items():
        if options.only not in (None, name):
            continue
        for tokens in map(int, options.tokens.split(",")):
            product = Product(backend, op, fmt, n, k, tokens)
            product.seconds(1)
            repeats = max(2, min(50, 20_000_000 // (n * k * tokens)))
            wall, cpu = (
                min(times) / repeats for times in zip(*(product.seconds(repeats) for _ in range(3)), strict=True)
            )
            rate = n * k * tokens / cpu / 1e9
            print(
                f"{name:12} {tokens:6} {product.num_dispatches:10} {wall * 1e6:9.0f} {cpu * 1e6:9.0f} {rate:17.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
