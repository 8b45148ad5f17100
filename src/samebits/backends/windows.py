"""Values that are some columns of others, so that they need no memory of their own."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.format import FORMATS
from samebits.core.shapes import Sym
from samebits.graph import Graph, Value
from samebits.graph.uses import overwritten_at, state_values


@dataclass(frozen=True)
class Window:
    """A value that is some columns of another: it starts `offset` bytes into each row of `base`."""

    base: str
    offset: int
    row_stride: int  # bytes; 0 where rows follow each other


def _row_bytes(value: Value) -> int:
    width = 1
    for dim in value.spec.shape[1:]:
        if isinstance(dim, Sym):
            return 0
        width *= dim
    return FORMATS[value.spec.format].row_bytes(width)


def find_windows(graph: Graph) -> dict[str, Window]:
    """Values that need no memory of their own. The base must not be written while the window is read."""
    fixed = state_values(graph) | {v.name for v in graph.outputs}
    overwritten = overwritten_at(graph)
    windows: dict[str, Window] = {}
    for node in graph.nodes:
        if node.op.view_start is None:
            continue
        (source,), (result,) = node.inputs.values(), node.outputs
        root = windows.get(source.name, Window(source.name, 0, 0))
        row_bytes, first = _row_bytes(source), node.op.view_start(**node.attrs)
        whole_rows = first == 0 and _row_bytes(result) == row_bytes
        is_written = not overwritten.keys().isdisjoint({source.name, root.base, result.name})
        has_place = not fixed.isdisjoint({root.base, result.name})  # the caller's memory
        cuts_inside = not whole_rows and len(source.spec.shape) != 2
        if is_written or has_place or cuts_inside or not row_bytes:
            continue
        skipped = FORMATS[source.spec.format].row_bytes(first)
        stride = root.row_stride if whole_rows else root.row_stride or row_bytes
        windows[result.name] = Window(root.base, root.offset + skipped, stride)
    return windows
