"""Several calls that one executable must serve: other values, weights, pages and numbers of rows, the same formats.

What may differ between them is what a graph may leave open: values always, sizes along the dimensions that stand first
in every tensor that has them and that either belong to the batch or count entries of index arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.numerics.counter import Stream
from samebits.core.shapes import DIM_TEXT, Env, Sym, TensorSpec, build_shape, match_shape
from samebits.ops import Bound, Op, bind, make_inputs
from samebits.ops.equivalents import input_axes, take
from samebits.ops.expert_equivalents import has_pairs, of_rows
from samebits.ops.record import Case

Inputs = dict[str, Any]
LEADING, ROWS = "...", "rows"  # an op's leading axes, and the name of the first of them as a symbol
MANY_ROWS = 33  # more than two vectors or a warp hold
MANY_SEQUENCES = 9
MOST_ELEMENTS = 1 << 17  # in the rows of a larger call: the reference has to compute them too
INDEX_FORMATS = {"i32", "bool"}
PAGE_IDS = ("kv_indices", "sources", "targets")


@dataclass(frozen=True)
class Signature:
    """What a graph for all the calls is compiled from: specs with symbols, and the sizes of each call."""

    specs: dict[str, TensorSpec]
    dims: list[dict[str, int]]


def calls_of(op: Op, case: Case, seed: int) -> dict[str, Inputs]:
    """Calls of one signature, by what sets them apart from the first."""
    first, other = make_inputs(op, case, seed), make_inputs(op, case, seed + 1)
    other = _with_other_constants(op, first, other)
    calls = {"first": first, "other values": other}
    if first.get("kv_indptr") is not None:
        calls["shorter sequences"] = _shorter(first)  # next after the first: as many rows, fewer positions
    for name, call in (("many rows", many_rows(op, other)), ("fewer rows", fewer_rows(op, first))):
        if call is not None:
            calls[name] = call
    weights = constant_names(op, first)
    if weights and not any(name in first for name in (*op.caches, *PAGE_IDS)):
        calls["other weights"] = {**first, **{name: other[name] for name in weights}}
    if any(first.get(name) is not None for name in PAGE_IDS):
        calls["other pages"] = _other_pages(op, first, Stream(f"{op.name}/{case.id}/pages", seed))
    calls["another last row"] = _other_end(op, first, other)
    return {name: call for name, call in calls.items() if _is_valid(op, call)}


def _with_other_constants(op: Op, first: Inputs, other: Inputs) -> Inputs:
    """Return the other call with constants unlike the first call's, even where the seed changes none of them."""
    changed = {}
    for name in constant_names(op, first):
        constant, again = first[name], other[name]
        if isinstance(constant, np.ndarray) and np.array_equal(constant, again, equal_nan=True):
            changed[name] = np.ascontiguousarray(constant[::-1])
    return {**other, **changed}


def _shorter(first: Inputs) -> Inputs:
    """The first call over the second half of every sequence's pages: a window may have released the first."""
    stops = first["kv_indptr"].astype(np.int64)[1:]
    kept = (np.diff(first["kv_indptr"].astype(np.int64)) + 1) // 2
    ids = [first["kv_indices"][stop - n : stop] for stop, n in zip(stops, kept, strict=True)]
    return {
        **first,
        "kv_indptr": np.concatenate([[0], np.cumsum(kept)]).astype(np.int32),
        "kv_indices": np.concatenate([*ids, np.zeros(0, np.int32)]).astype(np.int32),
    }


def _other_end(op: Op, first: Inputs, other: Inputs) -> Inputs:
    """The first call but for the last row of each plain tensor: what looks at the beginning alone takes it for that.

    A row of poison, such as a slot that the other call does not use, takes no row's place: the first call may use it,
    and would compute NaNs of any pattern.
    """
    changed = {}
    for name, tensor in first.items():
        is_plain = isinstance(tensor, np.ndarray) and tensor.dtype.kind in "fV" and name not in op.caches
        if is_plain and tensor.ndim and len(tensor):
            is_poison = (np.isnan(other[name][-1]) & ~np.isnan(tensor[-1])).any()
            changed[name] = tensor.copy()
            changed[name][-1] = tensor[-1] if is_poison else other[name][-1]
    return {**first, **changed}


