"""`samebits bench ops` on a GPU: a case's time, inputs in turn beyond the last cache, beside ceilings and peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samebits.backends.interface import Backend, Buffer, Stopwatch
from samebits.backends.one_op import OneOp, weight_kinds
from samebits.backends.timing import time_runs
from samebits.bench.gpu_cases import ROTATION, GpuCase
from samebits.bench.random_weights import random_weight
from samebits.core.errors import Unsupported
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.ops.evaluate import spec_of


@dataclass(frozen=True)
class GpuTiming:
    """A case's time beside the device's ceilings and, where a library was there, its time."""

    case: GpuCase
    tier: str
    seconds: float
    ceilings: Mapping[str, float]
    peer_seconds: float | None = None
    peer_name: str = ""
    peer_failures: tuple[str, ...] = ()  # a line for each peer that could not do it

    @property
    def bytes_per_second(self) -> float:
        return self.case.num_bytes / self.seconds

    @property
    def operations_per_second(self) -> float:
        return self.case.num_operations / self.seconds

    @property
    def share(self) -> float:
        """Of the nearer ceiling: bytes read, or bf16 operations."""
        moved = self.bytes_per_second / self.ceilings["read bytes/s"]
        return max(moved, self.operations_per_second / self.ceilings["bf16 operations/s"])

    def as_json(self) -> dict[str, Any]:
        return {
            "op": self.case.op,
            "case": self.case.name,
            "tier": self.tier,
            "microseconds": self.seconds * 1e6,
            "terabytes_per_second": self.bytes_per_second / 1e12,
            "teraops_per_second": self.operations_per_second / 1e12,
            "share": self.share,
            "peer": self.peer_name or None,
            "peer_microseconds": self.peer_seconds * 1e6 if self.peer_seconds else None,
        }


def compiled(backend: Backend, case: GpuCase, tier: Tier) -> OneOp:
    """The case's op for inputs of its shapes; Unsupported where no kernel serves it."""
    specs = {**case.device, **{name: spec_of(make(0)) for name, make in case.host.items()}}
    if case.weight:
        specs["weight"] = TensorSpec(case.shape, case.weight)
    return OneOp(backend, OPS[case.op], specs, case.attrs, tier, weight_kinds(OPS[case.op]))


class Sets:
    """Input sets of a case on the device, each with the op compiled for it."""

    def __init__(self, backend: Backend, stopwatch: Stopwatch, case: GpuCase, tier: Tier) -> None:
        weights = {"weight": random_weight(case.weight, case.shape, 0)} if case.weight else {}
        fits = ROTATION * stopwatch.cache_bytes // max(1, case.num_bytes) + 1
        self.case, self.buffers, self._calls = case, list[dict[str, Buffer]](), list[OneOp]()
        for number in range(max(2, min(fits, 64))):
            call = compiled(backend, case, tier)
            made = self._made(stopwatch, number)
            call.bind(made)
            made |= call.put({**{name: make(number) for name, make in case.host.items()}, **weights})
            self.buffers.append(made)
            self._calls.append(call)

    def runs(self) -> list[Callable[[], object]]:
        """A launch for every input set."""
        return [call.executable.run for call in self._calls]

    def _made(self, stopwatch: Stopwatch, number: int) -> dict[str, Buffer]:
        """The inputs that are made on the device."""
        shares = number > 0 and self.case.op == "paged_attention"  # one cache, other pages
        made = self.buffers[0] if shares else {}
        return {n: made[n] if shares else stopwatch.random(s, number) for n, s in self.case.device.items()}


@dataclass(frozen=True)
class Peer:
    """A library's way to do a case's work; `calls` makes one for each input set, when it is asked."""

    name: str
    calls: Callable[[], Sequence[Callable[[], object]]]


def time_gpu_case(
    backend: Backend,
    stopwatch: Stopwatch,
    case: GpuCase,
    tier: Tier,
    ceilings: Mapping[str, float],
    peers_of: Callable[[GpuCase, list[dict[str, Buffer]]], Sequence[Peer]],
) -> GpuTiming | None:
    """The case's time, and that of its fastest peer in the same run; None where no kernel serves it.

    BadInput where the device refuses a value: what was timed is then no product of these inputs.
    """
    try:
        sets = Sets(backend, stopwatch, case, tier)
    except Unsupported:
        return None
    seconds = time_runs(backend, sets.runs()).median
    found, failures = dict[str, float](), list[str]()
    for peer in peers_of(case, sets.buffers):
        try:
            found[peer.name] = time_runs(backend, list(peer.calls())).median
        except Exception as error:  # of a library that compiles here, mostly
            first = next(iter(str(error).strip().splitlines()), "")
            failures.append(f"{peer.name}: {type(error).__name__}: {first}")
    best = min(found, key=lambda name: found[name], default="")
    return GpuTiming(case, tier.label, seconds, ceilings, found.get(best), best, tuple(failures))
