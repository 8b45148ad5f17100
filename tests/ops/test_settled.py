"""What every reference computes: settled results, nothing below the magnitude its record states, no subnormal."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tracing import traced_copy, tracing

from samebits.core.numerics.settling import unsettled
from samebits.ops import OPS, bind, make_inputs
from samebits.ops.evaluate import Bound, call_arguments, evaluate
from samebits.ops.record import FLOATS
from samebits.verify.select import drawn_ids, find_case

FAINT = ("=bounds", "=faint", "=any-bytes", "=special", "=wide")
MOST_CASES = 6  # of an op


@cache
def faint_rows(name: str) -> set[str]:
    """Cases whose inputs lie around the bounds of the arithmetic, and two whose blocks are faint as a whole; the op's
    first cases where it has no such rows."""
    op = OPS[name]
    rows = [row for row in drawn_ids(op, full=False, seed=0) if any(kind in row for kind in FAINT)]
    rows.sort(key=lambda row: -sum(map(row.count, FAINT)))  # so that one is taken where most inputs do
    chosen = rows[:: -(-len(rows) // MOST_CASES)] if rows else [c.id for c in op.cases[:3]]
    faint_blocks = [row for row in rows if "values=wide" in row and not row.startswith("T=0,")][:2]
    return {*chosen, *faint_blocks}


def faint_calls(name: str) -> list[Bound]:
    op = OPS[name]
    return [bind(op, **make_inputs(op, find_case(op, row))) for row in faint_rows(name)]


@pytest.mark.parametrize("name", OPS.names())
def test_results_are_settled_and_no_step_underflows(name: str) -> None:
    for bound in faint_calls(name):
        with np.errstate(under="raise"):
            results = evaluate(bound)
        for result, spec in zip(results, bound.result_specs(), strict=True):
            if spec.format in FLOATS and isinstance(result, np.ndarray):
                finite = result[np.isfinite(result.astype(np.float32))]  # cells that nobody wrote hold NaN
                assert not unsettled(finite).any()


@pytest.mark.parametrize("name", [op.name for op in OPS if op.smallest is not None])
def test_no_intermediate_is_below_what_the_record_states(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, smallest = OPS[name], np.inf
    for bound in faint_calls(name):
        arguments = {key: traced_copy(value) for key, value in call_arguments(bound).items()}
        with np.errstate(over="ignore", invalid="ignore"), tracing(monkeypatch) as noted:
            op.reference(**arguments)
        smallest = min([smallest, *(low for low, _ in noted)])
    assert op.smallest is not None
    assert 2.0**op.smallest <= smallest < 2.0**-40, "the record states a magnitude far from what is computed"