def _is_valid(op: Op, call: Inputs) -> bool:
    """Whether the op takes the call: a case with an unusual table or mask may not allow every change."""
    try:
        bind(op, **call)
    except BadInput:
        return False
    return True


def _texts(op: Op, bound: Bound) -> dict[str, str]:
    """The dimension text that each given input was matched by."""
    texts, env = {}, Env()
    for tensor in op.inputs:
        if tensor.name in bound.tensors:
            for dims in tensor.dims_choices:
                trial = dict(env)
                if match_shape(dims, bound.tensors[tensor.name].shape, trial):
                    env.update(trial)
                    texts[tensor.name] = dims
                    break
    return texts


def _name(text: str) -> str | None:
    """The dimension a text speaks of; None for a number."""
    parts = DIM_TEXT.match(text)
    return LEADING if text == LEADING else parts["name"] if parts else None


def open_dims(op: Op, bound: Bound) -> set[str]:
    """Dimensions whose size may be left open; "..." for the first of the leading axes."""
    places: dict[str, list[tuple[int, bool]]] = {}
    for tensor, dims in _texts(op, bound).items():
        is_index = bound.specs[tensor].format in INDEX_FORMATS
        for axis, text in enumerate(dims.split()):
            name = _name(text)
            if name is not None and (name != LEADING or bound.env[LEADING]):
                places.setdefault(name, []).append((axis, is_index))
    return {
        name
        for name, found in places.items()
        if all(axis == 0 for axis, _ in found) and (name in op.invariant_axes or all(is_index for _, is_index in found))
    }


def constant_names(op: Op, call: Inputs) -> list[str]:
    """Inputs that a model would keep from step to step: floats without a batch, not written, no caches."""
    bound = bind(op, **call)
    free, texts = open_dims(op, bound), _texts(op, bound)
    return [
        name
        for name, spec in bound.specs.items()
        if spec.format not in INDEX_FORMATS
        and name not in (*op.writes, *op.caches)
        and not free & {_name(text) for text in texts[name].split()}
    ]


def signature_of(op: Op, bounds: list[Bound]) -> Signature:
    """One signature for all calls; BadInput where they differ in more than a graph may leave open."""
    first = bounds[0]
    free, texts = open_dims(op, first), _texts(op, first)
    env: Env = dict(first.env)
    dims: list[dict[str, int]] = [{} for _ in bounds]
    for name in free:
        sizes = [_size(bound, name) for bound in bounds]
        symbol = Sym(ROWS if name == LEADING else name, max(sizes))
        leading = first.env[LEADING] if name == LEADING else ()
        env[name] = (symbol, *leading[1:]) if isinstance(leading, tuple) and name == LEADING else symbol
        for sizes_of_call, size in zip(dims, sizes, strict=True):
            sizes_of_call[symbol.name] = size
    specs = {name: TensorSpec(build_shape(texts[name], env), spec.format) for name, spec in first.specs.items()}
    for bound, sizes_of_call in zip(bounds, dims, strict=True):
        if bound.specs != fixed_specs(specs, sizes_of_call) or bound.attrs != first.attrs:
            raise BadInput("verify", f"calls of {op.name}", "other formats, sizes or attrs", "one signature for all")
    return Signature(specs, dims)


def _size(bound: Bound, name: str) -> int:
    size = bound.env[name]
    return int(size[0] if isinstance(size, tuple) else size)  # type: ignore[arg-type]


def fixed_specs(specs: dict[str, TensorSpec], dims: dict[str, int]) -> dict[str, TensorSpec]:
    """The specs with their symbols replaced by sizes."""
    return {name: spec.at(dims) for name, spec in specs.items()}


def _batch_axis(op: Op, call: Inputs) -> dict[str, int]:
    """The inputs with a row for each of the batch, and where; empty where rows do not stand first."""
    for name in op.invariant_axes:
        axes = input_axes(op, call, name)
        if axes and not any(axes.values()) and name in open_dims(op, bind(op, **call)):
            return axes
    return {}


