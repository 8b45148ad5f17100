"""Verify GPU kernels on activations whose heads or rows lie more than 2^31 elements apart in the GPU's memory.

python tools/sweep_far.py --gigabytes 100
python tools/sweep_far.py --op rope --op paged_attention --count 200

Runs small drawn cases of every op on `cuda`, each kernel once. Before a launch, one activation is copied into a view
of a tensor of gigabytes, so that the kernel reads it with strides that no int32 holds.
Prints each difference from the definition, and exits with 1 if there is one. Needs a GPU with much memory.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import torch

from samebits.backends.discovery import get
from samebits.backends.gpu.executable import GpuExecutable
from samebits.backends.interface import Backend
from samebits.backends.support import choose_kernel
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.graph import Node
from samebits.kernels.record import Kernel
from samebits.ops import OPS, Op, bind, evaluate, make_inputs
from samebits.ops.record import Case
from samebits.verify.bounds import Judge
from samebits.verify.harness import execute
from samebits.verify.locate import same_bits
from samebits.verify.select import drawn_ids, find_case

FAR_ELEMENTS = (1 << 31) + 4096  # between neighbours; a multiple of every alignment that kernels ask for
TIERS = (Tier.PORTABLE, Tier.INVARIANT, Tier.FAST)


def activations(op: Op) -> list[str]:
    """Return the names of the inputs that a step computes: no weights, caches, or tensors that the op writes."""
    fixed = {*op.weights, *op.caches, *op.writes}
    return [tensor.name for tensor in op.inputs if tensor.name not in fixed]


def far_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes of a far copy, or 0 if there are no neighbours to move apart."""
    if len(shape) < 2 or 0 in shape:
        return 0
    return (
        ((shape[axis_of(shape)] - 1) * FAR_ELEMENTS + math.prod(shape)) * itemsize if shape[axis_of(shape)] > 1 else 0
    )


def axis_of(shape: tuple[int, ...]) -> int:
    """Return the axis to stretch: heads, or rows if there is one head or no axis of heads."""
    return 1 if len(shape) > 2 and shape[1] > 1 else 0


def far_copy(near: torch.Tensor) -> torch.Tensor:
    """Return a copy with FAR_ELEMENTS between neighbours."""
    axis = axis_of(tuple(near.shape))
    strides, step = [0] * near.ndim, 1
    for n in reversed([n for n in range(near.ndim) if n != axis]):
        strides[n] = step
        step *= near.shape[n]
    strides[axis] = FAR_ELEMENTS
    num_elements = far_bytes(tuple(near.shape), 1)
    memory = torch.empty(num_elements, dtype=near.dtype, device=near.device)
    return memory.as_strided(near.shape, strides).copy_(near)


@contextmanager
def moved_apart(name: str) -> Iterator[list[str]]:
    """Give launches inside a far copy of this input. Collects the kernels that got one."""
    launch = GpuExecutable._launch
    reached: list[str] = []

    def launch_far(self: GpuExecutable, node: Node, kernel: Kernel, values: Mapping[str, Any]) -> tuple[Any, ...]:
        if name in node.inputs and isinstance(values[node.inputs[name].name], torch.Tensor):
            reached.append(kernel.name)
            values = {**values, node.inputs[name].name: far_copy(values[node.inputs[name].name])}
        return launch(self, node, kernel, values)

    GpuExecutable._launch = launch_far  # type: ignore[method-assign]
    try:
        yield reached
    finally:
        GpuExecutable._launch = launch  # type: ignore[method-assign]


def tiers_of_kernels(backend: Backend, op: Op, case: Case) -> Iterator[Tier]:
    """Yield the strongest tier of each kernel that serves a case."""
    bound = bind(op, **make_inputs(op, case))
    seen: set[str] = set()
    for tier in TIERS:
        try:
            kernel = choose_kernel(backend, op, bound.specs, bound.attrs, tier)
        except Unsupported:
            continue
        if kernel.name not in seen:
            seen.add(kernel.name)
            yield tier


def check(backend: Backend, op: Op, case: Case, name: str) -> tuple[int, list[str]]:
    """Return how many kernels read the far activation, and what differs from the definition."""
    inputs = make_inputs(op, case)
    copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in inputs.items()}
    want: tuple[HostTensor, ...] = evaluate(bind(op, **copies))
    judge = Judge(bind(op, **inputs), want)
    found, kernels = [], 0
    for tier in tiers_of_kernels(backend, op, case):
        with moved_apart(name) as reached:
            outcome = execute(backend, op, inputs, tier)
        kernels += bool(reached)
        found += [f"{f.check} at {f.where}" for f in outcome.findings]
        for i, (result, got) in enumerate(zip(op.results, outcome.results, strict=False)):
            right = same_bits(got, want[i]) if tier is Tier.PORTABLE else not judge.outside(i, got).any()
            if not right:
                found.append(f"{result.name} differs at {tier.label}, {reached}")
    return kernels, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=sorted(op.name for op in OPS), help="only this op; repeatable")
    parser.add_argument("--count", type=int, default=24, help="the most cases of an op and an activation")
    parser.add_argument("--gigabytes", type=float, default=60.0, help="the most memory of one activation")
    parser.add_argument("--stop-after", type=float, default=1e9, help="start no more cases after this many seconds")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the cases")
    arguments = parser.parse_args()
    backend = get("cuda").backend
    if backend is None:
        parser.error(f"no cuda: {get('cuda').reason}")
    most_bytes, started = int(arguments.gigabytes * 1e9), time.monotonic()
    counts: dict[str, Counter[str]] = {}
    for op in [OPS[name] for name in arguments.op] if arguments.op else list(OPS):
        counts[op.name] = Counter()
        ids = drawn_ids(op, full=False, seed=arguments.seed)
        Random(arguments.seed).shuffle(ids)
        for name in activations(op):
            for case_id in ids:
                if counts[op.name][name] >= arguments.count or time.monotonic() - started > arguments.stop_after:
                    break
                case = find_case(op, case_id)
                x = make_inputs(op, case).get(name)
                if not isinstance(x, np.ndarray) or not 0 < far_bytes(x.shape, x.itemsize) <= most_bytes:
                    continue
                with np.errstate(all="ignore"):
                    kernels, found = check(backend, op, case, name)
                torch.cuda.empty_cache()  # the next activation has another size
                counts[op.name][name] += bool(kernels)
                counts[op.name]["wrong"] += bool(found)
                for finding in found:
                    print(f"FAIL {op.name} {case_id}: {name} far: {finding}", flush=True)
        print(f"{op.name:28}", *(f"{name} {number}" for name, number in counts[op.name].items()), flush=True)
    total = sum(counts.values(), Counter())
    print(
        f"{total.total() - total['wrong']} far activations, {total['wrong']} wrong, {time.monotonic() - started:.0f} s"
    )
    return 1 if total["wrong"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
