"""Timing and bit checks shared by the reduction-order prototypes."""

import os
import statistics
from functools import partial

import numpy as np
import torch

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRET else "cuda"
L2_BYTES = 60 * 2**20


def median_us(calls, repeats=12):
    """Median time of one call; `calls` rotate over input sets inside one CUDA graph."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / len(calls))
    return statistics.median(times)


def num_sets(bytes_per_call):
    """Input sets needed so that a rotation moves at least four times the L2."""
    return max(2, -(-4 * L2_BYTES // bytes_per_call))


def bits_differing(got, want):
    got = got.detach().cpu().numpy() if isinstance(got, torch.Tensor) else got
    want = want.detach().cpu().numpy() if isinstance(want, torch.Tensor) else want
    assert got.shape == want.shape, (got.shape, want.shape)
    assert got.dtype == want.dtype == np.float32
    return int((got.view(np.int32) != want.view(np.int32)).sum())


def require_same_bits(name, got, want):
    differing = bits_differing(got, want)
    if differing:
        raise AssertionError(f"{name}: {differing} of {want.size} outputs differ")


def chain(terms):
    """((0 + t0) + t1) + ... over the first axis, in the array's own type."""
    acc = np.zeros_like(terms[0])
    for term in terms:
        acc = acc + term
    return acc


def tree(terms):
    """Adjacent-pair tree over the first axis, which must be a power of two."""
    while len(terms) > 1:
        terms = terms[0::2] + terms[1::2]
    return terms[0]


def table(headers, rows):
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def rotated(fn, sets, *args):
    """At least twenty calls fn(x, *args), the sets x in turn."""
    return [partial(fn, x, *args) for x in sets] * max(1, 20 // len(sets))


def best_of(configs, fn, sets, *args):
    """(time, config) of the fastest fn(x, *args, config); one that does not compile or fit is skipped."""
    best = (float("inf"), None)
    for config in configs:
        try:
            time = median_us(rotated(fn, sets, *args, config))
        except Exception as error:
            print(f"  skipped {config}: {type(error).__name__}: {str(error)[:120]}", flush=True)
            continue
        best = min(best, (time, config), key=lambda pair: pair[0])
    return best
