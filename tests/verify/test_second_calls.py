"""Rows at the end of a batch, and calls after the first: each is compared with the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planted import Results
from planted_base import Arguments, Defect
from planted_scenes import floats, rows_of
from planted_tiers import (
    EverySecondExecutableHalves,
    LastRowOfManyLooksAtTheOneBefore,
    SecondTileSumsInAnotherOrder,
    ThirtyThreeRowsFromOneTensor,
)

from samebits.core.tiers import Tier
from samebits.ops import OPS, make_inputs
from samebits.ops.equivalents import kept_rows, spread_rows
from samebits.verify.checks import Examination
from samebits.verify.input_sets import calls_of, fewer_rows
from samebits.verify.other_attrs import other_attrs
from samebits.verify.refusals import Comparisons
from samebits.verify.reruns import rerun_findings
from samebits.verify.select import find_case
from samebits.verify.soak import soak_findings


def test_another_call_has_other_constants_also_where_no_seed_changes_them() -> None:
    op = OPS["rope"]
    calls = calls_of(op, find_case(op, "T=5,P=512"), 0)
    for name in ("other values", "other weights"):
        assert not np.array_equal(calls["first"]["table"], calls[name]["table"])


@pytest.mark.parametrize(("size", "count"), [(1, 50), (2, 50), (3, 34), (8, 34), (32, 34), (33, 34), (33, 500)])
def test_fewer_rows_than_a_case_has_are_its_first_middle_and_last(size: int, count: int) -> None:
    rows = spread_rows(size, count)
    assert len(set(rows.tolist())) == size
    assert (np.diff(rows) > 0).all()
    assert rows[-1] == count - 1
    assert size < 3 or rows[0] == 0


def test_more_rows_than_a_case_has_are_its_rows_over_and_over() -> None:
    assert spread_rows(5, 3).tolist() == [0, 1, 2, 0, 1]
    assert spread_rows(2, 33).tolist() == [0, 1]
    assert kept_rows(3).tolist() == [0]
    assert kept_rows(9).tolist() == [0, 4, 8]


@pytest.mark.parametrize(
    ("defect", "op", "checks"),
    [
        (SecondTileSumsInAnotherOrder, "rms_norm", {"batch-size", "order"}),
        (LastRowOfManyLooksAtTheOneBefore, "softmax", {"batch-size", "neighbours", "order"}),
    ],
)
def test_rows_behind_the_first_tile_are_compared_with_other_batches(
    defect: type[Defect], op: str, checks: set[str]
) -> None:
    x = floats(100, 8)
    x[98, 0] = -1
    found = {f.check for f in Examination(defect(), OPS[op], {"x": x}, Tier.INVARIANT, Comparisons()).findings()}
    assert found
    assert found <= checks
    assert "batch-size" in found


def test_a_second_executable_is_compared_with_the_definition_at_every_tier() -> None:
    inputs = {"x": floats(2, 8), "y": floats(2, 8)}
    first, *_ = Examination(EverySecondExecutableHalves(), OPS["mul"], inputs, Tier.FAST, Comparisons()).findings()
    assert first.check == "values"
    assert first.where.startswith("again: z: row 0, element 0:")


class OtherRowsFromTheStart(Defect):
    """Wrong whenever a call has 17 rows, in a fresh executable too."""

    ops = ("add",)
    factor = 2.0

    def spoil(self, a: Arguments, results: Results) -> None:
        rows = rows_of(results[0])
        if len(rows) == 17:
            rows *= rows.dtype.type(self.factor)


class OtherBitsFromTheStart(OtherRowsFromTheStart):
    """Wrong in the last bit there."""

    factor = 1 + 2.0**-23


@pytest.mark.parametrize(
    ("defect", "tier", "check"),
    [
        (OtherRowsFromTheStart, Tier.FAST, "values"),
        (OtherBitsFromTheStart, Tier.PORTABLE, "bits"),
        (OtherBitsFromTheStart, Tier.INVARIANT, ""),
    ],
)
def test_runs_that_a_fresh_executable_gets_wrong_too_are_found(defect: type[Defect], tier: Tier, check: str) -> None:
    op = OPS["add"]
    calls = calls_of(op, find_case(op, "rows=33,axes=1,K=4,x=f32,y=f32,values=normal,y_rows=all"), 0)
    assert any(len(call["x"]) == 17 for call in calls.values())
    found = {f.check for f in rerun_findings(defect(), op, calls, tier, Comparisons())}
    assert found == ({check} if check else set())


def test_the_first_launch_of_a_soak_is_compared_with_the_definition() -> None:
    op = OPS["sigmoid_and_mul"]
    inputs = {"x": floats(33, 4), "gate": floats(33, 4, seed=1)}
    (found,) = soak_findings(ThirtyThreeRowsFromOneTensor(), op, inputs, Tier.FAST, 3, Comparisons())
    assert found.check == "values"
    assert found.where.startswith("launch 1 of 3: y: row 32")


@pytest.mark.parametrize(
    ("op", "case"), [("rms_norm", "small-f32"), ("grouped_gemm", "indices"), ("paged_attention", "unified")]
)
def test_a_smaller_call_has_the_last_rows(op: str, case: str) -> None:
    inputs: dict[str, Any] = make_inputs(OPS[op], find_case(OPS[op], case))
    fewer = fewer_rows(OPS[op], inputs)
    assert fewer is not None
    name = "q" if op == "paged_attention" else "x"
    assert 0 < len(fewer[name]) < len(inputs[name])
    assert np.array_equal(fewer[name], inputs[name][-len(fewer[name]) :])


def test_attributes_of_other_executables_are_settings_beside_the_usual_row() -> None:
    space = OPS["gated_delta_rule"].space
    assert space is not None
    usual = {f.name: f.usual for f in space.factors}
    found = other_attrs(OPS["gated_delta_rule"], space.row_id(usual))
    assert {(attrs["scale"], attrs["v_heads"]) for attrs in found} == {
        *((scale, "grouped") for scale in (1.0, 0.3, -2.0, 0.0)),
        (32**-0.5, "tiled"),
    }
    assert other_attrs(OPS["gated_delta_rule"], space.row_id({**usual, "V": 16})) == []
    assert other_attrs(OPS["gated_delta_rule"], "decode") == []


@pytest.mark.parametrize("op_name", ["ssm_scan", "gated_delta_rule"])
def test_another_last_row_brings_no_poison_into_a_call(op_name: str) -> None:
    op = OPS[op_name]
    calls = calls_of(op, find_case(op, "decode"), 0)
    for name, tensor in calls["another last row"].items():
        if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f":
            assert not (np.isnan(tensor) & ~np.isnan(calls["first"][name])).any(), name
