"""Which results of the native backend lie in the memory of another value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samebits.backends.windows import Window, find_windows
from samebits.core.shapes import Sym, TensorSpec
from samebits.graph import Graph
from samebits.ops import OPS
from samebits.ops.build import OpBuilder


def heads_of_a_joined_product() -> Graph:
    """Columns 8 .. 23 of [T, 32] as two heads, and of those the columns 0 .. 3."""
    b = OpBuilder()
    x = b.input("x", TensorSpec((Sym("T", 5), 32), "f32"))
    heads = b.split_heads(b.slice_columns(b.add(x, x), start=8, stop=24), heads=2)
    first = b.slice_columns(heads, start=0, stop=4)
    return b.finish(b.add(heads, heads), b.add(first, first))


def test_rows_are_windows_and_columns_inside_heads_are_not() -> None:
    graph = heads_of_a_joined_product()
    base, sliced, split = (node.outputs[0].name for node in graph.nodes[:3])
    assert find_windows(graph) == {sliced: Window(base, 32, 128), split: Window(base, 32, 128)}


def test_whether_an_op_is_a_view_is_read_from_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPS._entries, "slice_columns", replace(OPS["slice_columns"], view_start=None))
    graph = heads_of_a_joined_product()
    _, sliced, split = (node.outputs[0].name for node in graph.nodes[:3])
    assert find_windows(graph) == {split: Window(sliced, 0, 0)}
