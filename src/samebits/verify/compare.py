"""Two sets of artifacts side by side, by the rules of each op. Nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed, format_of
from samebits.ops import Op, bind
from samebits.ops.record import FLOATS
from samebits.verify.artifacts import Artifact, find_artifacts, read_artifact
from samebits.verify.bounds import Judge
from samebits.verify.harness import raw_bytes
from samebits.verify.locate import axis_labels, first_difference, untouched_rows
from samebits.verify.tolerance import as_numbers


@dataclass(frozen=True)
class Distance:
    """How far a result of A is from B's, over the places where both are finite; None where it has no meaning."""

    result: str
    where: str = ""  # the first element that differs, in words; nothing where all bits are equal
    max_abs: float = 0.0
    max_ulp: int | None = 0
    nmse: float | None = 0.0


@dataclass(frozen=True)
class Comparison:
    """One op and case. `same`: all bits agree; `close`: within the op's rule; `missing`: only one side has it."""

    op: str
    case: str
    status: Literal["same", "close", "different", "missing", "broken"]
    reason: str = ""
    distances: tuple[Distance, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_trees(a: Path, b: Path) -> Iterator[Comparison]:
    """Every op and case of either side, in order; two single artifacts may carry different case names."""
    left, right = find_artifacts(a), find_artifacts(b)
    if (("", "") in left) != (("", "") in right):
        raise BadInput("compare", "A and B", "an artifact and a tree of them", "two of the same kind")
    for key in sorted({*left, *right}):
        if key not in left or key not in right:
            name, case = (ascii(part)[1:-1] for part in key)
            yield Comparison(name, case, "missing", f"only in {'A' if key in left else 'B'}")
            continue
        try:
            pair = read_artifact(left[key], key), read_artifact(right[key], key)
        except BadInput as error:
            name, case = key if key[0] else (left[key].parent.name, left[key].name)
            yield Comparison(name, case, "broken", str(error))
            continue
        with np.errstate(all="ignore"):  # artifacts may hold any bits
            yield compare_artifacts(*pair)


def compare_artifacts(a: Artifact, b: Artifact) -> Comparison:
    """A compared with B: first whether it is the same call, then bits, then the op's rule."""
    name, case = b.op.name, b.case
    other_call = _other_call(a, b)
    if other_call:
        return Comparison(name, case, "different", other_call)
    exact = all(difference(b, n, a.outputs[n]) is None for n in b.outputs)
    if exact:
        return Comparison(name, case, "same", distances=tuple(Distance(n) for n in b.outputs))
    a, b = _without_poison(a, b)
    distances = tuple(_distance(a, b, n) for n in b.outputs)
    broken = RULES.get(name, _within_bounds)(a, b)
    first = next((f"{d.result}: {d.where}" for d in distances if d.where), "NaN poison of cells nobody wrote")
    return Comparison(name, case, "different" if broken else "close", broken or first, distances)


def difference(of: Artifact, name: str, got: HostTensor, wrong: np.ndarray | None = None) -> str | None:
    """The first element of a result whose bits are not the artifact's, in words; None when all are equal.

    `wrong` marks the elements meant.
    """
    want = of.outputs[name]
    if isinstance(got, Packed) and isinstance(want, Packed) and got.scale != want.scale:
        return f"tensor scale {got.scale} instead of {want.scale}"
    result = next(r for r in of.op.results if r.name == name)
    untouched = untouched_rows(result, of.inputs.get(result.alias_of or ""), want)
    return first_difference(got, want, _labels(of.op, name, len(want.shape), of.attrs), wrong, untouched)


def beyond_bounds(of: Artifact, name: str, got: HostTensor) -> str | None:
    """Return the first element that differs where a result, or the artifact's, is not what `fast` allows, in words."""
    want = of.outputs[name]
    if got.shape != want.shape:
        return difference(of, name, got)
    judge, index = Judge(bind(of.op, **of.inputs, **of.attrs), tuple(of.outputs.values())), list(of.outputs).index(name)
    wrong = (judge.outside(index, got) | judge.outside(index, want)) & (as_numbers(got) != as_numbers(want))
    return difference(of, name, got, wrong) if wrong.any() else None


def _labels(op: Op, name: str, rank: int, attrs: dict[str, Any]) -> list[str]:
    return axis_labels(op, [r.name for r in op.results].index(name), rank, attrs)


def _other_call(a: Artifact, b: Artifact) -> str:
    """Why the two are not results of the same call; nothing when they are."""
    if a.op is not b.op:
        return f"op: {a.op.name} instead of {b.op.name}"
    if a.numerics_version != b.numerics_version:
        return f"numerics version: {a.numerics_version} instead of {b.numerics_version}"
    if a.attrs != b.attrs:
        wrong = next(n for n in b.attrs if a.attrs[n] != b.attrs[n])
        return f"config: {wrong}: {a.attrs[wrong]!r} instead of {b.attrs[wrong]!r}"
    if a.inputs.keys() != b.inputs.keys():
        return f"inputs: {', '.join(a.inputs)} instead of {', '.join(b.inputs)}"
    for name, want in b.inputs.items():
        got = a.inputs[name]
        if format_of(got) is not format_of(want):
            return f"input {name}: {format_of(got).name} instead of {format_of(want).name}"
        if name in b.op.caches and got.shape == want.shape:
            poison = _poison(got) & _poison(want)
            got, want = _blank(got, poison), _blank(want, poison)
        where = first_difference(got, want, [f"axis-{i}" for i in range(len(want.shape))])
        if where or (isinstance(got, Packed) and isinstance(want, Packed) and got.scale != want.scale):
            return f"input {name}: {where or 'another tensor scale'}"
    return ""


def _poison(x: HostTensor) -> np.ndarray:
    """bool [...]: cells (rows of the last axis) that are NaN throughout."""
    cells: np.ndarray = np.isnan(as_numbers(x)).all(axis=-1)
    return cells


def _blank(x: HostTensor, cells: np.ndarray) -> HostTensor:
    """A copy with some cells zeroed."""
    data = (x.data if isinstance(x, Packed) else x).copy()
    data[cells] = 0
    return Packed(x.format, data, x.scale) if isinstance(x, Packed) else data


def _without_poison(a: Artifact, b: Artifact) -> tuple[Artifact, Artifact]:
    """Both with the cells zeroed that neither wrote and that hold NaN in both."""
    outputs = dict(a.outputs), dict(b.outputs)
    for result in b.op.results:
        if result.alias_of not in b.op.caches or result.name not in b.outputs:
            continue
        cells = np.ones(b.outputs[result.name].shape[:-1], bool)
        for side in (a, b):
            after, before = side.outputs[result.name], side.inputs[result.alias_of]
            cells &= _poison(after) & (raw_bytes(after) == raw_bytes(before)).all(axis=-1)
        for tensors in outputs:
            tensors[result.name] = _blank(tensors[result.name], cells)
    return replace(a, outputs=outputs[0]), replace(b, outputs=outputs[1])


def _distance(a: Artifact, b: Artifact, name: str) -> Distance:
    got, want = a.outputs[name], b.outputs[name]
    x, y = as_numbers(got), as_numbers(want)
    both = np.isfinite(x) & np.isfinite(y)
    apart = np.abs(x[both] - y[both])
    signal, noise = float((y[both] ** 2).sum()), float((apart**2).sum())
    return Distance(
        name,
        difference(b, name, got) or "",
        float(apart.max(initial=0.0)),
        max_ulp(got, want, both),
        noise / signal if signal else None if noise else 0.0,
    )


def max_ulp(got: HostTensor, want: HostTensor, both: np.ndarray) -> int | None:
    """Representable numbers between the two, at most; None for what has no float bits of its own."""
    if isinstance(got, Packed) or isinstance(want, Packed) or format_of(want).name not in FLOATS:
        return None
    steps = np.abs(_ordered(got[both]) - _ordered(want[both]))
    return int(steps.max(initial=0))


def _ordered(x: np.ndarray) -> np.ndarray:
    """int64 in the order of the floats, 1 apart for neighbours; both zeros are 0."""
    bits = np.ascontiguousarray(x).view(f"u{x.itemsize}").astype(np.int64)
    sign = np.int64(1) << np.int64(8 * x.itemsize - 1)
    return np.where(bits >= sign, sign - bits, bits)


Rule = Callable[[Artifact, Artifact], str]  # what breaks the rule, or nothing


def _within_bounds(a: Artifact, b: Artifact) -> str:
    found = ((name, beyond_bounds(b, name, a.outputs[name])) for name in b.outputs)
    return next((f"{name}: {where}" for name, where in found if where), "")


def _same_choice(a: Artifact, b: Artifact) -> str:
    """Return what breaks the rule of top_k: equal values in equal order, and indices that hold them, once each.

    The definition ranks equal values by index. Artifacts of other software may rank them in another way.
    """
    x = as_numbers(b.inputs["x"])
    for side in (a, b):
        values, indices = as_numbers(side.outputs["values"]), as_numbers(side.outputs["indices"]).astype(np.int64)
        chosen = np.sort(indices, axis=-1)
        outside = (indices < 0) | (indices >= x.shape[-1])
        held = np.take_along_axis(x, np.where(outside, 0, indices), axis=-1) if x.size else values
        if outside.any() or (np.diff(chosen, axis=-1) == 0).any() or not np.array_equal(held, values):
            return f"indices of {'A' if side is a else 'B'} do not hold its values: {_indices_differ(a, b)}"
    if not np.array_equal(as_numbers(a.outputs["values"]), as_numbers(b.outputs["values"])):
        return f"values: {difference(b, 'values', a.outputs['values'])}"
    return ""


def _indices_differ(a: Artifact, b: Artifact) -> str:
    return difference(b, "indices", a.outputs["indices"]) or "on both sides"


def _same_survivors(a: Artifact, b: Artifact) -> str:
    """top_k_mask_logits: the same positions are finite, then their values."""
    kept = [np.isfinite(as_numbers(side.outputs["y"])) for side in (a, b)]
    where = first_difference(kept[0], kept[1], _labels(b.op, "y", kept[1].ndim, b.attrs))
    return f"finite positions: {where}" if where else _within_bounds(a, b)


RULES: dict[str, Rule] = {"top_k": _same_choice, "top_k_mask_logits": _same_survivors}
