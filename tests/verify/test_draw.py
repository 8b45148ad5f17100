"""Cases that follow from what ops state: every range is reached, by rows that are what their name says."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations, islice
from random import Random
from typing import Any

import numpy as np
import pytest
from hunt import quick_tasks
from hypothesis import given
from hypothesis import strategies as st

from samebits.cli.main import main
from samebits.core.errors import BadInput
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.evaluate import evaluate
from samebits.ops.space import Choice, Row, Space, Span, choice, size
from samebits.verify.bounds import Judge
from samebits.verify.coverage import stated_classes, unreached
from samebits.verify.draw import (
    DEARER,
    FULL_OPERATIONS,
    MODEL_SIZES,
    QUICK_OPERATIONS,
    all_pairs,
    each_class,
    large_rows,
    not_empty,
)
from samebits.verify.model import is_drawn
from samebits.verify.select import drawn_ids, find_case, op_tasks, prefix_of

OP_NAMES = [op.name for op in OPS]
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", OP_NAMES)
def test_a_quick_run_reaches_every_class_that_an_op_states(name: str) -> None:
    op = OPS[name]
    assert op.space is not None
    found = list(quick_tasks(name))
    assert unreached(found) == []
    drawn = [task.case for task in found if is_drawn(task.case) and not prefix_of(task.case)]
    assert all(op.space.row_id(op.space.parse(case)) == case for case in drawn)


@pytest.mark.parametrize("name", ["add", "gemm_q8", "rope", "sample", "ssm_scan"])
def test_a_seed_draws_the_same_rows_again_and_another_seed_others(name: str) -> None:
    drawn = [task.case for task in quick_tasks(name) if is_drawn(task.case) and not prefix_of(task.case)]
    assert drawn == drawn_ids(OPS[name], full=False, seed=0)
    assert set(drawn) != set(drawn_ids(OPS[name], full=False, seed=1))


@pytest.mark.parametrize("name", OP_NAMES)
def test_rows_of_any_seed_are_legal_calls_with_the_sizes_they_name(name: str) -> None:
    op = OPS[name]
    assert op.space is not None
    cheap = (r for r in each_class(op.space, 1 << 19, Random(f"7/{name}")) if op.space.allows(r, 1 << 19))
    for row in islice(cheap, 8):
        case = find_case(op, op.space.row_id(row))
        bound = bind(op, **make_inputs(op, case, 7))
        for dim in {"T", "N", "V", "H", "D", "E"} & row.keys() & bound.env.keys():
            assert bound.env[dim] == row[dim], f"{dim} in {case.id}"
        for tensor in {"x", "weight", "k_cache", "logits"} & row.keys() & bound.specs.keys():
            assert bound.specs[tensor].format == row[tensor], f"{tensor} in {case.id}"


@pytest.mark.parametrize(("name", "row"), [
    ("add_rms_norm_q8", "rows=67151,NB=1,x=f16,residual=f16,values=wide"),  # sums near the end of float16
    ("paged_attention", "B=23,length=5,spread=ragged,v=q8_0,queries=beyond,causal=no"),  # queries that see no position
])  # fmt: skip
def test_rare_rows_of_a_full_run_have_a_result(name: str, row: str) -> None:
    evaluate(bind(OPS[name], **make_inputs(OPS[name], find_case(OPS[name], row))))


@pytest.mark.parametrize(("name", "width"), [
    ("gemm_silu_q8", "K"), ("rms_norm", "K"), ("softmax", "K"), ("l2_norm", "K"), ("silu_and_mul", "H"),
    ("gated_delta_rule", "V"), ("ssm_scan", "P"), ("merge_state", "D"), ("rope", "D"), ("split_heads", "D"),
])  # fmt: skip
def test_a_quick_run_meets_the_widths_that_models_have(name: str, width: str) -> None:
    """Multiples of 16 that are no powers of two, between which size classes have their ends."""
    space = OPS[name].space
    assert space is not None
    met = {space.parse(case)[width] for case in drawn_ids(OPS[name], full=False, seed=1)}
    assert {size for size in MODEL_SIZES if space[width].takes(size)} <= met


@pytest.mark.parametrize("name", ["gemm", "head_gemm", "expert_gemm"])
def test_a_quick_run_meets_the_widths_of_dense_products(name: str) -> None:
    dims = [find_case(OPS[name], case).dims["K"] for case in drawn_ids(OPS[name], full=False, seed=1)]
    assert {0, *MODEL_SIZES} <= set(dims)


@pytest.mark.parametrize("name", [op.name for op in OPS if op.space is not None and op.space.corners])
def test_a_run_plays_the_corners(name: str) -> None:
    space = OPS[name].space
    assert space is not None
    assert {space.row_id(space.parse(row)) for row in space.corners} <= {task.case for task in quick_tasks(name)}


NARROW = [op.name for op in OPS if op.space is not None and any(f.name == "K" and f.takes(0) for f in op.space.factors)]


@pytest.mark.parametrize("name", NARROW)
def test_products_without_columns_have_bounds(name: str) -> None:
    bound = bind(OPS[name], **make_inputs(OPS[name], find_case(OPS[name], "K=0")))
    assert all(np.isfinite(expected.error).all() for expected in Judge(bound, evaluate(bound)).expected)


def test_a_class_is_drawn_with_sizes_that_are_not_empty() -> None:
    space = Space((size("T", 8, least=0), size("K", 4)), lambda row: {}, lambda row: 0)
    rows: list[Row] = [{"T": 0, "K": 4}, {"T": 2, "K": 1}]
    assert space.classes_of(rows[0])["K"] == "3..4"
    added = list(not_empty(space, rows, 1, Random(0)))
    assert [space.classes_of(row)["K"] for row in added] == ["3..4"]
    assert all(row["T"] for row in added)


@pytest.mark.parametrize("name", NARROW)
def test_products_without_columns_cost_their_results(name: str) -> None:
    """Results of 4 GiB cost more than a quick run may spend, however little is summed."""
    space = OPS[name].space
    assert space is not None
    row = {**space.parse("K=0"), "T": 1 << 18, "N": 1 << 12, "H": 1 << 12}
    assert space.cost(row) > QUICK_OPERATIONS << DEARER[-1]


def test_a_span_draws_its_ends_other_sizes_and_those_of_models() -> None:
    span, dice = Span(65, 256), Random(0)
    drawn = Counter(span.draw(dice) for _ in range(2000))
    assert min(drawn[65], drawn[256]) > 300
    assert min(drawn[n] for n in (80, 96, 112, 160, 192, 224)) > 10  # by chance alone, 5
    assert min(sum(drawn[n] for n in drawn if n % step == step // 2) for step in (8, 16, 32, 64, 128)) > 60
    assert len(drawn) > 150


def toy_space(**changes: Any) -> Space:
    """A size, two choices that exclude each other in part, and a cost."""
    space = Space(
        (size("n", 100, least=0, usual=3), choice("kind", "a", "b", "c"), choice("mode", "x", "y")),
        lambda row: {"dims": {}},
        lambda row: int(row["n"]) * (50 if row["kind"] == "c" else 1),
        lambda row: not (row.get("kind") == "b" and row.get("mode") == "y"),
    )
    return replace(space, **changes)


@given(SEEDS)
def test_every_pair_that_can_meet_meets(seed: int) -> None:
    space = toy_space()
    rows = list(all_pairs(space, 3000, Random(seed)))
    met = {pair for row in rows for pair in space.pairs_of(row)}
    for a, b in combinations(space.factors, 2):
        for x in a.classes:
            for y in b.classes:
                cheapest = {a.name: least(x), b.name: least(y)}
                can_meet = space.allows(cheapest, 3000)
                assert ((a.name, x.label, b.name, y.label) in met) == can_meet, (a.name, x.label, b.name, y.label)
    assert all(space.allows(row, 3000) for row in rows)


def least(found: Span | Choice) -> int | str:
    return found.low if isinstance(found, Span) else found.label


@given(SEEDS)
def test_every_class_is_drawn_also_one_that_costs_more(seed: int) -> None:
    space = toy_space()
    rows = list(each_class(space, 60, Random(seed)))
    met = {item for row in rows for item in space.classes_of(row).items()}
    assert met == {(f.name, c.label) for f in space.factors for c in f.classes}


@given(SEEDS)
def test_large_rows_fill_what_the_cost_allows(seed: int) -> None:
    for row in large_rows(toy_space(), 100, 3, Random(seed)):
        assert row["n"] > 64 or row["kind"] == "c"


@given(st.integers(1, 5000), st.integers(0, 3), st.integers(1, 64), SEEDS)
def test_the_classes_of_a_size_hold_every_size_once(most: int, least_steps: int, step: int, seed: int) -> None:
    factor = size("n", max(most, least_steps), least=least_steps, step=step)
    largest = max(most, least_steps)
    for steps in (least_steps, largest, Random(seed).randint(least_steps, largest + 3)):
        holders = [c for c in factor.classes if c.holds(steps * step)]
        assert len(holders) == (least_steps <= steps <= largest)
    for found in factor.classes:
        assert isinstance(found, Span)
        drawn = found.draw(Random(seed))
        assert found.holds(drawn)
        assert drawn % step == 0


def test_a_stated_range_without_a_case_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An op whose space excludes one of its own classes."""
    op = OPS["split_heads"]
    assert op.space is not None
    narrowed = replace(op.space, fits=lambda row: row.get("x") != "bf16")
    monkeypatch.setitem(op.__dict__, "space", narrowed)
    found = op_tasks("reference", ("portable",), op, full=False, seed=0)
    assert unreached(found) == ["split_heads: no case has x = bf16"]
    monkeypatch.setattr(sys, "argv", ["samebits", "verify", "--op", "split_heads", "--tier", "portable", "-j", "1"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert "not reached split_heads: no case has x = bf16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("T=33,color=red", "case: color is an unknown factor, but must be one of T, N, K"),
        ("weight=q9", "case: weight is q9, but must be f32 or f16"),
        ("K=100", "case: K is 100, but must be a multiple of 32"),
        ("K=32,weight=q4_k", "case: K=32,weight=q4_k is values that exclude each other, but must be a row"),
        ("T=many", "case: T is many, but must be 0 or 1 or 2 or 3..4"),
    ],
)
def test_a_row_that_the_space_does_not_have_is_one_line(case: str, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        find_case(OPS["gemm"], case)
    assert str(refusal.value).startswith(message)


def test_a_row_may_leave_out_what_is_as_usual() -> None:
    assert find_case(OPS["gemm"], "T=33,weight=q4_k").dims == {"T": 33, "N": 40, "K": 512}


def test_costs_bound_what_is_drawn() -> None:
    space = OPS["gemm"].space
    assert space is not None
    rows: list[Row] = list(each_class(space, QUICK_OPERATIONS, Random(3)))
    assert all(space.cost(row) <= QUICK_OPERATIONS << 6 for row in rows)
    assert sum(space.cost(row) > QUICK_OPERATIONS for row in rows) <= 3
    assert len(stated_classes(OPS["gemm"])) > 80
    assert FULL_OPERATIONS > QUICK_OPERATIONS
