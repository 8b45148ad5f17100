"""`samebits bench ops`: the ops a step's time goes to, at a 1.1B llama's sizes, against a read of as many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits.backends.interface import Backend
from samebits.bench.ceiling import ceiling_source, read_ceiling
from samebits.bench.plot import Bar, chart, page
from samebits.bench.random_weights import random_weight
from samebits.bench.results import Spread
from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.ops import OPS, Bound, bind, make_inputs
from samebits.ops.kv_cases import attention_case
from samebits.verify.perf import Timing, time_call

HIDDEN, FFN, KV_HEADS, GROUP, HEAD = 2048, 5632, 4, 8, 64
WEIGHT_FORMATS = ("q4_0", "q4_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "f16", "bf16")
CACHE_FORMATS = ("f16", "bf16", "q8_0")
PREFILL_TOKENS, DEPTH = 512, 2048


@dataclass(frozen=True)
class OpCase:
    """A call to time; its inputs are made only when it is its turn."""

    op: str
    name: str
    inputs: Callable[[], dict[str, Any]]

    @property
    def label(self) -> str:
        return f"{self.op}/{self.name}"

    def call(self) -> Bound:
        return bind(OPS[self.op], **self.inputs())


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def _gemm_inputs(num_tokens: int, fmt: str) -> dict[str, Any]:
    return {"x": _normal(num_tokens, HIDDEN), "weight": random_weight(fmt, (FFN, HIDDEN), 2)}


def _attention_inputs(queries: tuple[int, ...], lengths: tuple[int, ...], fmt: str) -> dict[str, Any]:
    sizes: dict[str, Any] = {"heads": KV_HEADS, "group": GROUP, "head": HEAD, "k": fmt, "v": fmt}
    return make_inputs(OPS["paged_attention"], attention_case("bench", queries=queries, lengths=lengths, **sizes))


def _norm_inputs(num_tokens: int) -> dict[str, Any]:
    x = _normal(num_tokens, HIDDEN)
    return {"x": x, "residual": x.copy(), "weight": _normal(HIDDEN)}


def _gated_inputs(num_tokens: int) -> dict[str, Any]:
    return {"x": _normal(num_tokens, 2 * FFN)}


def op_cases() -> Iterator[OpCase]:
    """Matrix products by weight format, attention by cache format, norm and activation; decode and prefill each."""
    for step, tokens in (("decode", 1), ("8 sequences", 8), ("prefill", PREFILL_TOKENS)):
        for fmt in WEIGHT_FORMATS:
            yield OpCase("gemm", f"{step} {fmt}", partial(_gemm_inputs, tokens, fmt))
    spans = {
        f"decode after {DEPTH}": ((1,), (DEPTH,)),
        f"8 sequences after {DEPTH}": ((1,) * 8, (DEPTH,) * 8),
        "prefill": ((PREFILL_TOKENS,), (PREFILL_TOKENS,)),
    }
    for step, (queries, lengths) in spans.items():
        for fmt in CACHE_FORMATS:
            yield OpCase("paged_attention", f"{step} {fmt}", partial(_attention_inputs, queries, lengths, fmt))
    for step, tokens in (("decode", 1), ("prefill", PREFILL_TOKENS)):
        yield OpCase("fused_add_rms_norm", step, partial(_norm_inputs, tokens))
        yield OpCase("silu_and_mul", step, partial(_gated_inputs, tokens))


@dataclass(frozen=True)
class OpTiming:
    """A case's timing, and the rate at which as many bytes can be read."""

    timing: Timing
    ceiling_gigabytes_per_second: float

    @property
    def share(self) -> float:
        return self.timing.gigabytes_per_second / self.ceiling_gigabytes_per_second

    @property
    def label(self) -> str:
        return f"{self.timing.op}/{self.timing.case}"

    def as_json(self) -> dict[str, Any]:
        ceiling = {"read_gigabytes_per_second": self.ceiling_gigabytes_per_second, "share": self.share}
        return {**self.timing.as_json(), **ceiling}


def chosen_cases(only: str | None) -> list[OpCase]:
    """The cases whose label holds `only`; BadInput where none does."""
    cases = list(op_cases())
    kept = [case for case in cases if only is None or only in case.label]
    if not kept:
        raise BadInput("bench ops", "--only", repr(only), f"a part of a label such as {cases[0].label!r}")
    return kept


def time_op(backend: Backend, case: OpCase, tier: Tier, threads: int) -> OpTiming | None:
    """The case's timing beside its ceiling; None where no kernel serves it."""
    timing = time_call(backend, case.call(), case.name, tier)
    return OpTiming(timing, read_ceiling(timing.num_bytes, threads)) if timing else None


def print_ops(console: Console, timings: list[OpTiming], threads: int) -> None:
    table = Table(title=f"medians, {threads} threads; ceiling: a {ceiling_source()} read of as many bytes")
    for column in ("op", "case", "time µs", "spread", "Gop/s", "GB/s", "of ceiling"):
        table.add_column(column, justify="left" if column in ("op", "case") else "right")
    for t in timings:
        timing = t.timing
        rates = (f"{timing.gigaops_per_second:.3g}", f"{timing.gigabytes_per_second:.3g}", f"{t.share:.0%}")
        table.add_row(timing.op, timing.case, f"{timing.microseconds:.1f}", f"{timing.spread:.0%}", *rates)
    console.print(table)


def ops_page(timings: list[OpTiming], title: str) -> str:
    """Share of the ceiling by case, then operations per second."""

    def bars(value: Callable[[OpTiming], float]) -> list[Bar]:
        return [Bar(t.label, Spread(value(t), value(t), value(t))) for t in timings]

    shares = chart(bars(lambda t: 100 * t.share), "%")
    rates = chart(bars(lambda t: t.timing.gigaops_per_second), "Gop/s")
    return page(title, [], [("bytes per second, percent of the read ceiling", shares), ("operations", rates)])
