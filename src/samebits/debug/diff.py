"""Two backends on the same graph: the first tensor in which they differ, and how the error goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from samebits.core.format import HostTensor
from samebits.core.numerics import NUMERICS_VERSION
from samebits.debug.distance import TensorDiff, tensor_diff
from samebits.debug.stepper import StepFailed, Stepper, walk
from samebits.debug.text import aligned, bar, number
from samebits.graph import Graph
from samebits.ops import OPS, bind
from samebits.verify.bounds import Judge

SHOWN_BLAMED = 12


@dataclass(frozen=True)
class Group:
    """The tensors of one stage or op taken together; the distances are the largest among them.

    `relative` is None where one of them has none, or is not finite on one side only.
    """

    name: str
    num_tensors: int
    num_different: int
    num_beyond: int  # outside their op's bounds
    max_abs: float
    max_ulp: int | None
    relative: float | None
    one_sided: int

    @classmethod
    def of(cls, name: str, tensors: list[TensorDiff]) -> Group:
        relatives = [None if t.one_sided else t.relative for t in tensors]
        known = [r for r in relatives if r is not None]
        ulps = [t.max_ulp for t in tensors if t.max_ulp is not None]
        return cls(
            name,
            len(tensors),
            sum(not t.is_same for t in tensors),
            sum(not t.is_close for t in tensors),
            max(t.max_abs for t in tensors),
            max(ulps, default=None),
            max(known) if len(known) == len(tensors) else None,
            sum(t.one_sided for t in tensors),
        )


@dataclass(frozen=True)
class Side:
    """A backend and the tier it ran at."""

    backend: str
    tier: str

    def __str__(self) -> str:
        return f"{self.backend} ({self.tier})"


@dataclass(frozen=True)
class Report:
    """All tensors in the order they were computed. `stopped` is why the walk ended early, or nothing."""

    model: str
    a: Side
    b: Side
    tokens: tuple[int, ...]
    same_inputs: bool
    fused: bool
    tensors: tuple[TensorDiff, ...]
    num_expected: int
    stopped: str = ""

    @property
    def first(self) -> TensorDiff | None:
        return next((t for t in self.tensors if not t.is_same), None)

    def by_stage(self) -> list[Group]:
        return self._groups(lambda t: t.stage)

    def by_op(self) -> list[Group]:
        return self._groups(lambda t: t.op)

    def _groups(self, key: Callable[[TensorDiff], str]) -> list[Group]:
        groups: dict[str, list[TensorDiff]] = {}
        for tensor in self.tensors:
            groups.setdefault(key(tensor), []).append(tensor)
        return [Group.of(name, members) for name, members in groups.items()]

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "numerics_version": NUMERICS_VERSION,
            "a": vars(self.a),
            "b": vars(self.b),
            "tokens": list(self.tokens),
            "same_inputs": self.same_inputs,
            "fused": self.fused,
            "stopped": self.stopped or None,
            "first": self.first.as_json() if self.first else None,
            "by_stage": [vars(g) for g in self.by_stage()],
            "by_op": [vars(g) for g in self.by_op()],
            "tensors": [t.as_json() for t in self.tensors],
        }


def compare(
    graph: Graph, load: Callable[[str], HostTensor], a: Stepper, b: Stepper, same_inputs: bool
) -> Iterator[TensorDiff]:
    """Every tensor of the graph on B against A, as it is computed; StepFailed where a node cannot be run."""
    for step in walk(graph, load, (a, b), same_inputs):
        want, got = step.results
        judge = None
        if same_inputs:
            judge = Judge(bind(OPS[step.node.op.name], **step.arguments, **step.node.attrs), want)
        for i, label in enumerate(step.labels):
            yield tensor_diff(label, step.node, i, got[i], want[i], judge)


def collect(diffs: Iterable[TensorDiff]) -> tuple[tuple[TensorDiff, ...], str]:
    """All tensors that were compared, and why there are no more. A failure before any difference passes through."""
    tensors: list[TensorDiff] = []
    try:
        tensors.extend(diffs)
    except StepFailed as error:
        if all(t.is_same for t in tensors):
            raise
        return tuple(tensors), str(error)
    return tuple(tensors), ""


def title(report: Report) -> str:
    inputs = f"every op on {report.a.backend}'s inputs" if report.same_inputs else "each on its own values"
    graph = "after the passes" if report.fused else "op by op as the model states it"
    return f"{report.b} against {report.a}: {len(report.tokens)} tokens, {inputs}, {graph}"


def verdict(report: Report) -> list[str]:
    """The answer in a few lines: the same bits, or where they differ and by how much."""
    first, total = report.first, report.num_expected
    if first is None:
        hint = "" if report.fused else "; --fused compares what runs after the passes"
        return [f"all bits agree in {total} tensors{hint}"]
    lines = [
        f"first difference: {first.label} ({first.op}), tensor {report.tensors.index(first) + 1} of {total}",
        f"  {first.where}",
        f"  {_distance(first)}",
    ]
    if report.stopped:
        lines.append(f"stopped after {len(report.tensors)} of {total} tensors: {report.stopped}")
    return lines


def _distance(t: TensorDiff) -> str:
    parts = [f"max abs {number(t.max_abs)}", f"{number(t.max_ulp)} ulp", f"relative {number(t.relative)}"]
    parts += [f"{t.one_sided} finite on one side only"] if t.one_sided else []
    parts.append("within the op's bounds" if t.is_close else "beyond the op's bounds")
    return ", ".join(parts)


def blamed(report: Report) -> list[str]:
    """Where the ops were given the same inputs: which of them are wrong, and the tensors that show it."""
    if not report.same_inputs or report.first is None:
        return []
    rows = [("op", "differ", "beyond bounds", "ulp")]
    for g in report.by_op():
        if g.num_different:
            rows.append((g.name, f"{g.num_different} of {g.num_tensors}", str(g.num_beyond), number(g.max_ulp)))
    lines = ["ops that differ on the same inputs:", *aligned(rows, "  ")]
    names = [t.label for t in report.tensors if not t.is_same]
    more = f", and {len(names) - SHOWN_BLAMED} more" if len(names) > SHOWN_BLAMED else ""
    return [*lines, f"  tensors: {', '.join(names[:SHOWN_BLAMED])}{more}"]


def stage_table(report: Report) -> list[str]:
    """The error by layer, with a bar on a logarithmic scale from 1e-9 to 1."""
    rows = [("stage", "differ", "max abs", "ulp", "relative", "1e-9 to 1")]
    for g in report.by_stage():
        relative = "not finite" if g.one_sided else number(g.relative)
        share = f"{g.num_different} of {g.num_tensors}"
        rows.append((g.name, share, number(g.max_abs), number(g.max_ulp), relative, bar(g.relative)))
    return aligned(rows)


def as_text(report: Report) -> str:
    lines = [title(report), *verdict(report), *blamed(report)]
    if report.first is not None:
        lines += ["", *stage_table(report)]
    return "\n".join(lines)
