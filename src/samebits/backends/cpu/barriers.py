"""The barriers of a native program: the places where its threads must meet.

Threads go through a program's calls on their own, each over its own rows, until a barrier. A call needs no barrier in
front of it if each thread touches only its own rows of all memory that the calls since the last barrier write, or that
the call writes and they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samebits.core.shapes import Dim, TensorSpec
from samebits.graph import Node
from samebits.ops.record import Op


@dataclass(frozen=True)
class Axis:
    """The axis that a kernel's threads share out: its name in the op's record, and its size."""

    name: str
    size: Dim


@dataclass
class Access:
    """The use of one memory by calls: whether any call writes there, and whether threads keep to their own rows."""

    is_written: bool = False
    is_by_row: bool = True


def _first_axis(names: Sequence[str], spec: TensorSpec) -> Axis | None:
    """Return a tensor's first axis. None for a tensor with one axis: it may be a single row, read by all threads."""
    return Axis(names[0], spec.shape[0]) if len(spec.shape) > 1 else None


def shared_axis(node: Node, op: Op, split: str) -> Axis | None:
    """Return the axis along which a kernel goes thread by thread; None for any other kernel (see runtime/op.h)."""
    if split == "free":
        return None
    if split == "rows":
        return _first_axis(op.results[0].axes(node.outputs[0].spec.shape), node.outputs[0].spec)
    first = op.inputs[0]
    return _first_axis(first.axes(node.inputs[first.name].spec.shape), node.inputs[first.name].spec)


def _accesses(node: Node, op: Op, split: str, memory: Mapping[str, str]) -> dict[str, Access]:
    """Return how a call uses each memory. `memory` maps values to the first value that lies there.

    Rows of an input are a thread's own if the op's record gives its first axis the name of the shared one, and if the
    op is invariant along that axis: then no result depends on another row of it. `rope` reads its table anywhere.
    """
    axis, found = shared_axis(node, op, split), dict[str, Access]()

    def note(name: str, is_by_row: bool, is_written: bool) -> None:
        access = found.setdefault(memory[name], Access())
        access.is_by_row &= is_by_row
        access.is_written |= is_written

    for declared in op.inputs:
        if declared.name in node.inputs:
            value = node.inputs[declared.name]
            first = _first_axis(declared.axes(value.spec.shape), value.spec)
            note(value.name, first is not None and first == axis and first.name in op.invariant_axes, False)
    for value in node.outputs:
        note(value.name, split == "rows" and axis is not None and value.spec.shape[:1] == (axis.size,), True)
    return found


def _conflict(before: Access, after: Access) -> bool:
    return (before.is_written or after.is_written) and not (before.is_by_row and after.is_by_row)


def needs_barrier(
    nodes: Sequence[Node], ops: Sequence[Op], splits: Mapping[str, str], memory: Mapping[str, str]
) -> list[bool]:
    """Return for each node whether the next one must wait for all threads.

    splits  how each op's kernel shares out its work, by the op's name (runtime/op.h)
    memory  value -> the first value that lies in the same memory
    """
    calls = [(node, op, splits[op.name]) for node, op in zip(nodes, ops, strict=True)]
    axes = [shared_axis(*call) for call in calls]
    accesses = [_accesses(*call, memory) for call in calls]
    since: dict[str, Access] = {}  # by the calls since the last barrier
    barriers = [True] * len(calls)  # one at the end too
    for number in range(len(calls) - 1):
        for name, access in accesses[number].items():
            known = since.setdefault(name, Access())
            known.is_by_row &= access.is_by_row
            known.is_written |= access.is_written
        axis, following = axes[number], axes[number + 1]
        if calls[number][2] == "rows" and axis is not None and following is not None and axis.size == following.size:
            later = accesses[number + 1]
            barriers[number] = any(_conflict(since[name], later[name]) for name in since.keys() & later.keys())
        if barriers[number]:
            since = {}
    return barriers
