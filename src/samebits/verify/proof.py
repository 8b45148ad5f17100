"""What a run proves: a pure function of what was to run and of the verdicts.

An op is proven at a tier if a case of it passed there and none failed or is unfinished. A tier is proven if the whole
set ran and every op is proven; an op without a kernel stands in the way, unless it is a fused one: models run on its
parts. A run that was interrupted proves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.verify.model import Result, Task

TIERS = tuple(tier.label for tier in Tier if tier)


@dataclass(frozen=True)
class TierProof:
    """What is proven at one tier. Ops are named; where one case was asked for, so is the case.

    proven       ops of which cases passed and none failed
    unsupported  ops whose cases are all unsupported: without a kernel, or at a tier that the device cannot keep
    not_proven   ops of which a case failed or is unfinished
    is_whole     whether the tier is proven, of every op
    """

    proven: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    not_proven: tuple[str, ...] = ()
    is_whole: bool = False


@dataclass(frozen=True)
class Proof:
    """What is proven, by tier; nothing if `num_missing` cases did not run."""

    tiers: dict[str, TierProof] = field(default_factory=dict)
    num_missing: int = 0

    @property
    def whole_tiers(self) -> list[str]:
        """Labels of the tiers that are proven of every op."""
        return [tier for tier, found in self.tiers.items() if found.is_whole]

    def __str__(self) -> str:
        """Say in one line what is proven, and which ops the backend does not support."""
        if self.num_missing:
            return f"proven: nothing, since {self.num_missing} cases did not run"
        parts = [f"proven: {', '.join(self.whole_tiers)}"] if self.whole_tiers else []
        for names, tiers in self._grouped("proven"):
            partial = [tier for tier in tiers if not self.tiers[tier].is_whole]
            parts += [f"proven for {', '.join(names)}: {', '.join(partial)}"] if partial else []
        parts = parts or ["proven: nothing"]
        for names, tiers in self._grouped("unsupported"):
            where = "" if len(tiers) == len(self.tiers) else f" at {', '.join(tiers)}"
            parts.append(f"unsupported{where}: {', '.join(names)}")
        return "; ".join(parts)

    def _grouped(self, kind: str) -> Iterable[tuple[tuple[str, ...], list[str]]]:
        """Pairs of some ops and the tiers at which exactly these are of that kind."""
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for tier, found in self.tiers.items():
            if getattr(found, kind):
                groups[getattr(found, kind)].append(tier)
        return groups.items()

    def as_json(self) -> dict[str, Any]:
        """Return by tier the ops proven, unsupported and not proven; nothing for an interrupted run."""
        if self.num_missing:
            return {}
        return {
            tier: {
                "proven": list(found.proven),
                "unsupported": list(found.unsupported),
                "not_proven": list(found.not_proven),
            }
            for tier, found in self.tiers.items()
        }


def num_missing(tasks: Iterable[Task], results: Iterable[Result]) -> int:
    """Return how many cases have no verdict: those of an interrupted run."""
    return len({(t.op, t.case) for t in tasks} - {(r.op, r.case) for r in results})


def prove(results: Iterable[Result], *, missing: int, is_whole: bool, by_case: bool) -> Proof:
    """Return what these results prove.

    missing   cases that did not run
    is_whole  whether every op was asked for, with all cases of the set
    by_case   whether single cases were asked for, so that they are named and not their ops
    """
    if missing:
        return Proof(num_missing=missing)
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for result in results:
        name = f"{result.op}/{result.case}" if by_case else result.op
        counts[result.tier][name][result.status] += 1
    return Proof({tier: _tier_proof(counts[tier], is_whole) for tier in TIERS if tier in counts})


def _tier_proof(by_op: dict[str, Counter[str]], is_whole: bool) -> TierProof:
    not_proven = tuple(op for op, seen in by_op.items() if seen["fail"] or seen["unfinished"])
    proven = tuple(op for op, seen in by_op.items() if seen["pass"] and op not in not_proven)
    unsupported = tuple(op for op, seen in by_op.items() if set(seen) == {"unsupported"})
    is_needed = any(op not in OPS or OPS[op].decompose is None for op in unsupported)
    return TierProof(proven, unsupported, not_proven, is_whole and bool(proven) and not not_proven and not is_needed)
