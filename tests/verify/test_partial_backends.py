"""Backends that serve only part of an op: what they refuse is said, what they serve is still held to its tier."""

from __future__ import annotations

from typing import Any

import pytest

from samebits.backends.reference import ReferenceBackend
from samebits.core.tiers import Tier
from samebits.kernels.record import KernelTable, OpCall
from samebits.ops import OPS, bind, evaluate
from samebits.verify.checks import verify_case
from samebits.verify.model import Result, Task
from samebits.verify.select import find_case


def only_nhd(call: OpCall) -> str | None:
    return None if call.attrs["layout"] == "NHD" else "NHD only"


class OnlyNhd(ReferenceBackend):
    name = "only-nhd"

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("toy")

        @table.implements("paged_attention", tier=Tier.PORTABLE, when=only_nhd)
        def attention(q: Any, k_cache: Any, **refused: Any) -> Any:
            return evaluate(bind(OPS["paged_attention"], q=q, k_cache=k_cache, **refused))

        return (table,)


class WrongAt33(ReferenceBackend):
    """Claims only fast, and is wrong for one batch size that no case of add has."""

    name = "wrong-at-33"

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("toy")

        @table.implements("add", tier=Tier.FAST)
        def add(x: Any, y: Any) -> Any:
            return (x + y + (1 if len(x) == 33 else 0),)

        return (table,)


def verdicts(backend: ReferenceBackend, op: str, case: str) -> dict[str, Result]:
    task = Task(backend.name, op, case, ("fast", "invariant", "portable"))
    return {r.tier: r for r in verify_case(backend, backend.probe(), OPS[op], find_case(OPS[op], case), task)}


def test_a_layout_that_is_refused_is_not_compared_and_not_blamed() -> None:
    found = verdicts(OnlyNhd(), "paged_attention", "page-edges")
    assert {r.status for r in found.values()} == {"pass"}
    assert any("layout, HND" in text and "NHD only" in text for text in found["portable"].not_compared)
    assert {r.status for r in verdicts(OnlyNhd(), "paged_attention", "hnd").values()} == {"unsupported"}


def test_a_fast_kernel_is_checked_at_other_batch_sizes() -> None:
    found = verdicts(WrongAt33(), "add", "small-f32")
    assert found["fast"].status == "fail"
    assert found["fast"].reason.startswith("values: 33 rows along ...")
    assert found["invariant"].status == "unsupported"


def test_a_kernel_may_leave_the_rest_but_not_invent_arguments() -> None:
    table = KernelTable("toy")
    with pytest.raises(TypeError, match="parameters must be those of add"):

        @table.implements("add", tier=Tier.FAST)
        def add(x: Any, other: Any, **refused: Any) -> Any:
            return (x,)
