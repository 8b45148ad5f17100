"""µs of paged_attention on webgpu at the default model's sizes, beside the native backend, whose bits it must have.

python benchmarks/webgpu_attention.py [--format f16] [--case decode-512]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from samebits.backends.discovery import get
from samebits.backends.interface import Backend
from samebits.backends.one_op import OneOp
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.ops.evaluate import bind
from samebits.ops.kv_cases import attention_case, attention_inputs

HEADS = {"heads": 3, "group": 3, "head": 64}
CASES: dict[str, dict[str, Any]] = {
    "decode-64": {"lengths": (64,), "queries": (1,)},
    "decode-512": {"lengths": (512,), "queries": (1,)},
    "decode-2048": {"lengths": (2048,), "queries": (1,)},
    "decode-512-batch-8": {"lengths": (512,) * 8, "queries": (1,) * 8},
    "prefill-512": {"lengths": (512,), "queries": (512,)},
}
SECONDS = 0.5  # of a measurement
RUNS = 8  # between two waits


def seconds_per_run(backend: Backend, run: Callable[[], None]) -> float:
    """The least of several measurements; waiting is shared by RUNS runs."""
    run()
    backend.sync()
    best, stop = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < stop:
        started = time.perf_counter()
        for _ in range(RUNS):
            run()
        backend.sync()
        best = min(best, (time.perf_counter() - started) / RUNS)
    return best


def measured(name: str, backend: Backend, fmt: str) -> tuple[float, np.ndarray]:
    """(seconds, result) of a case."""
    case = attention_case(name, k=fmt, v=fmt, **HEADS, **CASES[name])
    op = OPS["paged_attention"]
    inputs = attention_inputs(op, case, Stream("webgpu_attention"))
    bound = bind(op, **inputs, **case.attrs)
    one = OneOp(backend, op, bound.specs, bound.attrs, Tier.PORTABLE)
    one.put(bound.tensors)
    one.run()
    result = one.result(0)
    return seconds_per_run(backend, one.executable.run), np.asarray(result)


def backend_of(name: str) -> Backend:
    backend = get(name).backend
    if backend is None:
        raise SystemExit(f"{name}: {get(name).reason}")
    return backend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", default="f16")
    parser.add_argument("--case", choices=CASES, action="append")
    given = parser.parse_args()
    print(f"{'case':20} {'webgpu µs':>10} {'cpu µs':>10}  bits")
    for name in given.case or CASES:
        seconds, result = measured(name, backend_of("webgpu"), given.format)
        native_seconds, native = measured(name, backend_of("cpu"), given.format)
        is_same = bool((result.view(np.uint32) == native.view(np.uint32)).all())
        print(f"{name:20} {seconds * 1e6:10.0f} {native_seconds * 1e6:10.0f}  {'same' if is_same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
