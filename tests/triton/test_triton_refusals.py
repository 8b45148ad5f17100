"""Values that a reference refuses are refused by the kernels of every tier, for few tokens and for many."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from samebits.backends.discovery import get
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import raise_if_any
from samebits.kernels.triton.lib.tensors import Blocks
from samebits.kernels.triton.lib.weights import tile_weight
from samebits.kernels.triton.products.blocks.many.launch import dot
from samebits.kernels.triton.products.dense.operands import narrowed
from samebits.kernels.triton.select.passes import limit_of
from samebits.ops import OPS, make_inputs
from samebits.verify.harness import execute
from samebits.verify.select import find_case

BF16 = np.dtype(ml_dtypes.bfloat16)
HOST = torch.device("cpu")
# float32 values that an operand of the type rounds to and may not be, and the largest that it may
BEYOND = {"bf16": (2.0**63 * 1.01, np.inf, np.nan), "f16": (65520.0, np.inf, np.nan)}
LARGEST = {"bf16": 2.0**63, "f16": 65504.0}
DTYPES = {"bf16": BF16, "f16": np.dtype(np.float16)}
NAN_ALL_ONES = np.array(0x7FFFFFFF, np.int32).view(np.float32)[()]  # rounding its bits as a number would make a zero


def run(op: str, tier: Tier, **inputs: Any) -> None:
    """The call without its check on the host: what is refused here, kernels refused."""
    backend = get("cuda").backend
    assert backend is not None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice")  # the interpreter's maximum is numpy's
        execute(backend, replace(OPS[op], check=None), inputs, tier)


def activations(value: float, shape: tuple[int, ...]) -> np.ndarray:
    x = np.ones(shape, np.float32)
    x.reshape(-1)[-3] = value
    return x


@pytest.mark.parametrize("num_tokens", [1, 9])
@pytest.mark.parametrize("tier", [Tier.PORTABLE, Tier.INVARIANT], ids=lambda tier: tier.label)
def test_dense_products_refuse_what_is_no_operand(tier: Tier, num_tokens: int) -> None:
    fmt = "bf16" if num_tokens == 1 else "f16"
    weight = np.zeros((8, 16), DTYPES[fmt])  # so that no sum shows what x holds
    for value in BEYOND[fmt] if num_tokens == 1 else BEYOND[fmt][:1]:
        with pytest.raises(BadInput, match="gemm: x has NaN, Inf or a value beyond the type's range"):
            run("gemm", tier, x=activations(value, (num_tokens, 16)), weight=weight)
    if num_tokens == 1:
        run("gemm", tier, x=activations(LARGEST[fmt], (num_tokens, 16)), weight=weight)


def test_grouped_products_refuse_what_is_no_operand() -> None:
    x, weight, indptr = activations(2.0**64, (2, 3)), np.zeros((1, 4, 3), BF16), np.array([0, 2], np.int32)
    with pytest.raises(BadInput, match="grouped_gemm: x has NaN, Inf or a value beyond"):
        run("grouped_gemm", Tier.PORTABLE, x=x, weight=weight, seg_indptr=indptr)


@pytest.mark.parametrize(("fmt", "reason"), [("bf16", "a value beyond the type's"), ("q8_0", "a magnitude above 2")])
def test_products_of_heads_refuse_what_is_no_operand(fmt: str, reason: str) -> None:
    zeros = np.zeros((1, 4, 32), np.float32)
    weight = FORMATS[fmt].pack(zeros) if fmt == "q8_0" else zeros.astype(BF16)
    with pytest.raises(BadInput, match=f"head_gemm: x has NaN, Inf or {reason}"):
        run("head_gemm", Tier.PORTABLE, x=activations(2.0**81, (3, 1, 32)), weight=weight)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16])
def test_operands_of_many_tokens_are_looked_at_whether_they_are_copied_or_not(source: torch.dtype) -> None:
    x = torch.ones((64, 48))
    assert narrowed(x.to(source), torch.bfloat16, "gemm", 64).shape == (64, 48)
    raise_if_any(HOST)
    x[63, 47] = 2.0**64
    narrowed(x.to(source), torch.bfloat16, "gemm", 64)
    with pytest.raises(BadInput, match="gemm: x has NaN, Inf or a value beyond the type's range"):
        raise_if_any(HOST)


ATTENTION = [  # the kernels by how many queries there are
    (Tier.PORTABLE, "bf16", 1, (2.0**64, NAN_ALL_ONES)),
    (Tier.PORTABLE, "f16", 1, (65520.0,)),
    (Tier.PORTABLE, "bf16", 3, (2.0**64,)),
    (Tier.FAST, "bf16", 1, (2.0**64, np.nan)),
    (Tier.FAST, "f16", 1, (65520.0,)),
    (Tier.FAST, "bf16", 65, (2.0**64,)),
]


@pytest.mark.parametrize(("tier", "fmt", "num_queries", "values"), ATTENTION)
def test_attention_refuses_queries_that_are_no_operands(
    tier: Tier, fmt: str, num_queries: int, values: tuple[float, ...]
) -> None:
    length = max(16, num_queries)
    cache = np.zeros((1, length, 1, 16), DTYPES[fmt])
    rest = {"k_cache": cache, "v_cache": cache.copy(), "kv_last_page_len": np.array([length], np.int32)}
    rest["qo_indptr"] = np.array([0, num_queries], np.int32)
    for value in values:
        with pytest.raises(BadInput, match="paged_attention: q has NaN, Inf or a value beyond the type's range"):
            run("paged_attention", tier, q=activations(value, (num_queries, 1, 16)), **rest)


def int8_blocks(num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((num_tokens, 32), -127, np.int8), np.ones((num_tokens, 1), np.float32)


@pytest.mark.parametrize(("tier", "num_tokens"), [(Tier.PORTABLE, 1), (Tier.PORTABLE, 9), (Tier.FAST, 9)])
@pytest.mark.parametrize("op", ["gemm_q8", "gemm_silu_q8"])
def test_codes_and_scales_that_quantize_q8_does_not_make(op: str, tier: Tier, num_tokens: int) -> None:
    fmt = FORMATS["q8_0"]
    assert isinstance(fmt, BlockFormat)
    weight = fmt.pack(np.zeros((64, 32), np.float32))
    codes, scales = int8_blocks(num_tokens)
    codes[-1, 29] = -128
    with pytest.raises(BadInput, match=f"{op}: codes is -128"):
        run(op, tier, codes=codes, scales=scales, weight=weight)
    if op == "gemm_q8":  # the other would refuse what comes of it, too
        codes[-1, 29], scales[-1, 0] = 127, np.inf
        with pytest.raises(BadInput, match=f"{op}: scales has NaN or Inf"):
            run(op, tier, codes=codes, scales=scales, weight=weight)


@pytest.mark.parametrize(("what", "reason"), [("codes", "-128"), ("scales", "NaN or Inf")])
def test_the_products_of_other_devices_refuse_them_too(what: str, reason: str) -> None:
    fmt = FORMATS["q8_0"]
    assert isinstance(fmt, BlockFormat)
    weight = tile_weight(Blocks(fmt, torch.from_numpy(fmt.pack(np.zeros((64, 32), np.float32)).data)))
    codes, scales = map(torch.from_numpy, int8_blocks(3))
    y = torch.empty((3, 64))
    dot(codes, scales, weight, None, y, "gemm_q8")
    raise_if_any(HOST)
    if what == "codes":
        codes[2, 31] = -128
    else:
        scales[2, 0] = torch.nan
    dot(codes, scales, weight, None, y, "gemm_q8")
    with pytest.raises(BadInput, match=f"gemm_q8: {what} (is|has) {reason}"):
        raise_if_any(HOST)


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_k": 5, "min_p": 0.1}])
@pytest.mark.parametrize("bias", [0.0, 3e38])
def test_a_largest_logit_that_overflows(settings: dict[str, float], bias: float) -> None:
    """With the filters of a row and without, and by a bias alone at temperature 0."""
    inputs = make_inputs(OPS["sample"], find_case(OPS["sample"], "B=3,V=40"))
    for name, value in {"temperature": 0.0 if bias else 1e-4, **settings}.items():
        inputs[name][:] = value
    if bias:
        inputs["bias"] = np.zeros((3, 40), np.float32)
        inputs["bias"][1, 7] = bias
    inputs["logits"][1, 7] = bias or 1e35
    with pytest.raises(BadInput, match="sample: logits has a row whose largest logit, after bias"):
        run("sample", Tier.PORTABLE, **inputs)
    inputs["logits"][1, 7] = -(bias or 1e35)
    run("sample", Tier.PORTABLE, **inputs)
    if not bias:
        inputs["logits"][1] = -1e35
        with pytest.raises(BadInput, match="sample: logits has a row whose largest logit, after bias"):
            run("sample", Tier.PORTABLE, **inputs)


def test_the_limit_of_top_p_of_more_mass_than_64_bits_hold_times_65536() -> None:
    """The definition's: the least mass whose 2^16-fold is share * total or more."""

    @triton.jit
    def limit(top_p_ptr, total_ptr, limit_ptr):  # type: ignore[no-untyped-def]
        tl.store(limit_ptr, limit_of(tl.load(top_p_ptr), tl.load(total_ptr)))

    for total in (700_000 << 28, (1 << 47) - 1, 12345):
        found = torch.zeros(1, dtype=torch.int64)
        limit[(1,)](torch.tensor([0.75]), torch.tensor([total]), found)
        assert found.item() == -(-49152 * total // 65536)
