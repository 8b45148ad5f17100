"""`functional` on the `cuda` backend, in Triton's interpreter: every op once, every refusal told by its own call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samebits import functional as F
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed, format_of, spec_bytes
from samebits.ops import OPS, Op, bind, call, make_inputs
from samebits.ops.cases import in_format
from samebits.ops.expert_cases import expert_case
from samebits.ops.record import FLOATS, Case
from samebits.verify.harness import same_bytes

Inputs = dict[str, Any]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):  # the interpreter's arithmetic is numpy's, and warns where a GPU does not
        yield


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attention() -> Inputs:
    """Two queries over five positions in two pages."""
    caches = {name: floats(2, 4, 1, 16, seed=n).astype(np.float16) for n, name in enumerate(("k_cache", "v_cache"))}
    lists = {"qo_indptr": [0, 2], "kv_last_page_len": [1], "kv_indptr": [0, 2], "kv_indices": [1, 0]}
    return {"q": floats(2, 2, 16), **caches, **{name: np.array(values, np.int32) for name, values in lists.items()}}


def gated_product() -> Inputs:
    op = OPS["gemm_silu_q8"]
    return make_inputs(op, replace(op.cases[0], dims={"T": 1, "HB": 1, "NB": 2}, formats={"weight": "q8_0"}))


def gated_experts() -> Inputs:
    return make_inputs(OPS["expert_gate_q8"], expert_case("tiny", 1, 2, 2, 64, 32, "q8_0"))


SMALLER: dict[str, Callable[[], Inputs]] = {
    "paged_attention": attention,
    "gemm_silu_q8": gated_product,
    "expert_gate_q8": gated_experts,
}


@cache
def smallest_case(op_name: str) -> Case:
    """The smallest ordinary case of the op in which no tensor is empty."""
    op = OPS[op_name]

    def num_bytes(case: Case) -> float:
        bound = bind(op, **make_inputs(op, case))
        specs = [*bound.specs.values(), *bound.result_specs()]
        if case.extra.get("special") or not all(spec.num_elements for spec in specs):
            return math.inf
        return sum(map(spec_bytes, bound.specs.values()))

    return min((case for case in op.cases if not case.full), key=num_bytes)


def tiny_inputs(op: Op) -> Inputs:
    """Fresh inputs of a call that takes the interpreter a moment."""
    return SMALLER[op.name]() if op.name in SMALLER else make_inputs(op, smallest_case(op.name))


def as_tuple(results: Any) -> tuple[HostTensor, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("op", list(OPS), ids=lambda op: op.name)
def test_every_op_gives_the_definitions_bits(op: Op) -> None:
    direct, through = tiny_inputs(op), tiny_inputs(op)
    wanted = as_tuple(call(op, **direct))
    results = as_tuple(getattr(F, op.name)(**through, backend="cuda"))
    assert [same_bytes(got, want) for got, want in zip(results, wanted, strict=True)] == [True] * len(wanted)
    for name, value in direct.items():  # caches hold what was written, all else is as it was
        if isinstance(value, (np.ndarray, Packed)):
            assert same_bytes(through[name], value), name


def spoiled(x: np.ndarray, value: float, at: int = -1) -> np.ndarray:
    x = x.copy()
    x.reshape(-1)[at] = value
    return x


def check_next_call() -> None:
    """A call that has nothing to do with the one before gives its own result."""
    x = floats(2, 3)
    assert F.add(x, x, backend="cuda").tobytes() == (x + x).tobytes()


def is_refused(op: str, inputs: Inputs, **options: str | None) -> bool:
    try:
        getattr(F, op)(**inputs, **options)
    except BadInput:
        return True
    return False


def check_told_at_once(op: str, inputs: Inputs, numerics: str | None = None) -> None:
    """The definition refuses the call; so does the GPU, in that call, and the next one knows nothing of it."""
    bind(OPS[op], **inputs)  # else nothing reached the device
    assert is_refused(op, inputs)
    assert is_refused(op, inputs, backend="cuda", numerics=numerics)
    check_next_call()


PRODUCTS = [
    *(("f16", value) for value in (math.nan, math.inf, -math.inf, 65520.0)),
    *(("bf16", value) for value in (math.nan, math.inf, 1e30)),
    *(("f32", value) for value in (math.nan, math.inf)),
    *(("q8_0", value) for value in (math.nan, math.inf, 2.0**127)),
]


@pytest.mark.parametrize(("weight_format", "value"), PRODUCTS)
def test_a_product_of_a_refused_value_is_refused_by_its_own_call(weight_format: str, value: float) -> None:
    weight = in_format(floats(3, 32, seed=1), weight_format)
    check_told_at_once("gemm", {"x": spoiled(floats(2, 32), value), "weight": weight})


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_weaker_tiers_tell_it_as_early(numerics: str) -> None:
    weight = in_format(floats(3, 32, seed=1), "f16")
    check_told_at_once("gemm", {"x": spoiled(floats(2, 32), math.nan), "weight": weight}, numerics)


@pytest.mark.parametrize(("name", "value"), [("k_cache", math.nan), ("v_cache", math.inf), ("q", 1e6)])
def test_attention_over_a_refused_value_is_refused_by_its_own_call(name: str, value: float) -> None:
    inputs = attention()
    check_told_at_once("paged_attention", {**inputs, name: spoiled(inputs[name], value, at=0)})


def refused_inputs(op: Op) -> Iterator[Inputs]:
    """Calls with one activation that is not finite, which pass every check and are refused by the definition."""
    for tensor, value in product(op.inputs, (math.nan, math.inf)):
        inputs = tiny_inputs(op)
        x = inputs.get(tensor.name)
        if tensor.raw or not isinstance(x, np.ndarray) or format_of(x).name not in FLOATS:
            continue
        inputs[tensor.name] = spoiled(x, value)
        try:
            bind(op, **inputs)
        except BadInput:
            continue
        if is_refused(op.name, inputs):
            yield inputs


def test_what_the_definition_refuses_is_refused_by_its_own_call() -> None:
    refused = {op.name: list(refused_inputs(op)) for op in OPS}
    assert {"gemm", "grouped_gemm", "quantize_q8"} <= {name for name, calls in refused.items() if calls}
    for name, calls in refused.items():
        for inputs in calls:
            check_told_at_once(name, inputs)


EDGES = [
    0.0,
    1.0,
    -3.5,
    65504.0,
    65519.0,
    -65520.0,
    2.0**63,
    2.0**64,
    2.0**126,
    2.0**127,
    math.inf,
    -math.inf,
    math.nan,
]


@settings(max_examples=16, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(st.sampled_from(EDGES), st.integers(0, 63), st.sampled_from(FLOATS))
def test_a_value_anywhere_is_refused_where_the_definition_refuses_it(value: float, at: int, weight_format: str) -> None:
    inputs = {"x": spoiled(floats(2, 32), value, at), "weight": in_format(floats(3, 32, seed=1), weight_format)}
    assert is_refused("gemm", inputs, backend="cuda") == is_refused("gemm", inputs)
    check_next_call()
