"""Every op's small cases on the `cuda` backend, in Triton's interpreter: results, and what `samebits verify` asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernel_results import TIERS, differences

from samebits.backends.discovery import get
from samebits.core.format import Packed
from samebits.kernels.triton.attention.portable import decode, prefill
from samebits.kernels.triton.attention.portable.op import paged_attention
from samebits.kernels.triton.attention.portable.wide import launch as wide
from samebits.ops import OPS, Op, equivalents, expert_equivalents, make_inputs
from samebits.ops.expert_cases import expert_case
from samebits.ops.kv_cases import attention_case
from samebits.ops.record import Case
from samebits.verify.checks import verify_case
from samebits.verify.model import Task

LARGEST_BYTES = 32 << 10  # of all inputs of a case: the interpreter takes seconds for more
TINY_BYTES = 4 << 10  # of a case that is run in every way that should give the same bits
MOST_CASES = 3  # of an op, or one more, evenly taken: `samebits verify` runs them all
SLOW = ("gemm_silu_q8",)  # half a minute a case: one must do
FEW_BATCHES = (1, 17)  # rows, beside a case's own, with which it is run again: launches change beyond 1, 8 and 16
WITH_EXPERTS = ("expert_gemm", "expert_gemm_q8", "expert_gate_q8")  # minutes: test_triton_experts.py has smaller cases


SMALLER = {"expert_gemm_q8": expert_case("tiny", 2, 1, 2, 8, 32, "q8_0")}  # than its smallest, which takes a minute


def cases_up_to(op: Op, most_bytes: int) -> list[Case]:
    """Quick cases whose inputs take no more than that."""
    return [c for c in op.cases if not c.full and num_bytes(make_inputs(op, c)) <= most_bytes]


def num_bytes(inputs: dict[str, Any]) -> int:
    arrays = [x.data if isinstance(x, Packed) else x for x in inputs.values()]
    return sum(x.nbytes for x in arrays if isinstance(x, np.ndarray))


@pytest.mark.parametrize("op", [op for op in OPS if op.name not in WITH_EXPERTS], ids=lambda op: op.name)
def test_results_of_small_cases(op: Op) -> None:
    cases = cases_up_to(op, LARGEST_BYTES)
    taken = cases[:: max(1, len(cases) // MOST_CASES)][: 1 if op.name in SLOW else MOST_CASES + 1]
    assert taken, "no case is small enough"
    with np.errstate(all="ignore"):  # the interpreter's arithmetic is numpy's, and warns where a GPU does not
        failures = [line for case in taken for line in differences(op, case)]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("op", [op for op in OPS if cases_up_to(op, TINY_BYTES)], ids=lambda op: op.name)
def test_a_tiny_case_passes_every_check(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalents, "BATCHES", FEW_BATCHES)
    monkeypatch.setattr(expert_equivalents, "SIZES", FEW_BATCHES)
    found, case = get("cuda"), SMALLER.get(op.name) or cases_up_to(op, TINY_BYTES)[0]
    task = Task("cuda", op.name, case.id, tuple(tier.label for tier in TIERS))
    with np.errstate(all="ignore"):
        results = verify_case(found.backend, found.caps, op, case, task)
    assert [f"{case.id} at {r.tier}: {r.reason}" for r in results if r.status != "pass"] == []


@pytest.mark.parametrize("size", [16, 20])  # by registers/kernel.py, by tiles.py
def test_scores_beyond_what_is_kept_are_computed_again(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(prefill, "ROOM", 256)
    rng, length, queries = np.random.default_rng(0), 300, 3
    k, v = (rng.standard_normal((1, length, 1, size)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((queries, 2, size)).astype(np.float32)
    inputs = (q, k, np.array([0, queries], np.int32), np.array([length], np.int32), v)
    expected = OPS["paged_attention"].reference(*inputs)
    result = paged_attention(*map(torch.from_numpy, inputs))
    assert result.numpy().tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("case_id", ["mla-small", "mla-bf16"])  # by fast/latent.py; by portable/wide
def test_latent_caches(case_id: str) -> None:
    op = OPS["paged_attention"]
    with np.errstate(all="ignore"):
        assert list(differences(op, next(case for case in op.cases if case.id == case_id))) == []


@pytest.mark.parametrize(
    "how",
    [
        {"k": "f16", "v": "f16", "head": 16},
        {"k": "q8_0", "v": "q4_0"},
        {"kind": "mla", "k": "f16", "v": "f16", "head": 48, "v_dim": 32, "group": 8},
    ],
    ids=str,
)
def test_what_no_query_sees_is_not_multiplied(how: dict[str, Any]) -> None:
    """Behind a window, and of a sequence without queries: cells of NaN, in pages that the table names twice."""
    sizes: dict[str, Any] = {"heads": 1, "group": 1, "queries": (1, 2, 0), "lengths": (21, 30, 9), "page_size": 8}
    case = attention_case("unseen", attrs={"window_left": 5}, **sizes | how)
    with np.errstate(all="ignore"):
        assert list(differences(OPS["paged_attention"], case)) == []


@pytest.mark.parametrize("window", [-1, 20])
def test_wide_scores_beyond_what_is_kept_are_computed_again(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(wide, "ROOM", 256)
    rng, length = np.random.default_rng(0), 270
    rows = rng.standard_normal((1, length, 264)).astype(np.float16)
    q = rng.standard_normal((2, 8, 264)).astype(np.float32)
    inputs = (q, rows, np.array([0, 2], np.int32), np.array([length], np.int32))
    attrs = {"v_dim": 24, "window_left": window}
    expected = OPS["paged_attention"].reference(*inputs, **attrs)
    result = paged_attention(*map(torch.from_numpy, inputs), **attrs)
    assert result.numpy().tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_number_of_multiprocessors_changes_no_bit(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Two sequences, of one query and of five: the kernels that share their work among all multiprocessors."""
    for module in (decode, prefill):
        monkeypatch.setattr(module, "multiprocessors", lambda _device: count)
    rng, lengths, size = np.random.default_rng(0), np.array([290, 40], np.int32), 16
    k, v = (rng.standard_normal((2, 290, 1, size)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((6, 2, size)).astype(np.float32)
    inputs = (q, k, np.array([0, 1, 6], np.int32), lengths, v)
    expected = OPS["paged_attention"].reference(*inputs)
    result = paged_attention(*map(torch.from_numpy, inputs))
    assert result.numpy().tobytes() == np.asarray(expected).tobytes()
