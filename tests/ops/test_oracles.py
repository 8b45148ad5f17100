"""Every reference against a float64 oracle of its own, and proof that the comparison would notice a mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from comparison import BOUNDS, ORACLES, distance, far_from_oracle, worst
from op_helpers import QUICK, as_bytes, case_of, copied, copy_of, inputs_of, results_of, run, storage
from oracles import Expect
from oracles_cache import attention, cell, plain_product

from samebits.core.format import FORMATS, Packed
from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.ops.evaluate import spec_of
from samebits.ops.rope import rope_table


def test_every_op_has_an_oracle_and_a_bound():
    assert set(ORACLES) == set(BOUNDS) == set(OPS.names())


@pytest.mark.parametrize(("op", "case"), QUICK)
def test_reference_agrees_with_its_oracle_changes_what_is_stated_and_repeats_itself(op, case):
    inputs = make_inputs(op, case)
    again = copied(inputs)
    tensors = {t.name: inputs[t.name] for t in op.inputs if inputs.get(t.name) is not None}
    before = {name: as_bytes(x) for name, x in tensors.items()}
    bound = bind(op, **inputs)
    results = evaluate(bound)
    far = far_from_oracle(op, case, again, results)
    assert far <= BOUNDS[op.name], f"{far:.3g} float32 roundings of the unit, {BOUNDS[op.name]} allowed"
    assert [spec_of(r) for r in results] == list(bound.result_specs())
    changed = {name for name, x in tensors.items() if as_bytes(x) != before[name]}
    assert changed <= set(op.writes)
    assert [as_bytes(r) for r in results] == [as_bytes(r) for r in results_of(op, again)]
    own = [r for r in results if not any(r is x for x in tensors.values())]
    shared = [n for n, x in tensors.items() for r in own if np.shares_memory(storage(r), storage(x))]
    assert not shared, "a result that is no alias must not share memory with an input"


@pytest.mark.parametrize("case", [c for c in OPS["append_paged_kv_cache"].cases if not c.full], ids=lambda c: c.id)
def test_append_leaves_every_other_cell_alone(case):
    inputs = make_inputs(OPS["append_paged_kv_cache"], case)
    want = copied(inputs)
    results_of(OPS["append_paged_kv_cache"], inputs)
    for b, position in zip(inputs["batch_indices"], inputs["positions"], strict=True):
        for which in (0, 1):
            name, at = cell(inputs, which, int(b), int(position))
            storage(want[name])[at] = storage(inputs[name])[at]
    assert all(as_bytes(inputs[n]) == as_bytes(want[n]) for n in ("k_cache", "v_cache") if n in inputs)


# Relative root mean square against the product of the numbers as given: what rounding x itself may cost.
PLAIN_RMS = {"f32": 1e-6, "f16": 5e-4, "bf16": 4e-3, "blocks": 1e-2}


@pytest.mark.parametrize("fmt", OPS["gemm"].inputs[1].formats)
def test_product_stays_near_the_unrounded_one(fmt):
    inputs = inputs_of("gemm", f"small-{fmt}")
    want = plain_product(inputs["x"], inputs["weight"])
    error = run("gemm", **inputs) - want
    assert np.sqrt((error**2).mean() / (want**2).mean()) < PLAIN_RMS.get(fmt, PLAIN_RMS["blocks"])


# Of attention: int8 queries and 16-bit weights, averaged over positions.
ATTENTION_RMS = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3, "q8_0": 1e-2, "q4_0": 1e-2}


@pytest.mark.parametrize("fmt", ATTENTION_RMS)
def test_attention_stays_near_the_unrounded_one(fmt):
    inputs = inputs_of("paged_attention", f"k-{fmt}-v-{fmt}")
    want = attention(inputs, modelled=False)[0].value
    error = run("paged_attention", **inputs) - want
    assert np.sqrt((error**2).mean() / (want**2).mean()) < ATTENTION_RMS[fmt]


def _swap_caches(i: dict) -> dict:
    return {"k_cache": i["v_cache"], "v_cache": i["k_cache"]}


def _other_table(i: dict) -> dict:
    return {"table": rope_table(512, 16, theta=10001.0)}


def _one_masked(i: dict) -> dict:
    mask = i["custom_mask"].copy()
    mask[np.flatnonzero(mask)[0]] = False
    return {"custom_mask": mask}


def _last_token_moved(i: dict) -> dict:
    return {"positions": np.roll(i["positions"], 1), "batch_indices": np.roll(i["batch_indices"], 1)}


# A small mistake in a call, as a kernel might make it: the oracle of the right call must object.
PLANTED: list[tuple[str, str, str, Callable[[dict], dict[str, Any]]]] = [
    ("eps of 1e-6 for 1e-5", "rms_norm", "small-f32", lambda i: {"eps": 1e-6}),
    ("eps of 1e-6 for 1e-5", "layer_norm", "plain", lambda i: {"eps": 1e-6}),
    ("eps left out", "fused_add_rms_norm", "small-f32", lambda i: {"eps": 2.0**-50}),
    ("bias dropped", "rms_norm", "mul-add", lambda i: {"bias": None}),
    ("bias dropped", "gemm", "bias-q4_1", lambda i: {"bias": None}),
    ("weight dropped", "layer_norm", "mul-add", lambda i: {"weight": None}),
    ("gate and up swapped", "silu_and_mul", "small-f32", lambda i: {"x": np.roll(i["x"], 48, axis=-1)}),
    ("erf for tanh", "gelu_and_mul", "small-f32", lambda i: {"form": "erf"}),
    ("no causal mask", "paged_attention", "k-f16-v-f16", lambda i: {"causal": False}),
    ("window one wider", "paged_attention", "window", lambda i: {"window_left": 8}),
    ("window one narrower", "paged_attention", "window", lambda i: {"window_left": 6}),
    ("one place masked", "paged_attention", "custom-mask", _one_masked),
    ("one token short", "paged_attention", "decode", lambda i: {"kv_last_page_len": i["kv_last_page_len"] - 1}),
    ("keys and values swapped", "paged_attention", "k-f16-v-f16", _swap_caches),
    ("keys and values swapped", "paged_attention", "k-q8_0-v-q8_0", _swap_caches),
    ("sm_scale off by 1 %", "paged_attention", "scale", lambda i: {"sm_scale": 0.303}),
    ("sm_scale off by 1 %", "paged_attention", "k-q4_0-v-q4_0", lambda i: {"sm_scale": 1.01 / 32**0.5}),
    ("soft cap dropped", "paged_attention", "soft-cap", lambda i: {"logits_soft_cap": 0.0}),
    ("sinks dropped", "paged_attention", "sinks", lambda i: {"sinks": None}),
    ("slopes of other heads", "paged_attention", "alibi", lambda i: {"alibi_slopes": i["alibi_slopes"][::-1].copy()}),
    (
        "two pages swapped",
        "paged_attention",
        "whole-prompt",
        lambda i: {"kv_indices": i["kv_indices"][[0, 1, 3, 2, 4]]},
    ),
    ("tokens in each other's cells", "append_paged_kv_cache", "page-edge", _last_token_moved),
    ("theta off by one in 10000", "rope", "small-f32", _other_table),
    ("positions one late", "rope", "small-f32", lambda i: {"pos_ids": np.maximum(i["pos_ids"] - 1, 0)}),
    ("halves for pairs", "rope", "interleave", lambda i: {"interleave": False}),
    ("sinks dropped", "softmax", "sinks", lambda i: {"sinks": None}),
    ("cap dropped", "softmax", "scale-cap", lambda i: {"soft_cap": 0.0}),
    ("segments shifted", "grouped_gemm", "indices", lambda i: {"seg_indptr": np.array([0, 2, 5, 7, 8], np.int32)}),
    ("heads swapped", "head_gemm", "small-q8_0", lambda i: {"weight": i["weight"][::-1]}),
    ("states swapped", "merge_state", "small-f32", lambda i: {"s_a": i["s_b"], "s_b": i["s_a"]}),
    ("ranks swapped", "combine", "small-f32", lambda i: {"weights": i["weights"][:, ::-1].copy()}),
    ("shared gate dropped", "combine", "shared-gate", lambda i: {"shared_gate": None}),
    ("rows of another token", "expert_gemm", "small-f32", lambda i: {"x": np.roll(i["x"], 1, axis=0)}),
    ("codes of another token", "expert_gemm_q8", "small-q4_0", lambda i: {"codes": np.roll(i["codes"], 1, axis=0)}),
    ("another expert", "expert_gate_q8", "small-q4_0", lambda i: {"weight": i["weight"][::-1]}),
    ("silu for the clamped gate", "expert_gate_q8", "gpt-oss", lambda i: {"activation": "silu"}),
    ("limit dropped", "clamped_swiglu", "beyond-limits", lambda i: {"limit": 7.0}),
    ("bias dropped", "route", "groups", lambda i: {"bias": None}),
    ("groups dropped", "route", "groups", lambda i: {"groups": 1, "groups_kept": 1}),
    ("best of a group for two", "route", "groups", lambda i: {"group_best": 1}),
    ("not normalized", "route", "mixtral", lambda i: {"normalize": False}),
    ("eps of 1e-4 for 1e-6", "route", "sigmoid-bias", lambda i: {"eps": 1e-4}),
    ("softmax over all", "route", "gpt-oss", lambda i: {"scores": "softmax"}),
    ("another seed", "sample", "small-f32", lambda i: {"seed": i["seed"] + np.uint32(1)}),
]


@pytest.mark.parametrize(("what", "op_name", "case_id", "change"), PLANTED, ids=[f"{p[1]}: {p[0]}" for p in PLANTED])
def test_comparison_notices_a_planted_mistake(what, op_name, case_id, change):
    op, case = case_of(op_name, case_id)
    if op_name == "paged_attention":  # a wider window must read numbers, since NaN would be refused
        case = replace(case, extra={**case.extra, "unseen": "stored"})
    inputs = make_inputs(op, case)
    assert worst(op, case, inputs) <= BOUNDS[op_name]
    assert worst(op, case, inputs, {**inputs, **change(copied(inputs))}) > 2 * BOUNDS[op_name]


def test_distance_notices_one_wrong_bit_and_takes_nan_for_nan():
    want = Expect(np.array([1.0, np.nan, -np.inf]), np.ones(3))
    got = np.array([1.0, np.nan, -np.inf], np.float32)
    assert distance(got, want).tolist() == [0, 0, 0]
    assert np.round(distance(np.float32([1 + 2.0**-20, 0, 0]), want), 6).tolist() == [15.0, np.inf, np.inf]


def test_copy_of_a_packed_tensor_is_its_own():
    packed = FORMATS["q8_0"].pack(np.ones((1, 32), np.float32))
    assert isinstance(copy_of(packed), Packed)
    assert not np.shares_memory(copy_of(packed).data, packed.data)