def _with_rows(call: Inputs, axes: dict[str, int], rows: np.ndarray) -> Inputs:
    return {**call, **{name: take(call[name], rows, axis) for name, axis in axes.items()}}


def fewer_rows(op: Op, call: Inputs) -> Inputs | None:
    """Return the call's last rows, or its last sequence; None where it has no batch to cut.

    The last ones, since a run that keeps the results of the run before has the right ones for the first rows.
    """
    axes = _batch_axis(op, call)
    count = call[next(iter(axes))].shape[0] if axes else 0
    if count < 2:
        return None
    if call.get("custom_mask") is not None:  # laid out by sequence
        return None
    if call.get("kv_indices") is not None and "qo_indptr" in call and len(call["qo_indptr"]) > 2:
        return _sequences(call, [len(call["qo_indptr"]) - 2])
    num_rows = (count + 1) // 2
    if has_pairs(call):
        return of_rows(call, np.arange(count - num_rows, count))
    if "qo_indptr" in call:  # a state or a contiguous cache holds what was before the first token of a sequence
        return {**_with_rows(call, axes, np.arange(num_rows)), "qo_indptr": np.minimum(call["qo_indptr"], num_rows)}
    cut = _with_rows(call, axes, np.arange(count - num_rows, count))
    if "seg_indptr" in call:
        cut["seg_indptr"] = np.maximum(call["seg_indptr"] - (count - num_rows), 0).astype(np.int32)
    return cut


def many_rows(op: Op, call: Inputs) -> Inputs | None:
    """The call's rows or sequences over and over; None where that is no valid call."""
    axes = _batch_axis(op, call)
    count = call[next(iter(axes))].shape[0] if axes else 0
    if count == 0 or (op.writes and "positions" in call) or "targets" in call:  # cells are written once in a call
        return None
    if "qo_indptr" in call:
        if call.get("custom_mask") is not None or call.get("kv_indices") is None:  # laid out by sequence
            return None
        num_sequences = len(call["qo_indptr"]) - 1
        return _sequences(call, [b % num_sequences for b in range(MANY_SEQUENCES)])
    if has_pairs(call):
        return of_rows(call, np.arange(MANY_ROWS) % count)
    row_elements = max(math.prod(call[name].shape[1:]) for name in axes)
    num_rows = min(MANY_ROWS, MOST_ELEMENTS // max(row_elements, 1))
    if num_rows <= count:
        return None
    many = _with_rows(call, axes, np.arange(num_rows) % count)
    if "seg_indptr" in call:  # the last segment takes the new rows
        many["seg_indptr"] = np.append(call["seg_indptr"][:-1], num_rows).astype(np.int32)
    return many


def _sequences(call: Inputs, chosen: list[int]) -> Inputs:
    """A call of attention with a page table and no mask, on these sequences of it."""

    def gathered(values: HostTensor, indptr: np.ndarray) -> tuple[Any, np.ndarray]:
        parts = [np.arange(indptr[b], indptr[b + 1]) for b in chosen]
        ends = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int32)
        return take(values, np.concatenate(parts).astype(np.int64), 0), ends

    changed = dict(call)
    changed["q"], changed["qo_indptr"] = gathered(call["q"], call["qo_indptr"])
    changed["kv_indices"], changed["kv_indptr"] = gathered(call["kv_indices"], call["kv_indptr"])
    changed["kv_last_page_len"] = call["kv_last_page_len"][chosen]
    return changed


def _other_pages(op: Op, call: Inputs, stream: Stream) -> Inputs:
    """The same contents in pages, or slots, elsewhere, and tables that say so."""
    caches = [name for name in op.caches or op.writes if call.get(name) is not None]
    num_pages = call[caches[0]].shape[0]
    place = stream.permutation(num_pages)  # page p moves to place[p]
    origin = np.argsort(place)
    moved = {name: take(call[name], origin, 0) for name in caches}
    return {**call, **moved, **{name: place[ids].astype(np.int32) for name, ids in _page_ids(call)}}


def _page_ids(call: Inputs) -> Iterator[tuple[str, np.ndarray]]:
    yield from ((name, call[name]) for name in PAGE_IDS if call.get(name) is not None)
