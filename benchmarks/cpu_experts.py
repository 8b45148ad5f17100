"""A mixture's feed-forward layer against a dense one of as many multiply-adds: `python benchmarks/cpu_experts.py`.

8 experts of 1536 on a width of 576, the best 2 of a token, q4_0; beside it one layer of 3072. For a few tokens there
are so many layers that no last-level cache holds their weights, as in a model. Sides take turns, and the least of many
runs counts. On one thread it is the processor's time, which leaves out what else the machine does, and told by op too.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.backends.cpu import CpuBackend, CpuExecutable
from samebits.bench.random_weights import random_weight
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph, Value
from samebits.kernels.cpp.weights import pack_rows
from samebits.ops.build import OpBuilder

WIDTH, EXPERT_FFN, EXPERTS, RANKS, FORMAT = 576, 1536, 8, 2, "q4_0"
DENSE_FFN = EXPERT_FFN * RANKS
FEW_TOKENS = 16  # up to which weights are read faster than they are computed with
MIXTURE_LAYERS = 16


def weight(b: OpBuilder, layer: int, name: str, *shape: int) -> Value:
    return b.input(f"{layer}.{name}", TensorSpec(shape, FORMAT), "weight")


def num_layers(num_tokens: int, bytes_of_a_mixture: float) -> int:
    """Layers of a graph, fewer where each has more bytes of weights; one where time does not depend on them."""
    return int(MIXTURE_LAYERS / bytes_of_a_mixture) if num_tokens <= FEW_TOKENS else 1


def mixture(num_tokens: int) -> Graph:
    b = OpBuilder()
    x = b.input("x", TensorSpec((num_tokens, WIDTH), "f32"))
    for layer in range(num_layers(num_tokens, 1)):
        logits = b.input(f"{layer}.logits", TensorSpec((num_tokens, EXPERTS), "f32"))
        ids, weights = b.route(logits, top_k=RANKS, normalize=True)
        pairs, segments = b.expert_layout(ids, num_experts=EXPERTS)
        gate, down = (
            weight(b, layer, "gate", EXPERTS, 2 * EXPERT_FFN, WIDTH),
            weight(b, layer, "down", EXPERTS, WIDTH, EXPERT_FFN),
        )
        hidden = b.expert_gate_q8(*b.quantize_q8(b.rms_norm(x)), gate, pairs, segments)
        x = b.add(x, b.combine(b.expert_gemm_q8(*hidden, down, pairs, segments), weights))
    return b.finish(x)


def dense(num_tokens: int) -> Graph:
    b = OpBuilder()
    x = b.input("x", TensorSpec((num_tokens, WIDTH), "f32"))
    for layer in range(num_layers(num_tokens, RANKS / EXPERTS)):
        gate, down = weight(b, layer, "gate", 2 * DENSE_FFN, WIDTH), weight(b, layer, "down", WIDTH, DENSE_FFN)
        hidden = b.gemm_silu_q8(*b.quantize_q8(b.rms_norm(x)), gate)
        x = b.add(x, b.gemm_q8(*hidden, down))
    return b.finish(x)


@dataclass
class Side:
    """A graph on the backend with its inputs bound, and the least times of its runs."""

    executable: CpuExecutable
    clock: Callable[[], float]
    seconds: float = math.inf  # of a run
    of_calls: np.ndarray | None = None  # of each call of it, by the wall's clock

    def run(self) -> None:
        started = self.clock()
        self.executable.run()
        self.seconds = min(self.seconds, self.clock() - started)
        calls = np.array([seconds for _, seconds in self.executable.program.seconds()])
        self.of_calls = calls if self.of_calls is None else np.minimum(calls, self.of_calls)

    @property
    def by_op(self) -> dict[str, float]:
        """Microseconds of a layer by op, the least of each call."""
        names = [name for name, _ in self.executable.program.seconds()]
        taken = np.zeros(0) if self.of_calls is None else self.of_calls
        layers = names.count("quantize_q8")
        return {op: 1e6 * float(taken[[n == op for n in names]].sum()) / layers for op in dict.fromkeys(names)}

    @property
    def us_of_layer(self) -> float:
        return 1e6 * self.seconds / [name for name, _ in self.executable.program.seconds()].count("quantize_q8")


def opened(backend: CpuBackend, graph: Graph, clock: Callable[[], float]) -> Side:
    executable = backend.compile(graph, Tier.PORTABLE)
    for number, value in enumerate(graph.inputs):
        shape = value.spec.upper_shape
        if value.name in graph.kinds:
            buffer = backend.adopt_packed(pack_rows, random_weight(FORMAT, shape, number))
        else:
            buffer = backend.alloc(value.spec)
            backend.copy_in(buffer, Stream(value.name).normal(shape).astype(np.float32))
        executable.bind(value.name, buffer)
    executable.run()
    executable.program.measure()
    return Side(executable, clock)


def report(num_tokens: int, ours: Side, theirs: Side, by_op: bool) -> None:
    ratio = theirs.us_of_layer / ours.us_of_layer
    print(
        f"{num_tokens} tokens: {ours.us_of_layer:.1f} us a layer, dense {theirs.us_of_layer:.1f} us, ratio {ratio:.3f}"
    )
    if not by_op:
        return
    products = []
    for side in (ours, theirs):
        print("   ", ", ".join(f"{op} {us:.1f}" for op, us in side.by_op.items()))
        products.append(sum(us for op, us in side.by_op.items() if "gemm" in op or "gate" in op))
    print(f"    products alone: ratio {products[1] / products[0]:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 512])
    asked = parser.parse_args()
    backend = CpuBackend()
    backend.set_threads(asked.threads)
    clock = time.thread_time if asked.threads == 1 else time.perf_counter
    print(f"{backend.probe().device}; ratios above 1: the mixture is faster")
    for num_tokens in asked.tokens:
        ours, theirs = (opened(backend, make(num_tokens), clock) for make in (mixture, dense))
        stop = time.perf_counter() + asked.seconds
        while time.perf_counter() < stop:
            ours.run()
            theirs.run()
        report(num_tokens, ours, theirs, asked.threads == 1)


if __name__ == "__main__":
    main()
