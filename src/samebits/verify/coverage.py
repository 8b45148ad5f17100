"""What a run reached of the spaces that ops state: classes of every factor, and pairs of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from samebits.ops import OPS, Op
from samebits.ops.space import Pair
from samebits.verify.model import Result, Task, is_drawn
from samebits.verify.select import prefix_of

Class = tuple[str, str]


@dataclass
class Reached:
    """What was reached of one op's space at one tier."""

    classes: set[Class] = field(default_factory=set)
    pairs: set[Pair] = field(default_factory=set)

    def take(self, op: Op, case_id: str) -> None:
        """Counts a case; those with names of their own are not part of the space."""
        if op.space is not None and is_drawn(case_id) and not prefix_of(case_id):
            row = op.space.parse(case_id)
            self.classes.update(op.space.classes_of(row).items())
            self.pairs.update(op.space.pairs_of(row))

    def by_factor(self, op: Op) -> dict[str, list[str]]:
        """Labels of the classes that were reached, in the order in which the space states them."""
        if op.space is None:
            return {}
        return {f.name: [c.label for c in f.stated if (f.name, c.label) in self.classes] for f in op.space.factors}


def stated_classes(op: Op) -> list[Class]:
    """Every class of every factor of an op."""
    return [] if op.space is None else [(f.name, c.label) for f in op.space.factors for c in f.stated]


def unreached(tasks: Iterable[Task]) -> list[str]:
    """A line for each class that an op among the tasks states and no task reaches."""
    by_op: dict[str, Reached] = defaultdict(Reached)
    for task in tasks:
        if task.op in OPS:
            by_op[task.op].take(OPS[task.op], task.case)
    return [
        f"{name}: no case has {factor} = {label}"
        for name, reached in by_op.items()
        for factor, label in stated_classes(OPS[name])
        if (factor, label) not in reached.classes
    ]


def coverage(results: Iterable[Result]) -> dict[str, dict[str, Reached]]:
    """op -> tier -> what the cases that ran have reached; unsupported and unfinished ones reach nothing."""
    found: dict[str, dict[str, Reached]] = defaultdict(lambda: defaultdict(Reached))
    for result in results:
        if result.op in OPS and result.status in ("pass", "fail"):
            found[result.op][result.tier].take(OPS[result.op], result.case)
    return found


def as_json(results: Iterable[Result]) -> dict[str, Any]:
    """What a certificate says of coverage."""
    return {
        name: {
            tier: {
                "classes": len(reached.classes),
                "of": len(stated_classes(OPS[name])),
                "pairs": len(reached.pairs),
                "reached": reached.by_factor(OPS[name]),
            }
            for tier, reached in tiers.items()
        }
        for name, tiers in coverage(results).items()
    }
