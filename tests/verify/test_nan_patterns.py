"""NaNs of any pattern are equal wherever results are compared, and memory that a call leaves alone keeps its bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import Results, defined
from planted_base import EVERY_OP, Arguments, Defect

from samebits.backends.reference import ReferenceBackend
from samebits.core.format import copy_tensor
from samebits.core.tiers import Tier
from samebits.ops import OPS, bind, make_inputs
from samebits.verify.artifacts import Artifact
from samebits.verify.checks import Examination
from samebits.verify.compare import compare_artifacts
from samebits.verify.harness import execute, same_bytes
from samebits.verify.locate import same_bits, untouched_rows
from samebits.verify.refusals import Comparisons
from samebits.verify.reruns import rerun_findings
from samebits.verify.select import find_case
from samebits.verify.soak import soak_findings

RING = "batch=mixed,Hk=1,share=2,K=4,V=240,v_heads=grouped,decay=slow,values=mixed"


class OtherNans(Defect):
    """A backend that is right and whose NaNs have the pattern of NVIDIA's GPUs."""

    ops = EVERY_OP

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        records = OPS[op_name].active_results(arguments, arguments)
        before = [copy_tensor(arguments[r.alias_of]) if r.alias_of else None for r in records]
        results = defined(op_name, arguments)
        for record, old, new in zip(records, before, results, strict=True):
            if isinstance(new, np.ndarray) and new.dtype == np.float32:
                kept = untouched_rows(record, old, new)
                changed = np.isnan(new) if kept is None else np.isnan(new) & ~kept[..., None]
                new.view(np.uint32)[changed] = 0x7FFFFFFF
        return results


def infinite_rows() -> dict[str, Any]:
    """Rows whose sum holds an Inf - Inf, so that the residual, which is updated in place, holds a NaN."""
    x, residual = np.ones((2, 4, 8), np.float32)
    x[1, 2], residual[1, 2] = np.inf, -np.inf
    return {"x": x, "residual": residual, "weight": np.ones(8, np.float32)}


def infinite_values() -> dict[str, Any]:
    """A batch of gated_delta_rule whose first head has infinite values, so that its state and its ring hold NaNs."""
    op = OPS["gated_delta_rule"]
    inputs = make_inputs(op, find_case(op, RING))
    values = inputs["v"].copy()
    values[:, 0] = np.inf
    return {**inputs, "v": values}


def differs_in_bytes(op: str, inputs: dict[str, Any]) -> bool:
    """Whether OtherNans gives other bytes than the reference."""
    backends = (ReferenceBackend(), OtherNans())
    results = [execute(b, OPS[op], inputs, Tier.PORTABLE).results for b in backends]
    return not all(map(same_bytes, *results))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_single_runs_with_other_nans_pass() -> None:
    calls = {"fused_add_rms_norm": infinite_rows(), "gated_delta_rule": infinite_values()}
    for op, inputs in calls.items():
        assert differs_in_bytes(op, inputs)
        assert list(Examination(OtherNans(), OPS[op], inputs, Tier.PORTABLE, Comparisons()).findings()) == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reruns_and_launches_with_other_nans_pass() -> None:
    op, first = OPS["fused_add_rms_norm"], infinite_rows()
    calls = {"first": first, "other values": {**first, "x": -first["x"], "residual": -first["residual"]}}
    assert list(rerun_findings(OtherNans(), op, calls, Tier.PORTABLE, Comparisons())) == []
    assert list(soak_findings(OtherNans(), op, first, Tier.PORTABLE, 20, Comparisons())) == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_artifacts_with_other_nans_are_the_same() -> None:
    op, inputs = OPS["fused_add_rms_norm"], infinite_rows()
    bound, artifacts = bind(op, **inputs), []
    for backend in (ReferenceBackend(), OtherNans()):
        results = execute(backend, op, inputs, Tier.PORTABLE).results
        outputs = {r.name: x for r, x in zip(op.results, results, strict=True)}
        artifacts.append(Artifact(op, "nan", bound.attrs, bound.tensors, outputs, {}))
    assert compare_artifacts(*artifacts).status == "same"


class OtherPoison(Defect):
    """A backend that writes other NaNs into the cells of a cache that no token is for."""

    ops = ("append_paged_kv_cache",)

    def spoil(self, a: Arguments, results: Results) -> None:
        cells = results[0]
        if isinstance(cells, np.ndarray):
            cells[np.isnan(cells).all(axis=-1)] = np.array(0x7E01, np.uint16).view(np.float16)


def test_cells_that_nobody_wrote_keep_every_byte() -> None:
    op = OPS["append_paged_kv_cache"]
    inputs = make_inputs(op, find_case(op, "page-edge"))
    found = list(Examination(OtherPoison(), op, inputs, Tier.PORTABLE, Comparisons()).findings())
    assert found
    assert {f.check for f in found} <= {"bits"}


def test_untouched_rows_are_those_of_memory_without_axes() -> None:
    before = np.array([[1, np.nan], [2, 3]], np.float32)
    want = np.array([[1, np.nan], [2, 4]], np.float32)
    cache, residual = OPS["append_paged_kv_cache"].results[0], OPS["fused_add_rms_norm"].results[1]
    untouched = untouched_rows(cache, before, want)
    assert untouched is not None
    assert untouched.tolist() == [True, False]
    assert untouched_rows(residual, before, want) is None
    assert untouched_rows(replace(cache, alias_of=None), before, want) is None
    other: Any = want.copy()
    other.view(np.uint32)[0, 1] = 0x7FFFFFFF
    assert same_bits(other, want)
    assert not same_bits(other, want, untouched)
