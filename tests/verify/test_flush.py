"""Kernels that only differ where subnormals are flushed: the check `flush` finds them, and nothing else does."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import pytest
from planted import F, Results
from planted_base import Arguments, Defect, shown_by
from planted_scenes import call

from samebits.backends import discovery
from samebits.backends.interface import Backend
from samebits.backends.reference import ReferenceBackend
from samebits.core.numerics.rounding import F16
from samebits.ops import OPS
from samebits.verify.checks import verify_case
from samebits.verify.model import Result, Task
from samebits.verify.select import find_case

TIERS = ("fast", "invariant", "portable")
ROWS = ("values=bounds", "values=faint")


class HalvesWidenedByScaling(Defect):
    """Moves a float16's bits into place and scales them up: exact, but its smallest numbers pass as subnormals."""

    ops = ("cast",)
    witness = twin = shown_by(call, "cast", x=np.array([[6e-6, 1]], np.float16))

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["x"].dtype == F16 and results[0].dtype == F:
            pattern = a["x"].view(np.uint16).astype(np.uint32)
            magnitude = ((pattern & 0x7FFF) << 13).astype(np.uint32).view(F) * F(2.0**112)
            results[0][...] = np.where(pattern >> 15, -magnitude, magnitude)


def verdicts(backend: Backend, op: str, row: str) -> list[Result]:
    caps = backend.probe()
    return verify_case(backend, caps, OPS[op], find_case(OPS[op], row), Task(backend.name, op, row, TIERS))


def test_only_flush_tells_such_a_kernel_from_a_right_one() -> None:
    found = {r.tier: r for r in verdicts(HalvesWidenedByScaling(), "cast", "x=f16,values=faint,format=f32")}
    assert [found[tier].status for tier in TIERS] == ["pass", "pass", "fail"]
    assert [f.check for f in found["portable"].findings] == ["flush"]


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("row", ROWS)
def test_backends_of_ours_give_the_same_bits_either_way(name: str, row: str) -> None:
    backend = discovery.get(name).backend
    assert backend is not None
    for op in ("add", "mul", "rms_norm", "layer_norm", "silu_and_mul", "softmax", "quantize_q8", "rope"):
        for result in verdicts(backend, op, row):
            assert result.status == "pass", result.reason
            assert not any(text.startswith("flush") for text in result.not_compared)


def test_a_backend_that_cannot_be_asked_says_so() -> None:
    class Mute(ReferenceBackend):
        def flushing(self) -> None:
            return None

    result = verdicts(Mute(), "add", "values=normal")[-1]
    assert result.status == "pass"
    assert result.not_compared == ("flush: this backend cannot be asked to flush subnormals",)


def test_a_definition_that_makes_a_subnormal_fails_every_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samebits.ops.elementwise.settle", lambda x: (x * F(2.0**-110)) * F(2.0**-30))
    for result in verdicts(ReferenceBackend(), "mul", "values=faint"):
        assert result.reason.startswith("error: the definition: FloatingPointError: underflow")


def test_the_mode_is_asked_of_a_team_and_not_of_one_thread() -> None:
    class Counting(ReferenceBackend):
        num_threads = 1
        flushed_with: tuple[int, ...] = ()

        def set_threads(self, count: int) -> None:
            self.num_threads = count

        def flushing(self) -> AbstractContextManager[None] | None:
            self.flushed_with += (self.num_threads,)
            return super().flushing()

    backend = Counting()
    assert verdicts(backend, "add", "values=normal")[-1].status == "pass"
    assert backend.flushed_with
    assert min(backend.flushed_with) > 1
