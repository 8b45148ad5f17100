"""Mixtures of experts: which experts are chosen and why, and that a token does not see what others choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_helpers import as_bytes, copied, inputs_of, results_of, run

from samebits import functional as F
from samebits.core.errors import BadInput
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import Sym, TensorSpec
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.build import OpBuilder
from samebits.ops.record import BLOCK_WEIGHTS, WEIGHTS
from samebits.verify.perf import moved_bytes


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def chosen(*logits: float, **rule: Any) -> list[int]:
    return run("route", row(*logits), **rule)[0][0].tolist()


def test_equal_scores_go_to_the_lowest_id() -> None:
    assert chosen(0, 1, 1, 0, 1, top_k=4, scores="chosen") == [1, 2, 4, 0]
    assert chosen(3, 3, 3, 3, top_k=2) == [0, 1]
    assert chosen(*[-40.0, -50.0, 2.0, -60.0], top_k=3, scores="sigmoid") == [2, 0, 1]  # all three are +0


def test_a_bias_decides_the_choice_and_is_no_part_of_a_weight() -> None:
    logits, bias = row(2, 1, 0, -1), np.array([0, 0, 0, 5], np.float32)
    ids, weights = run("route", logits, bias, top_k=2, scores="sigmoid")
    assert ids.tolist() == [[3, 0]]
    _, plain = run("route", logits, top_k=4, scores="sigmoid")
    assert weights[0].tolist() == [plain[0, 3], plain[0, 0]]


def test_experts_of_groups_that_are_not_kept_are_never_chosen() -> None:
    rule = {"top_k": 2, "scores": "chosen", "groups": 2}
    assert chosen(9, -9, 5, 4, **rule) == [0, 1]  # the group of the best expert
    assert chosen(9, -9, 5, 4, **rule, group_best=2) == [2, 3]  # the group of the best two
    assert chosen(9, -9, 5, 4, **rule, groups_kept=2) == [0, 2]
    assert chosen(1, 1, 1, 1, **rule, group_best=2) == [0, 1]  # equal groups: the lowest
    negative = np.full(4, -8, np.float32)
    assert run("route", row(0, 0, 1, 1), negative, **rule, group_best=2)[0].tolist() == [[2, 3]]


@pytest.mark.parametrize("scores", ["softmax", "sigmoid", "chosen"])
def test_normalized_weights_sum_to_the_scale(scores: str) -> None:
    logits = Stream("logits").normal((5, 16), 2.0)
    _, weights = run("route", logits, top_k=4, scores=scores, normalize=True, scale=2.5)
    assert np.allclose(weights.sum(axis=1), 2.5, rtol=1e-6)
    assert (np.diff(weights) <= 0).all()


def test_tokens_that_no_expert_wants_have_weights_of_zero() -> None:
    weights = run("route", row(-90, -80, -70), top_k=2, scores="sigmoid", normalize=True, eps=1e-20)[1]
    assert weights.tolist() == [[0, 0]]


def test_the_functional_api_routes_lays_out_and_combines() -> None:
    logits, x = Stream("logits").normal((5, 8)), Stream("x").normal((5, 64))
    gate_up, down = Stream("gate").normal((8, 128, 64), 0.2), Stream("down").normal((8, 64, 64), 0.2)
    ids, weights = F.route(logits, top_k=2, normalize=True)
    pairs, ends = F.expert_layout(ids, num_experts=8)
    y = F.expert_gemm(F.silu_and_mul(F.expert_gemm(x, gate_up, pairs, ends)), down, pairs, ends)
    out = F.combine(y, weights)
    for t in range(5):
        rows = [F.gemm(F.silu_and_mul(F.gemm(x[t : t + 1], gate_up[e])), down[e])[0] for e in ids[t]]
        assert as_bytes(out[t]) == as_bytes(F.combine(np.stack(rows), weights[t : t + 1])[0])


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_a_pair_is_the_plain_product_with_its_expert(fmt: str) -> None:
    inputs = inputs_of("expert_gemm", f"small-{fmt}")
    y, share = run("expert_gemm", **inputs), 2
    for expert, (start, stop) in enumerate(zip(inputs["seg_indptr"], inputs["seg_indptr"][1:], strict=False)):
        for pair in inputs["pairs"][start:stop]:
            x = inputs["x"][pair // share : pair // share + 1]
            assert as_bytes(y[pair]) == as_bytes(run("gemm", x, inputs["weight"][expert])[0])


@pytest.mark.parametrize("fmt", BLOCK_WEIGHTS)
@pytest.mark.parametrize("rows", ["token", "pair"])
def test_a_product_with_experts_is_its_two_steps_bit_for_bit(fmt: str, rows: str) -> None:
    inputs = inputs_of("expert_gemm", f"small-{fmt}")
    if rows == "pair":
        inputs["x"] = np.repeat(inputs["x"], 2, axis=0)
    inputs["bias"] = Stream("bias").normal(inputs["weight"].shape[:2])
    x = inputs.pop("x")
    two_steps = run("expert_gemm_q8", *run("quantize_q8", x), **inputs)
    assert as_bytes(two_steps) == as_bytes(run("expert_gemm", x, **inputs))


BY_PAIRS = ("expert_gemm", "expert_gemm_q8", "expert_gate_q8", "combine")
CASES = [
    pytest.param(OPS[n], case, id=f"{n}/{case.id}")
    for n in BY_PAIRS
    for case in OPS[n].cases
    if not case.full and not case.id.startswith("decode-")  # megabytes of weights, for nothing that the others lack
]


@pytest.mark.parametrize(("op", "case"), CASES)
def test_a_token_does_not_see_the_others(op: Any, case: Any) -> None:
    """Alone, in any batch and order, beside any choices of other tokens: what `samebits verify` asks of backends."""
    inputs = make_inputs(op, case)
    first = results_of(op, copied(inputs))
    asked = set()
    for way in op.equivalents(op, inputs):
        got = way.compute(lambda call: results_of(op, copied(call)))
        assert [as_bytes(a) for a in got] == [as_bytes(b) for b in way.expect(first)], way.detail
        asked.add(way.check)
    assert asked == ({"batch-size", "order", "neighbours"} if case.dims["T"] else set())


def test_ranks_are_added_in_order() -> None:
    y, weights = np.array([[1e8], [1.0], [-1e8]], np.float32), np.ones((1, 3), np.float32)
    assert run("combine", y, weights).tolist() == [[0.0]]
    assert run("combine", y[[0, 2, 1]], weights).tolist() == [[1.0]]
    assert run("combine", y[:2], weights[:, :2], -y[:1]).tolist() == [[0.0]]  # shared last


def test_a_measurement_counts_the_experts_that_are_read() -> None:
    bound = bind(OPS["expert_gemm"], **inputs_of("expert_gemm", "one-token"))
    one_expert = 40 * 3 * 18  # q4_0: 96 columns in 3 blocks
    others = 4 * (96 + 2 + 9 + 2 * 40)  # x, pairs, their segments, y
    assert moved_bytes(bound) == 2 * one_expert + others


def test_sizes_are_symbols_in_a_graph_and_refused_where_they_cannot_fit() -> None:
    b, tokens = OpBuilder(), Sym("T", 40)
    x = b.input("x", TensorSpec((tokens, 64), "f32"))
    logits = b.input("logits", TensorSpec((tokens, 8), "f32"))
    ids, weights = b.route(logits, top_k=2)
    pairs, ends = b.expert_layout(ids, num_experts=8)
    assert [v.spec.shape for v in (ids, weights, pairs, ends)] == [(tokens, 2), (tokens, 2), (Sym("T", 40, 2),), (9,)]
    y = b.expert_gemm(x, b.input("w", TensorSpec((8, 32, 64), "q4_0"), "weight"), pairs, ends)
    assert y.spec.shape == (Sym("T", 40, 2), 32)
    assert b.combine(y, weights).spec.shape == (tokens, 32)
    with pytest.raises(BadInput, match=r"^combine: y is T pairs, but must be 2 for each of T tokens$"):
        b.combine(x, weights)
    wide = b.input("wide", TensorSpec((Sym("T", 40, 3), 64), "f32"))
    weight = b.input("v", TensorSpec((8, 32, 64), "f32"), "weight")
    with pytest.raises(
        BadInput, match=r"^expert_gemm: pairs (is|has) 2\*T pairs, but must (be|have) a multiple of the 3\*T rows$"
    ):
        b.expert_gemm(wide, weight, pairs, ends)
