"""Executables of one op and the same sizes with other attributes, one after another on one backend.

A backend that keeps compiled kernels or captured launches may find the ones of other attributes. Drawn cases show that
only by chance: few have the sizes of another one, and a process plays a part of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits.backends.interface import Backend
from samebits.core.errors import BadInput, Unsupported
from samebits.core.format import Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.ops import Op, bind, evaluate
from samebits.verify.bounds import Judge
from samebits.verify.harness import execute
from samebits.verify.input_sets import Inputs
from samebits.verify.model import Finding, is_drawn
from samebits.verify.program import difference
from samebits.verify.refusals import Comparisons, crash


def other_attrs(op: Op, case_id: str) -> list[dict[str, Any]]:
    """Return attributes of rows that differ from the usual one in a setting, which is an attribute alone.

    Return none for a case that is not the usual row: one row of an op is enough.
    """
    if op.space is None or not is_drawn(case_id):
        return []
    usual = {f.name: f.usual for f in op.space.factors}
    if op.space.parse(case_id) != usual:
        return []
    first = op.space.case(usual)
    found = []
    for factor in op.space.settings:
        for label in (choice.label for choice in factor.classes):
            row = {**usual, factor.name: label}
            case = op.space.case(row) if op.space.fits(row) else first
            if case.get("attrs") != first.get("attrs") and _without_attrs(case) == _without_attrs(first):
                found.append(case["attrs"])
    return found


def _without_attrs(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name != "attrs"}


def other_attrs_findings(
    backend: Backend, op: Op, call: Inputs, changes: list[dict[str, Any]], tier: Tier, compared: Comparisons
) -> Iterator[Finding]:
    """Yield the first result that is wrong when executables of a call with other attributes run after one another."""
    for attrs in ({}, *changes):
        changed = {name: value for name, value in attrs.items() if call.get(name) != value}
        text = ", ".join(f"{name} {value}" for name, value in changed.items()) or "first"
        copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in call.items()}
        try:
            bound = bind(op, **{**call, **attrs})
            want = evaluate(bind(op, **{**copies, **attrs}))
        except BadInput:  # the attributes do not fit these values
            continue
        try:
            results = execute(backend, op, {**call, **attrs}, tier).results
        except Unsupported as error:
            compared.refuse(f"reruns, {text}", error)
            continue
        except Exception as error:  # any exception of a backend under test is its failure, with its text
            yield crash(error, f"{text}, after other attributes: ")
            return
        judge = Judge(bound, want)
        for i, got in enumerate(results):
            finding, is_same = difference(bound, judge, i, got, "reruns")
            if finding is None and not is_same and tier >= Tier.PORTABLE:
                finding = Finding("bits", "other bits than the definition's")
            if finding is not None:
                yield Finding(finding.check, f"{text}, after other attributes: {finding.where}")
                return
        compared.made("reruns")
