"""What backends read from an op's record instead of keeping lists: views, caches, weights."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.ops import OPS, Op, bind, evaluate, make_inputs

VIEWS = [op for op in OPS if op.is_view]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_a_view_is_columns_of_its_input(op: Op) -> None:
    for case in op.cases:
        bound = bind(op, **make_inputs(op, case))
        (source,), (result,) = bound.tensors.values(), evaluate(bound)
        rows, num_columns = source.reshape(len(source), source[0:1].size), result[0:1].size
        start = op.view_start(**bound.attrs)
        assert np.array_equal(rows[:, start : start + num_columns], result.reshape(len(result), num_columns)), case.id


def test_what_follows_from_the_records() -> None:
    assert [op.name for op in VIEWS] == ["split_heads", "merge_heads", "slice_columns"]
    assert {op.weights for op in OPS if op.weights} == {("weight",), ("table",)}
    on_caches = {op.name: op.caches for op in OPS if op.caches}
    assert on_caches.pop("convert_kv_layout") == ("cache",)
    assert on_caches.pop("copy_slots") == ("state",)
    assert set(on_caches.values()) == {("k_cache", "v_cache")}
    assert "paged_attention" in on_caches
    assert all(set(op.writes) <= {*op.caches, "residual"} for op in OPS)
