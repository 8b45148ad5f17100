"""CPU time per token of the ops with states in slots, on one thread: `python benchmarks/cpu_recurrence.py`.

Thread time, so that what else runs on the machine counts little; the least of many runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.ops import OPS, bind

SECONDS_A_ROW = 1.0
SCENES = {  # the positions at which sequences go on, and tokens of each
    "decode 1, a chunk's first token": ((32,), 1),
    "decode 1, its eighth": ((39,), 1),
    "decode 1, its last": ((47,), 1),
    "decode 8, its eighth": ((39,) * 8, 1),
    "prefill 512": ((0,), 512),
}
Inputs = dict[str, Any]


def made(name: str, shape: tuple[int, ...], magnitude: float = 1.0) -> np.ndarray:
    return Stream(name).normal(shape, magnitude).astype(np.float32)


def falling(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return -np.abs(made(name, shape, 0.1))


def delta_inputs(tokens: int, slots: int, key_heads: int, heads: int, size: int) -> Inputs:
    rows, keys = (tokens, heads), (tokens, key_heads, size)
    return {
        "q": made("q", keys, size**-0.5),
        "k": made("k", keys, size**-0.5),
        "v": made("v", (*rows, size)),
        "a": made("a", rows),
        "b": made("b", rows),
        "decay": falling("decay", (heads,)),
        "dt_bias": made("dt_bias", (heads,)),
        "state": made("state", (slots, heads, size, size), 0.1),
        "ring": falling("ring", (slots, 16, (key_heads + heads) * size + heads)),
        "scale": size**-0.5,
    }


def ssm_inputs(tokens: int, slots: int, groups: int, heads: int, depth: int, width: int) -> Inputs:
    return {
        "x": made("x", (tokens, heads, width)),
        "dt": made("dt", (tokens, heads)),
        "B": made("B", (tokens, groups, depth), depth**-0.5),
        "C": made("C", (tokens, groups, depth), depth**-0.5),
        "decay": falling("decay", (heads,)),
        "dt_bias": made("dt_bias", (heads,)),
        "state": made("state", (slots, heads, depth, width), 0.1),
        "ring": falling("ring", (slots, 16, groups * depth + heads * width + heads)),
        "D": made("D", (heads,)),
    }


def conv_inputs(tokens: int, slots: int, channels: int, taps: int) -> Inputs:
    return {
        "x": made("x", (tokens, channels)),
        "weight": made("weight", (channels, taps)),
        "carry": made("carry", (slots, 2, taps - 1, channels)),
        "activation": "silu",
    }


SIZES: dict[tuple[str, str], Callable[[int, int], Inputs]] = {
    ("gated_delta_rule", "16 and 32 heads of 128"): lambda t, n: delta_inputs(t, n, 16, 32, 128),
    ("gated_delta_rule", "4 and 8 heads of 64"): lambda t, n: delta_inputs(t, n, 4, 8, 64),
    ("ssm_scan", "64 heads of 128 x 64"): lambda t, n: ssm_inputs(t, n, 1, 64, 128, 64),
    ("causal_conv", "8192 channels, 4 taps"): lambda t, n: conv_inputs(t, n, 8192, 4),
}


def least_seconds(op_name: str, inputs: Inputs, firsts: tuple[int, ...], count: int) -> float:
    backend = CpuBackend()
    backend.set_threads(1)
    positions = np.concatenate([np.arange(first, first + count) for first in firsts])
    indices = {
        "qo_indptr": np.arange(len(firsts) + 1) * count,
        "positions": positions,
        "slots": np.arange(len(firsts)),
    }
    bound = bind(OPS[op_name], **inputs, **{name: x.astype(np.int32) for name, x in indices.items()})
    op = OneOp(backend, bound.op, bound.specs, bound.attrs, Tier.PORTABLE)
    op.put(bound.tensors)
    op.run()
    samples, stop = [], time.perf_counter() + SECONDS_A_ROW
    while time.perf_counter() < stop:
        started = time.thread_time()
        op.executable.run()
        samples.append(time.thread_time() - started)
    return min(samples)


def main() -> None:
    for (op_name, label), make in SIZES.items():
        for scene, (firsts, count) in SCENES.items():
            tokens = len(firsts) * count
            seconds = least_seconds(op_name, make(tokens, len(firsts)), firsts, count)
            print(f"{op_name}, {label}; {scene}: {seconds / tokens * 1e6:.1f} us a token", flush=True)


if __name__ == "__main__":
    main()
