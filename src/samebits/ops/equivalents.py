"""Other ways to ask for the same result: what batch invariance means, as calls that can be run.

An op's `equivalents(op, inputs)` yields them; inputs are those of a case, attrs included. The default below
serves ops on independent rows. Ops on ragged batches and paged caches bring their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops.record import Op
from samebits.ops.sizes import BATCHES

Results = tuple[HostTensor, ...]
Execute = Callable[[dict[str, Any]], Results]


@dataclass(frozen=True)
class Equivalent:
    """`compute(execute)` makes one or more calls and joins their results; they must have the bits of `expect`
    applied to the results of the original call. `check` names the promise that is broken if they differ."""

    check: str
    detail: str
    compute: Callable[[Execute], Results]
    expect: Callable[[Results], Results] = lambda results: results


def take(x: HostTensor, rows: np.ndarray, axis: int) -> HostTensor:
    """A fresh tensor with these rows of x along an axis that is not the last of a packed tensor."""
    if isinstance(x, Packed):
        return Packed(x.format, np.take(x.data, rows, axis=axis), x.scale)
    return np.take(x, rows, axis=axis)


def axis_of(dims: str, name: str, rank: int) -> int | None:
    """Where dimension `name` stands in a tensor of this rank; None if it does not carry it."""
    texts = dims.split()
    if texts and texts[0] == "...":
        if name == "...":
            return 0 if rank >= len(texts) else None
        offset = rank - len(texts)
        return texts.index(name) + offset if name in texts else None
    return texts.index(name) if name in texts else None


def input_axes(op: Op, inputs: dict[str, Any], axis_name: str) -> dict[str, int]:
    """The inputs that carry the axis, and where."""
    axes = {}
    for tensor in op.inputs:
        value = inputs.get(tensor.name)
        if value is None:
            continue
        dims = next((d for d in tensor.dims_choices if len(d.split()) == value.ndim or "..." in d), "")
        if "..." in tensor.dims_choices[0] and value.ndim == 1 and len(tensor.dims_choices) > 1:
            dims = tensor.dims_choices[1]  # one row for all
        axis = axis_of(dims, axis_name, value.ndim)
        if axis is not None:
            axes[tensor.name] = axis
    return axes


def spread_rows(size: int, count: int) -> np.ndarray:
    """Return `size` of `count` rows: the last ones, one in the middle and the first ones.

    A kernel may go wrong beyond a tile or a vector of rows, so that the first rows show nothing. Where the largest
    batch size holds all rows, the rows are the first ones, from row 0 again after the last.
    """
    if count <= max(BATCHES) or size >= count:
        return np.arange(size) % count
    num_last = max(size // 2, 1)
    num_first = max(size - num_last - 1, 0)
    middle = [max((count - num_last) // 2, num_first)] if size > 1 else []
    return np.array([*range(num_first), *middle, *range(count - num_last, count)])


def kept_rows(count: int) -> np.ndarray:
    """Return the rows that keep their values while their neighbours change: some at both ends and in the middle."""
    return np.unique([0, count // 2, count - 1]) if count > 4 else np.zeros(1, np.int64)


def perturbed(x: HostTensor, kept: np.ndarray, axis: int) -> HostTensor:
    """x with every row that is not kept replaced by its successor: valid values, but others."""
    rows = (np.arange(x.shape[axis]) + 1) % x.shape[axis]
    rows[kept] = kept
    return take(x, rows, axis)


def row_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """For ops whose rows along each invariant axis are independent."""
    for name in op.invariant_axes:
        axes = input_axes(op, inputs, name)
        result_axes = [axis_of(r.dims, name, len(r.dims.split())) for r in op.results]
        if not axes or None in result_axes:
            continue
        first = next(iter(axes))
        count = inputs[first].shape[axes[first]]
        if count:
            yield from _on_axis(inputs, axes, [a for a in result_axes if a is not None], count, name)


def _on_axis(
    inputs: dict[str, Any], axes: dict[str, int], result_axes: list[int], count: int, name: str
) -> Iterator[Equivalent]:
    def with_rows(rows: np.ndarray) -> dict[str, Any]:
        return {**inputs, **{n: take(inputs[n], rows, axis) for n, axis in axes.items()}}

    def pick(results: Results, rows: np.ndarray) -> Results:
        return tuple(take(r, rows, axis) for r, axis in zip(results, result_axes, strict=False))

    for size in BATCHES:
        if size == count:
            continue
        rows = spread_rows(size, count)
        yield Equivalent(
            "batch-size",
            f"{size} rows along {name} instead of {count}",
            lambda execute, rows=rows: execute(with_rows(rows)),  # type: ignore[misc]
            lambda results, rows=rows: pick(results, rows),  # type: ignore[misc]
        )
    reverse = np.arange(count)[::-1]
    if count > 1:
        yield Equivalent(
            "order",
            f"rows along {name} reversed",
            lambda execute: execute(with_rows(reverse)),
            lambda results: pick(results, reverse),
        )
        kept = kept_rows(count)
        changed = {n: perturbed(inputs[n], kept, axis) for n, axis in axes.items()}
        yield Equivalent(
            "neighbours",
            f"all rows along {name} but {', '.join(map(str, kept))} replaced",
            lambda execute: pick(execute({**inputs, **changed}), kept),
            lambda results: pick(results, kept),
        )


def segment_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """For grouped_gemm: every segment in a call of its own, and the segments in reverse order."""
    indptr = inputs["seg_indptr"]
    groups = inputs.get("weight_indices")
    groups = np.arange(len(indptr) - 1, dtype=np.int32) if groups is None else groups

    def call(chosen: list[int]) -> tuple[dict[str, Any], np.ndarray]:
        rows = np.concatenate([np.arange(indptr[s], indptr[s + 1]) for s in chosen]).astype(np.int64)
        counts = [int(indptr[s + 1] - indptr[s]) for s in chosen]
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return {**inputs, "x": inputs["x"][rows], "seg_indptr": ends, "weight_indices": groups[chosen]}, rows

    segments = list(range(len(indptr) - 1))
    for check, chosen in (*(("batch-size", [s]) for s in segments), ("order", segments[::-1])):
        asked, rows = call(chosen)
        yield Equivalent(
            check,
            f"segments {chosen}",
            lambda execute, asked=asked: execute(asked),  # type: ignore[misc]
            lambda results, rows=rows: tuple(r[rows] for r in results),  # type: ignore[misc]
        )
